"""Backend that computes one operator as another one with the same operands."""

from collections.abc import Mapping
from dataclasses import replace

from nnrt_backend_reference import create as create_reference
from wrapping import Progress, WrappedBackend

from nnrt_hdi.backend import Backend, Capabilities, DeviceInfo, ModelConfig, PreparedModel
from nnrt_hdi.enums import DeviceType, NodeType
from nnrt_hdi.graph import Graph


class _Wrong(WrappedBackend):
    """Backend with the options `operator`, `as` and `after`.

    It computes the node type `operator` as the type `as`, only behind a node of the type `after` if that is given.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(create_reference({}))
        self._operator, self._instead = NodeType[options["operator"]], NodeType[options["as"]]
        self._after = NodeType[options["after"]] if "after" in options else None

    def describe(self) -> DeviceInfo:
        return DeviceInfo("wrong", "test", DeviceType.OTHER, Capabilities(dynamic_input=True), "wrong", "0")

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        before = {tensor: node.type for node in graph.nodes for tensor in node.outputs}
        nodes = [
            replace(node, type=self._instead)
            if node.type is self._operator and self._after in (None, *map(before.get, node.inputs))
            else node
            for node in graph.nodes
        ]
        return super().prepare(replace(graph, nodes=tuple(nodes)), config, progress)


def create(options: Mapping[str, str]) -> Backend:
    return _Wrong(options)
