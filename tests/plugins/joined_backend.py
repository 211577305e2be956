"""Wrapper of another backend whose runs a test can block. It logs the rows of each run, and the end of each model.

A run with WAITS among its inputs waits until a test has opened and closed the FIFO of the option `gate`; a run with
FAILS fails.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from batching.signs import FAILS, WAITS
from wrapping import WrappedBackend, WrappedModel

from nnrt_hdi.backend import Backend, Cancellation, PreparedModel, load_backend
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)


class _Model(WrappedModel):
    def __init__(self, right: PreparedModel, gate: Path) -> None:
        super().__init__(right)
        self._gate = gate

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        _log.info("computes %d rows", len(inputs[0]))
        if (inputs[0] == WAITS).any():
            self._gate.read_bytes()
        if (inputs[0] == FAILS).any():
            raise ZeroDivisionError("the vendor's mistake")
        return self.right.run(inputs, cancellation, outputs)

    def close(self) -> None:
        _log.info("closes a model")
        super().close()


class _Joined(WrappedBackend):
    def __init__(self, right: Backend, gate: Path) -> None:
        super().__init__(right)
        self.concurrent_runs = 1
        self._gate = gate

    def wrapped(self, prepared: PreparedModel, graph: Graph | None) -> PreparedModel:
        return _Model(prepared, self._gate)


def create(options: Mapping[str, str]) -> Backend:
    """Create the backend with the options `inner`, the wrapped backend, and `gate`."""
    return _Joined(load_backend(options.get("inner", "reference")), Path(options["gate"]))
