"""Comparison of a device with ONNX Runtime in this process: both run the same ONNX file in alternating rounds."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnrt_client.cli.printing import step_bar
from nnrt_client.model_session.real_onnxruntime import require_onnxruntime
from nnrt_client.tensors.frozen import frozen_array, require_known
from nnrt_hdi.errors import OperationFailed, Unsupported
from nnrt_hdi.host_limits import processors
from nnrt_hdi.tensor import Array

_ROUNDS = 11
# Target duration of one round on each side; _MOST_RUNS may end it earlier.
_ROUND_S = 0.1
_MOST_RUNS = 100

Outputs = Mapping[str, Array]
Run = Callable[[], Outputs]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Latencies on the device and in this process, one run at a time: medians, and their ratio over all rounds.

    `quartiles` are the first and third of the ratio. `largest_difference` is relative to an output's largest absolute
    element.
    """

    in_process_ms: float
    remote_ms: float
    ratio: float
    quartiles: tuple[float, float]
    largest_difference: float
    threads: int

    def describe(self) -> dict[str, Any]:
        """Return the comparison as --json prints it."""
        return {
            "threads": self.threads,
            "in_process_ms": round(self.in_process_ms, 4),
            "remote_ms": round(self.remote_ms, 4),
            "ratio": round(self.ratio, 4),
            "ratio_quartiles": [round(one, 4) for one in self.quartiles],
            "largest_relative_difference": self.largest_difference,
        }


class Baseline:
    """ONNX Runtime session in this process, with the options that the onnxruntime backend uses on CPUs."""

    def __init__(self, model: Path, threads: int | None, constants: Mapping[str, Any]) -> None:
        """Load the model into ONNX Runtime.

        Raises:
            Unsupported: onnxruntime is not installed.
            OperationFailed: ONNX Runtime refuses the file.
            InvalidParameter: a constant doesn't fit its input.
        """
        onnxruntime = require_onnxruntime("--baseline measures the model")
        self.threads = threads or processors()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime raises a different class for each error code.
            raise OperationFailed(f"ONNX Runtime in process refuses it: {error}", place=f"{model}") from error
        self._names = [output.name for output in self._session.get_outputs()]
        types = {one.name: one.type for one in self._session.get_inputs()}
        require_known(constants, list(types))
        self._constants = {
            name: frozen_array(name, value, _dtype(types[name]), None) for name, value in constants.items()
        }

    def run(self, inputs: Mapping[str, Array]) -> Outputs:
        """Run the model and return its outputs by name. Raises OperationFailed when ONNX Runtime fails."""
        try:
            return dict(zip(self._names, self._session.run(None, {**inputs, **self._constants}), strict=True))
        except Exception as error:
            raise OperationFailed(f"ONNX Runtime in process fails: {error}") from error

    def compare(self, remote: Run, inputs: Mapping[str, Array]) -> Comparison:
        """Measure the device (`remote`) and this process in rounds; the one that runs first alternates."""

        def here() -> Outputs:
            return self.run(inputs)

        largest_difference = _largest_difference(remote(), here())
        count = max(1, min(_MOST_RUNS, int(_ROUND_S / _median_s(here, 3))))
        pairs = []
        with step_bar(_ROUNDS) as steps:
            steps.begin("against ONNX Runtime in this process")
            for number in range(_ROUNDS):
                first, second = (here, remote) if number % 2 else (remote, here)
                times = _median_s(first, count), _median_s(second, count)
                pairs.append(times if number % 2 else times[::-1])
                steps.end()
        low, ratio, high = statistics.quantiles(remote_s / local_s for local_s, remote_s in pairs)
        local_ms, remote_ms = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
        return Comparison(local_ms, remote_ms, ratio, (low, high), largest_difference, self.threads)


def _largest_difference(remote: Outputs, local: Outputs) -> float:
    """Return the largest relative difference between the outputs of both sides.

    Raises OperationFailed for different shapes: their times can't be compared, and Unsupported for strings, sequences
    and maps.
    """
    largest = 0.0
    for name, mine in remote.items():
        other = local[name]
        if not isinstance(other, np.ndarray) or other.dtype.hasobject:
            raise Unsupported(f"output {name!r} is no tensor of numbers; measure it without --baseline")
        if mine.shape != other.shape:
            raise OperationFailed(
                f"output {name!r} is {list(mine.shape)} on the device and {list(other.shape)} in process"
            )
        there, here = np.asarray(mine, np.float64), np.asarray(other, np.float64)
        unlike = ~((there == here) | (np.isnan(there) & np.isnan(here)))
        if unlike.any():
            difference = float(np.abs(there[unlike] - here[unlike]).max())  # NaN if either element is NaN.
            scale = float(np.abs(here[np.isfinite(here)]).max(initial=0.0)) or 1.0
            largest = max(largest, np.inf if np.isnan(difference) else difference / scale)
    return largest


def _median_s(run: Run, count: int) -> float:
    times = []
    for _ in range(count):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _dtype(type_: str) -> np.dtype[Any]:
    """Return the NumPy dtype of an ONNX Runtime type such as `tensor(int64)`."""
    name = type_.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
