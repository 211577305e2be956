"""Lowerings, and the table in which they are found.

    @lowering(NodeType.SQUARE)
    def square(op, call, x):
        return x * x

A lowering gets the ONNX model under construction, its call and the values of its operands, and returns the value of
its output or a tuple of them. FLOAT16 comes as FLOAT32 where the engine computes it so; a lowering registered with
`moves=True` gets it as it is, for it computes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from types import SimpleNamespace
from typing import Any, TypeVar

from nnrt_hdi.enums import Format, NodeType
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.tensor import TensorSpec
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.engine import AnyDType
from nnrt_onnx_lowering.value import Value

Function = Callable[..., Any]
# A size that is known, or a vector of one that the run makes.
Size = int | Value
FunctionT = TypeVar("FunctionT", bound=Function)


@dataclass(frozen=True, slots=True)
class Call:
    """A node as its lowering sees it.

    `attrs` has all attributes, under the names of their parameters in `nnrt_hdi.ops`; the specs are what is known
    before a run. `dtype` is the type to compute the first output in.
    """

    node_type: NodeType
    attrs: SimpleNamespace
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dtype: AnyDType


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
        raise Unsupported(f"{name} is known only when the model runs; for {x.op.engine.name} make it a small constant")
    return [int(number) for number in x.elements.reshape(-1)]


def product(sizes: Sequence[Size]) -> Size:
    return reduce(mul, sizes, 1)


def channels_first(x: Value, spec: TensorSpec) -> Value:
    """An image, or the weight of one, as [batch, channels, height, width]."""
    return x if spec.format is Format.NCHW or spec.rank < 3 else x.transposed(_with_second(spec.rank, spec.rank - 1))


def as_given(y: Value, spec: TensorSpec) -> Value:
    """An image with its channels in dimension 1 in the layout of a spec."""
    return y if spec.format is Format.NCHW or spec.rank < 3 else y.transposed(_with_last(spec.rank, 1))


def _with_second(rank: int, axis: int) -> list[int]:
    """The permutation that puts a dimension behind the first."""
    return [0, axis, *(at for at in range(1, rank) if at != axis)]


def _with_last(rank: int, axis: int) -> list[int]:
    """The permutation that puts a dimension behind all others."""
    return [*(at for at in range(rank) if at != axis), axis]


def per_channel(op: Onnx, call: Call, vector: Value) -> Value:
    """A vector with one element per channel of the first operand, shaped to be broadcast with it."""
    spec = call.inputs[0]
    return op.unsqueeze(vector, range(1, spec.rank - spec.channel_axis))
