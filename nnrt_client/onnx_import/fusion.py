"""Nodes that are taken into the operation before them: activations, and the quantization of its result."""

from onnx import NodeProto

from nnrt_client.enums import FuseType
from nnrt_client.onnx_import.scope import Scope
from nnrt_client.onnx_import.value import Value


class Follower:
    """The nodes right behind one, as far as nobody else reads what is between them.

    `names` are the names that its outputs go by: those of the last node that was taken along.
    """

    def __init__(self, scope: Scope, node: NodeProto, opset: int) -> None:
        self._scope = scope
        self._opset = opset
        self._node = node
        self._taken: list[NodeProto] = []
        self.names = list(node.output) or [""]

    def __call__(self) -> FuseType:
        """The activation that follows, which is taken along; NONE where there is none."""
        node = self._next()
        fuse = FuseType.NONE if node is None else self._activation(node)
        if node is not None and fuse is not FuseType.NONE:
            self._take(node)
        return fuse

    def release(self) -> None:
        """Take nothing along after all."""
        self._scope.taken.difference_update(map(id, self._taken))
        self._taken.clear()
        self.names = list(self._node.output) or [""]

    def _next(self) -> NodeProto | None:
        node = self._scope.only_reader(self.names[0])
        if node is None or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            return None
        return node if node.input[0] == self.names[0] else None

    def _take(self, node: NodeProto) -> None:
        self._scope.taken.add(id(node))
        self._taken.append(node)
        self.names[0] = node.output[0]

    def _activation(self, node: NodeProto) -> FuseType:
        if node.op_type == "Relu":
            return FuseType.RELU
        if node.op_type != "Clip":
            return FuseType.NONE
        low, high = self._bounds(node)
        if low != 0:
            return FuseType.NONE
        return FuseType.RELU if high is None else FuseType.RELU6 if high == 6 else FuseType.NONE

    def _bounds(self, node: NodeProto) -> tuple[float | None, float | None]:
        """The bounds of a Clip, None where there is none; where one is not known, none that an activation has."""
        if self._opset < 11:
            given = {attribute.name: attribute.f for attribute in node.attribute}
            return given.get("min"), given.get("max")
        low, high = (self._bound(node, at) for at in (1, 2))
        return low, high

    def _bound(self, node: NodeProto, at: int) -> float | None:
        name = node.input[at] if at < len(node.input) else ""
        if not name:
            return None
        value = self._scope.find(name)
        if not isinstance(value, Value) or value.array is None or value.array.size != 1:
            return float("nan")
        return float(value.array.reshape(-1)[0])
