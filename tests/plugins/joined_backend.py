"""A backend that computes as another one does, and waits where it is told. Its log has the rows of each run, and when a
model is closed.

A run that has WAITS among its inputs waits until somebody has opened and closed the FIFO of the option `gate`; one that
has FAILS fails.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from batching.signs import FAILS, WAITS

from nnrt_hdi.backend import Backend, Cancellation, DeviceInfo, ModelConfig, PreparedModel, Support, load_backend
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)


class _Model(PreparedModel):
    def __init__(self, inner: PreparedModel, gate: Path) -> None:
        self.inputs, self.outputs = inner.inputs, inner.outputs
        self._inner = inner
        self._gate = gate

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        _log.info("computes %d rows", len(inputs[0]))
        if (inputs[0] == WAITS).any():
            self._gate.read_bytes()
        if (inputs[0] == FAILS).any():
            raise ZeroDivisionError("the vendor's mistake")
        return self._inner.run(inputs, cancellation, outputs)

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        return self._inner.sizes(inputs)

    def export(self) -> Sequence[Part]:
        return self._inner.export()

    def close(self) -> None:
        _log.info("closes a model")
        self._inner.close()


class _Joined(Backend):
    def __init__(self, inner: Backend, gate: Path) -> None:
        self._inner = inner
        self._gate = gate

    def describe(self) -> DeviceInfo:
        return self._inner.describe()

    def supported(self, graph: Graph) -> list[Support]:
        return self._inner.supported(graph)

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        return _Model(self._inner.prepare(graph, config, progress), self._gate)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return _Model(self._inner.restore(parts, config), self._gate)

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        self._inner.start(run_bytes, accepts_programs=accepts_programs)

    def close(self) -> None:
        self._inner.close()


def create(options: Mapping[str, str]) -> Backend:
    """Options `inner`, the backend that computes, and `gate`."""
    return _Joined(load_backend(options.get("inner", "reference")), Path(options["gate"]))
