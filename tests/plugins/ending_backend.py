"""A backend whose process ends when it is to run one operator, by a signal as of an accelerator's library."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence

from nnrt_backend_reference import create as create_reference

from nnrt_hdi.backend import Backend, Cancellation, Capabilities, DeviceInfo, ModelConfig, PreparedModel, Support
from nnrt_hdi.enums import DeviceType, NodeType
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array


class _Ending(PreparedModel):
    def __init__(self, prepared: PreparedModel) -> None:
        self.inputs = prepared.inputs
        self.outputs = prepared.outputs

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


class _Backend(Backend):
    """Options: the node type `operator`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._reference = create_reference({})
        self._operator = NodeType[options["operator"]]

    def describe(self) -> DeviceInfo:
        return DeviceInfo("ending", "test", DeviceType.OTHER, Capabilities(dynamic_input=True), "ending", "0")

    def supported(self, graph: Graph) -> list[Support]:
        return self._reference.supported(graph)

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        prepared = self._reference.prepare(graph, config, progress)
        return _Ending(prepared) if any(node.type is self._operator for node in graph.nodes) else prepared


def create(options: Mapping[str, str]) -> Backend:
    return _Backend(options)
