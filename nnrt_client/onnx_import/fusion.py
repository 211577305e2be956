"""Fusion of an operation with the nodes that follow it: an activation, and the quantization of its result."""

from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from nnrt_client.enums import FuseType
from nnrt_client.onnx_import.scope import Scope
from nnrt_client.onnx_import.value import Value
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_hdi.tensor import Array


@dataclass(frozen=True, slots=True)
class Quantization:
    """Data type and parameters by which a result is quantized."""

    dtype: np.dtype[np.generic]
    param: QuantParam


class Follower:
    """Chain of nodes that may be fused into a node: each is the only reader of the output before it.

    A call fuses the next node if it is an activation. `names` are the output names of the last fused node.
    """

    def __init__(self, scope: Scope, node: NodeProto, opset: int) -> None:
        self._scope = scope
        self._opset = opset
        self._node = node
        self._fused: list[NodeProto] = []
        self.names = list(node.output) or [""]

    def __call__(self) -> FuseType:
        """Fuse the activation that follows and return it, or return NONE if none follows."""
        node = self._next()
        fuse = FuseType.NONE if node is None else self._activation(node)
        if node is not None and fuse is not FuseType.NONE:
            self._fuse(node)
        return fuse

    def fuse_quantization(self, *, fuses: bool) -> tuple[FuseType, Quantization] | None:
        """Fuse the QuantizeLinear that follows, with an activation before it if `fuses`.

        Returns:
            The activation and the quantization, or None if no QuantizeLinear follows. Then nothing is fused.
        """
        fuse = FuseType.NONE
        found = self._quantization()
        if found is None and fuses:
            fuse = self()
            found = self._quantization() if fuse is not FuseType.NONE else None
        if found is None:
            self.undo()
            return None
        node, quantization = found
        self._fuse(node)
        return fuse, quantization

    def _quantization(self) -> tuple[NodeProto, Quantization] | None:
        """Return the next node if it is a QuantizeLinear to 8 bits with one constant scale, else None."""
        node = self._next()
        if node is None or node.op_type != "QuantizeLinear":
            return None
        scale = self._constant(node, 1)
        point = self._constant(node, 2) if len(node.input) > 2 and node.input[2] else np.zeros((), np.uint8)
        # Other attributes choose another data type, or blocks with scales of their own.
        is_plain = all(attribute.name in ("axis", "saturate") for attribute in node.attribute)
        if scale is None or point is None or not is_plain or scale.size != 1 or point.size != 1:
            return None
        if point.dtype not in (np.int8, np.uint8):
            return None
        return node, Quantization(point.dtype, QuantParam([scale.item()], [point.item()]))

    def _constant(self, node: NodeProto, at: int) -> Array | None:
        value = self._scope.find(node.input[at])
        return value.array if isinstance(value, Value) else None

    def undo(self) -> None:
        """Undo all fusions of this node."""
        self._scope.fused.difference_update(map(id, self._fused))
        self._fused.clear()
        self.names = list(self._node.output) or [""]

    def _next(self) -> NodeProto | None:
        node = self._scope.only_reader(self.names[0])
        if node is None or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            return None
        return node if node.input[0] == self.names[0] else None

    def _fuse(self, node: NodeProto) -> None:
        self._scope.fused.add(id(node))
        self._fused.append(node)
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
        """Return the bounds of a Clip: None for an absent bound, NaN for one that is known only in a run."""
        if self._opset < 11:
            given = {attribute.name: attribute.f for attribute in node.attribute}
            return given.get("min"), given.get("max")
        low, high = (self._bound(node, at) for at in (1, 2))
        return low, high

    def _bound(self, node: NodeProto, at: int) -> float | None:
        name = node.input[at] if at < len(node.input) else ""
        if not name:
            return None
        array = self._constant(node, at)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else float("nan")
