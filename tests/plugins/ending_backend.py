"""Backend whose process ends by SIGKILL when it runs one operator."""

import os
import signal
from collections.abc import Mapping, Sequence

from nnrt_backend_reference import create as create_reference
from wrapping import WrappedBackend, WrappedModel

from nnrt_hdi.backend import Backend, Cancellation, Capabilities, DeviceInfo, PreparedModel
from nnrt_hdi.enums import DeviceType, NodeType
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array


class _Ending(WrappedModel):
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


class _Backend(WrappedBackend):
    """Backend with the option `operator`, a node type."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(create_reference({}))
        self._operator = NodeType[options["operator"]]

    def describe(self) -> DeviceInfo:
        return DeviceInfo("ending", "test", DeviceType.OTHER, Capabilities(dynamic_input=True), "ending", "0")

    def wrapped(self, prepared: PreparedModel, graph: Graph | None) -> PreparedModel:
        ends = graph is not None and any(node.type is self._operator for node in graph.nodes)
        return _Ending(prepared) if ends else prepared


def create(options: Mapping[str, str]) -> Backend:
    return _Backend(options)
