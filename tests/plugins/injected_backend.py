"""Reference backend with faults that a test switches on and off at run time.

The option `fault` is a file with the current fault. "crash": runs fail. "stall": runs don't end, and ignore
cancellation. "wrong": one number of each result is wrong. "nonsense": there is no result. "slow": runs take fifty times
as long. A run takes as many milliseconds as the option `ms` says. Runs with a single number wait until a test has
opened and closed the FIFO of the option `gate` for writing.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from nnrt_backend_reference import create as create_reference
from wrapping import WrappedBackend, WrappedModel

from nnrt_hdi.backend import Backend, Cancellation, PreparedModel
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)

_SLOWER = 50
_LOOK_S = 0.005


class Faults:
    """The current fault."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._file = Path(options["fault"])
        self._gate = Path(options["gate"]) if "gate" in options else None
        self._seconds = float(options.get("ms", "1")) / 1000
        self._pause = threading.Event()

    @property
    def now(self) -> str:
        return self._file.read_text() if self._file.exists() else ""

    def meet(self, given: Array) -> None:
        """Occupy the device as long as a run takes. Raises RuntimeError for the fault "crash"."""
        if self._gate is not None and given.size == 1:
            _log.info("run started")
            self._gate.read_bytes()
        ends_at = time.monotonic() + self._seconds * (_SLOWER if self.now == "slow" else 1)
        while self.now == "stall" or time.monotonic() < ends_at:
            self._pause.wait(_LOOK_S if self.now == "stall" else max(ends_at - time.monotonic(), 0.0))
        if self.now == "crash":
            raise RuntimeError("DMA fault")


class _Model(WrappedModel):
    def __init__(self, right: PreparedModel, faults: Faults) -> None:
        super().__init__(right)
        self._faults = faults

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        # A fault at the beginning of the run also makes its result wrong.
        is_wrong = self._faults.now == "wrong"
        self._faults.meet(inputs[0])
        if self._faults.now == "nonsense":
            return [None]  # type: ignore[list-item]
        results = [np.array(result) for result in self.right.run(inputs, Cancellation())]
        if is_wrong or self._faults.now == "wrong":
            np.add(results[0].flat[-1], 1, out=results[0].reshape(-1)[-1:], casting="unsafe")
        return results


class _Injected(WrappedBackend):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(create_reference({"name": options.get("name", "injected")}))
        self._faults = Faults(options)
        self.concurrent_runs = int(options.get("slots", "1"))

    def wrapped(self, prepared: PreparedModel, graph: Graph | None) -> PreparedModel:
        return _Model(prepared, self._faults)


def create(options: Mapping[str, str]) -> Backend:
    return _Injected(options)
