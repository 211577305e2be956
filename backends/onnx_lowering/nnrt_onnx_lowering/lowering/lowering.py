"""Registry of lowerings, and helpers that they share.

    @lowering(NodeType.SQUARE)
    def square(op, call, x):
        return x * x

A lowering gets the ONNX model under construction, its call and the values of its operands. It returns the value of its
output, or a tuple of values. Where the engine computes FLOAT16 in FLOAT32, operands are already cast. A lowering
registered with `moves=True` only moves elements and gets them as they are.
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
# A known size, or a vector with one element that the run computes.
Size = int | Value
FunctionT = TypeVar("FunctionT", bound=Function)


@dataclass(frozen=True, slots=True)
class Call:
    """Description of a node for its lowering.

    `attrs` has all attributes, under the names of their parameters in `nnrt_hdi.ops`. The specs say what is known
    before a run. `dtype` is the type in which to compute the first output.
    """

    node_type: NodeType
    attrs: SimpleNamespace
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dtype: AnyDType


@dataclass(frozen=True, slots=True)
class Lowering:
    """Lowering of a node type."""

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


def known_values(x: Value, name: str) -> list[int]:
    """Return the elements of an operand on which the nodes to build depend.

    Raises:
        Unsupported: Only a run knows the elements.
    """
    if x.elements is None:
        raise Unsupported(f"{name} is known only when the model runs; for {x.op.engine.name} make it a small constant")
    return [int(number) for number in x.elements.reshape(-1)]


def product(sizes: Sequence[Size]) -> Size:
    return reduce(mul, sizes, 1)


def channels_first(x: Value, spec: TensorSpec) -> Value:
    """Return an image, or the weight of a convolution, as [batch, channels, height, width]."""
    return x if spec.format is Format.NCHW or spec.rank < 3 else x.transposed(_with_second(spec.rank, spec.rank - 1))


def in_format(y: Value, spec: TensorSpec) -> Value:
    """Convert an image [batch, channels, height, width] to the format of a spec."""
    return y if spec.format is Format.NCHW or spec.rank < 3 else y.transposed(_with_last(spec.rank, 1))


def _with_second(rank: int, axis: int) -> list[int]:
    """Return the permutation that moves a dimension to the second position."""
    return [0, axis, *(at for at in range(1, rank) if at != axis)]


def _with_last(rank: int, axis: int) -> list[int]:
    """Return the permutation that moves a dimension to the end."""
    return [*(at for at in range(rank) if at != axis), axis]


def per_channel(op: Onnx, call: Call, vector: Value) -> Value:
    """Return a vector with one element per channel of the first operand, reshaped to broadcast with it."""
    spec = call.inputs[0]
    return op.unsqueeze(vector, range(1, spec.rank - spec.channel_axis))
