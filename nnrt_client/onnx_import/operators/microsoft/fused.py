"""Activations that ONNX Runtime's optimizer fuses: it names them in an attribute of the operator before them."""

from collections.abc import Callable, Sequence

from nnrt_client.enums import FuseType, OperationType
from nnrt_client.onnx_import.operators.activation import elu, hard_sigmoid, leaky_relu, softplus
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

_PLAIN = {
    "Relu": OperationType.RELU,
    "Sigmoid": OperationType.SIGMOID,
    "Tanh": OperationType.TANH,
    "HardSwish": OperationType.HSWISH,
}
_COMPOSED: dict[str, tuple[Callable[..., Value], Sequence[str]]] = {
    "Elu": (elu, ["alpha"]),
    "HardSigmoid": (hard_sigmoid, ["alpha", "beta"]),
    "LeakyRelu": (leaky_relu, ["alpha"]),
    "Softplus": (softplus, []),
}


def fuse_type(name: str, parameters: Sequence[float]) -> FuseType:
    """Return the activation as NNRt's FuseType, or NONE if it must be a separate operation."""
    if name == "Relu":
        return FuseType.RELU
    return FuseType.RELU6 if name == "Clip" and list(parameters) == [0, 6] else FuseType.NONE


def apply_activation(op: NodeBuilder, x: Value, name: str, parameters: Sequence[float]) -> Value:
    """Apply an activation as separate operations."""
    if not name:
        return x
    if name in _PLAIN:
        return op.apply(_PLAIN[name], x, dims=x.dims)
    if name in _COMPOSED:
        function, names = _COMPOSED[name]
        activated: Value = function(op, x, **dict(zip(names, parameters, strict=False)))
        return activated
    if name == "Clip" and len(parameters) == 2:
        low, high = parameters
        return op.apply(OperationType.CLIP, x, min=low, max=high, dims=x.dims)
    return refuse(f"its activation is {name!r} with {list(parameters)}; put it behind as an operator of its own")
