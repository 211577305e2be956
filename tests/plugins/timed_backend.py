"""A backend that computes as the reference does, and keeps each run for a given time, as an accelerator would.

It stands for accelerators that compute without this machine's cores: any number of them do at a time.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from nnrt_backend_reference import create as create_reference

from nnrt_hdi.backend import Backend, Cancellation, DeviceInfo, ModelConfig, PreparedModel, Support
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array


class _Model(PreparedModel):
    def __init__(self, computed: PreparedModel, seconds: float) -> None:
        self.inputs, self.outputs = computed.inputs, computed.outputs
        self._computed = computed
        self._seconds = seconds

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        ends_at = time.monotonic() + self._seconds
        result = self._computed.run(inputs, cancellation, outputs)
        is_cancelled = threading.Event()
        cancellation.on_cancel(is_cancelled.set)
        is_cancelled.wait(max(ends_at - time.monotonic(), 0.0))
        cancellation.check()
        return result

    def export(self) -> Sequence[Part]:
        return self._computed.export()

    def close(self) -> None:
        self._computed.close()


class _Timed(Backend):
    def __init__(self, seconds: float) -> None:
        self._reference = create_reference({"name": "timed"})
        self._seconds = seconds

    def describe(self) -> DeviceInfo:
        return self._reference.describe()

    def supported(self, graph: Graph) -> list[Support]:
        return self._reference.supported(graph)

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        return _Model(self._reference.prepare(graph, config, progress), self._seconds)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return _Model(self._reference.restore(parts, config), self._seconds)

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        self._reference.start(run_bytes, accepts_programs=accepts_programs)


def create(options: Mapping[str, str]) -> Backend:
    """Option `ms`: the milliseconds that a run is on the device."""
    return _Timed(float(options["ms"]) / 1000)
