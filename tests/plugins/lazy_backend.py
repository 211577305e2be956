"""Identity backend that compiles in the first run of each input shape, after the FIFO `gate` has been opened."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nnrt_hdi.backend import Backend, Cancellation, Capabilities, DeviceInfo, ModelConfig, PreparedModel, Support
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.graph import Graph
from nnrt_hdi.graph_model import GraphModel
from nnrt_hdi.tensor import Array


class _LazyModel(GraphModel[bytes]):
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        self.prepared(inputs, cancellation)
        return [inputs[0]]


class _LazyBackend(Backend):
    def __init__(self, gate: Path) -> None:
        self._gate = gate

    def describe(self) -> DeviceInfo:
        return DeviceInfo("lazy", "test", DeviceType.OTHER, Capabilities(dynamic_input=True), "lazy", "0")

    def supported(self, graph: Graph) -> list[Support]:
        return [Support() for _ in graph.nodes]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        return _LazyModel(graph, config.max_tensor_bytes, lambda known: self._gate.read_bytes())


def create(options: Mapping[str, str]) -> Backend:
    return _LazyBackend(Path(options["gate"]))
