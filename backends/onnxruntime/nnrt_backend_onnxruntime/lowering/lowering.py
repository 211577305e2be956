"""What a lowering is, and where it is found.

    @lowering(NodeType.SQUARE)
    def square(op, call, x):
        return x * x

A lowering gets the ONNX model under construction, its call and the values of its operands, and returns the value of
its output or a tuple of them. FLOAT16 comes as FLOAT32 where ONNX Runtime computes it so, and is rounded once, at the
end; a lowering registered with `moves=True` gets it as it is, for it computes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

from nnrt_backend_onnxruntime.builder import Onnx, Value
from nnrt_backend_onnxruntime.kernels import AnyDType
from nnrt_hdi.enums import Format, NodeType
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.tensor import TensorSpec

Function = Callable[..., Any]
FunctionT = TypeVar("FunctionT", bound=Function)


@dataclass(frozen=True, slots=True)
class Call:
    """A node as its lowering sees it.

    `attrs` has all attributes, under the names of their parameters in `nnrt_hdi.ops`; the specs are what is known
    before a run. `dtype` is the type to compute the first output in.
    """

    attrs: SimpleNamespace
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dtype: AnyDType

    @property
    def is_nchw(self) -> bool:
        """Whether the first operand is an image with its channels in dimension 1."""
        return self.inputs[0].format is Format.NCHW


@dataclass(frozen=True, slots=True)
class Lowering:
    """The lowering of a node type."""

    function: Function
    moves: bool


LOWERINGS: dict[NodeType, Lowering] = {}


def lowering(node_type: NodeType, *, moves: bool = False) -> Callable[[FunctionT], FunctionT]:
    """Register the lowering of a node type."""

    def register(function: FunctionT) -> FunctionT:
        if node_type in LOWERINGS:
            raise TypeError(f"{node_type.name} has two lowerings")
        LOWERINGS[node_type] = Lowering(function, moves)
        return function

    return register


def known(x: Value, name: str) -> list[int]:
    """The elements of an operand that decides what is built. Raises Unsupported where only the run knows them."""
    if x.elements is None:
        raise Unsupported(f"{name} is known only when the model runs; for ONNX Runtime make it a small constant")
    return [int(number) for number in x.elements.reshape(-1)]


def channels_first(call: Call, x: Value) -> Value:
    """An image, or the weight of one, as [batch, channels, height, width]."""
    assert x.rank is not None
    return x if call.is_nchw or x.rank < 3 else x.transposed([0, x.rank - 1, *range(1, x.rank - 1)])


def as_given(call: Call, y: Value) -> Value:
    """What `channels_first` turned, turned back."""
    rank = call.outputs[0].rank
    return y if call.is_nchw or rank < 3 else y.transposed([0, *range(2, rank), 1])


def per_channel(op: Onnx, call: Call, vector: Value) -> Value:
    """A vector with one element per channel of the first operand, shaped to be broadcast with it."""
    spec = call.inputs[0]
    behind = spec.rank - 1 - spec.channel_axis
    return op.reshape(vector, [-1, *[1] * behind]) if behind else vector
