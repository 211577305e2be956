"""Backend that measures its runs and compilations itself, to compare with the daemon's counters."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sums import Sums

from nnrt_hdi.backend import Backend, Cancellation, Capabilities, DeviceInfo, ModelConfig, PreparedModel, Support
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

_STEP_S = 0.01


class _Model(PreparedModel):
    def __init__(self, graph: Graph, sums: Sums) -> None:
        self.inputs, self.outputs = graph.input_specs, graph.output_specs
        self._sums = sums

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        with self._sums.of(Sums.RUNS):
            seconds = float(inputs[0].flat[0])
            is_cancelled = threading.Event()
            cancellation.on_cancel(is_cancelled.set)
            is_cancelled.wait(min(abs(seconds), cancellation.remaining or abs(seconds)))
            cancellation.check()
            if seconds < 0:
                raise ArithmeticError("the accelerator has failed")
            return [inputs[0]]

    def close(self) -> None:
        pass


class _Accounting(Backend):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._sums = Sums(Path(options["file"]))
        self._compile_s = float(options["compile_s"])

    def describe(self) -> DeviceInfo:
        return DeviceInfo("accounting", "test", DeviceType.OTHER, Capabilities(dynamic_input=True), "accounting", "0")

    def supported(self, graph: Graph) -> list[Support]:
        return [Support() for _ in graph.nodes]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        with self._sums.of(Sums.COMPILATIONS):
            is_endless = graph.input_specs[0].shape[0] > 1
            ends_at = time.monotonic() + (math.inf if is_endless else self._compile_s)
            while time.monotonic() < ends_at:
                progress(0.5)
                threading.Event().wait(_STEP_S)
        return _Model(graph, self._sums)


def create(options: Mapping[str, str]) -> Backend:
    """Create the backend with the options `file` and `compile_s`.

    `file` is the file of `Sums`, with the durations and counts of runs and compilations. A compilation takes
    `compile_s` seconds, but never ends if the model's input has more than one element. The first element of a run's
    input is the run's duration in seconds; if it is negative, the run fails at its end.
    """
    return _Accounting(options)
