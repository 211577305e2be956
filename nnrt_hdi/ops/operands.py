"""Operand kinds and shape rules that several families of operators share."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from nnrt_hdi.enums import DataType, Format
from nnrt_hdi.ops.operator import Accepts, Operand, refuse
from nnrt_hdi.tensor import MAX_RANK, UNKNOWN_DIM, Shape, TensorSpec, format_shape

FLOATS = frozenset({DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64})
SIGNED_INTEGERS = frozenset({DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64})
UNSIGNED_INTEGERS = frozenset({DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64})
INTEGERS = SIGNED_INTEGERS | UNSIGNED_INTEGERS
NUMBERS = FLOATS | INTEGERS
ANY = NUMBERS | {DataType.BOOL}
INDICES = frozenset({DataType.INT32, DataType.INT64})
# The largest value in a small index vector, whatever its type.
MAX_INDEX = 2**63 - 1

# An operand that determines shapes has at most two values for each dimension.
MAX_SHAPE_VALUES = 2 * MAX_RANK

AnyTensor = Annotated[Operand, Accepts(ANY, quantized=True)]
AnyDimensioned = Annotated[Operand, Accepts(ANY, min_rank=1, quantized=True)]
Number = Annotated[Operand, Accepts(NUMBERS)]
Logical = Annotated[Operand, Accepts(ANY)]
Real = Annotated[Operand, Accepts(FLOATS)]
Image = Annotated[Operand, Accepts(FLOATS, min_rank=4, max_rank=4)]
Vector = Annotated[Operand, Accepts(NUMBERS, min_rank=1, max_rank=1)]
# A weight whose first dimension is the output's channels, and a bias for each channel.
WeightImage = Annotated[Operand, Accepts(FLOATS, min_rank=4, max_rank=4, channel_axis=0)]
WeightMatrix = Annotated[Operand, Accepts(FLOATS, min_rank=2, max_rank=2, channel_axis=0)]
Bias = Annotated[Operand, Accepts(NUMBERS, min_rank=1, max_rank=1, is_bias=True)]
# Axes, sizes, counts and positions: a few integers of any width, from which shapes follow.
IndexVector = Annotated[Operand, Accepts(INTEGERS, max_rank=1)]
Indices = Annotated[Operand, Accepts(INDICES)]


def normalized_axis(axis: int, rank: int, name: str = "axis") -> int:
    """Return the axis counted from the front. Refuses an axis outside of -rank..rank-1."""
    if not -rank <= axis < rank:
        refuse(f"{name} is {axis} but the rank is {rank}; use {-rank}..{rank - 1}")
    return axis % rank


def normalized_axes(axes: Sequence[int], rank: int, name: str = "axis") -> Shape:
    """Return the axes counted from the front, in order. Refuses an axis that is out of bounds or comes twice."""
    result = tuple(normalized_axis(axis, rank, name) for axis in axes)
    if len(set(result)) < len(result):
        refuse(f"{name} is {list(axes)}, which names a dimension twice; name each once")
    return result


def named_axes(axes: Sequence[int], rank: int) -> Shape:
    """Return the axes counted from the front, in the given order, without repetitions.

    This is the rule of reductions in TensorFlow and NNAPI. Refuses an axis that is out of bounds.
    """
    return tuple(dict.fromkeys(normalized_axis(axis, rank) for axis in axes))


def broadcast_shape(*operands: Operand) -> Shape:
    """Return the shape that operands have after broadcasting by numpy's rules. Refuses shapes that don't fit.

    An unknown dimension beside one above 1 can only be equal or 1, so the result is known.
    """
    rank = max([operand.rank for operand in operands])
    result = []
    for axis in range(-rank, 0):
        size = 1
        for operand in operands:
            dim = operand.shape[axis] if operand.rank >= -axis else 1
            if dim in (1, size):
                continue
            if size in (1, UNKNOWN_DIM):
                size = dim
            elif dim != UNKNOWN_DIM:
                shapes = " and ".join(f"{operand.name} {format_shape(operand.shape)}" for operand in operands)
                refuse(f"{shapes} do not broadcast in dimension {axis}; make them equal there, or 1")
        result.append(size)
    return tuple(result)


def common_shape(*operands: Operand) -> Shape:
    """Return the shape that all operands have; a dimension known in one is known. Refuses different shapes."""
    known = [common_dim(dims) for dims in zip(*(operand.shape for operand in operands), strict=False)]
    if any(operand.rank != operands[0].rank for operand in operands) or None in known:
        shapes = " and ".join(f"{operand.name} {format_shape(operand.shape)}" for operand in operands)
        refuse(f"{shapes} differ; give them one shape")
    return tuple(dim for dim in known if dim is not None)


def common_dim(dims: Sequence[int]) -> int | None:
    """Return the length that all known dims have; -1 if none is known, None if they differ."""
    found = UNKNOWN_DIM
    for dim in dims:
        if UNKNOWN_DIM not in (dim, found) and dim != found:
            return None
        found = dim if found == UNKNOWN_DIM else found
    return found


def same_data_type(*operands: Operand) -> DataType:
    """Return the data type that all operands have. Refuses different types."""
    first = operands[0]
    for other in operands[1:]:
        if other.data_type != first.data_type:
            refuse(
                f"{first.name} is {first.data_type.name} but {other.name} is {other.data_type.name};"
                " give both the same data type"
            )
    return first.data_type


# The order meant by "the higher-precision type of the two inputs": floats above integers, then by width.
_PRECISION = {
    data_type: place
    for place, data_type in enumerate(
        (
            DataType.BOOL,
            DataType.UINT8,
            DataType.INT8,
            DataType.UINT16,
            DataType.INT16,
            DataType.UINT32,
            DataType.INT32,
            DataType.UINT64,
            DataType.INT64,
            DataType.FLOAT16,
            DataType.FLOAT32,
            DataType.FLOAT64,
        )
    )
}


def higher_precision(*operands: Operand) -> DataType:
    """Return the data type of the highest precision among the operands, in which mixed operands are computed."""
    types = {operand.data_type for operand in operands}
    return types.pop() if len(types) == 1 else max(types, key=precision)


def precision(data_type: DataType) -> int:
    """Return the rank of a data type in the order of precision."""
    return _PRECISION[data_type]


def broadcast_spec(*operands: Operand, data_type: DataType | None = None) -> TensorSpec:
    """Return the spec of an element-wise result: broadcast shape, and the layout of an operand of full rank."""
    shape = broadcast_shape(*operands)
    layouts = (operand.format for operand in operands if operand.rank == len(shape) and operand.format != Format.NONE)
    return TensorSpec(data_type or operands[0].data_type, shape, next(layouts, Format.NONE))


def common_format(*operands: Operand) -> Format:
    """Return the layout that operands of one rank declare, or NONE. Refuses different layouts."""
    layouts = {operand.format for operand in operands} - {Format.NONE}
    if len(layouts) > 1:
        mixture = " and ".join(f"{operand.name} is {operand.format.name}" for operand in operands)
        refuse(f"{mixture}; transpose them to one layout")
    return layouts.pop() if layouts else Format.NONE


def declared_data_type(declared: Sequence[TensorSpec], default: DataType) -> DataType:
    """Return the data type that the model declares for the first output, or the default."""
    if declared and declared[0].data_type is not DataType.UNKNOWN:
        return declared[0].data_type
    return default


def require_holds(data_type: DataType, value: float, name: str) -> None:
    """Refuse a number that an integer type can't represent."""
    if data_type in FLOATS or data_type is DataType.BOOL:
        return
    limits = np.iinfo(data_type.name.lower())
    if not (float(value).is_integer() and limits.min <= value <= limits.max):
        refuse(f"{name} is {value}; use a whole number in {limits.min}..{limits.max} ({data_type.name})")


def require_channels(channels: int, *vectors: Operand) -> None:
    """Refuse vectors that don't have one element per channel."""
    for vector in vectors:
        if UNKNOWN_DIM not in (channels, vector.shape[0]) and vector.shape[0] != channels:
            refuse(f"{vector.name} has {vector.shape[0]} elements; give one for each of the {channels} channels")


def int_values(operand: Operand, why: str) -> tuple[int, ...]:
    """Return the elements of a small constant operand. Refuses an operand that isn't constant."""
    values = known_ints(operand)
    if values is None:
        refuse(f"{operand.name} must be a constant, for {why}")
    return values


def known_ints(operand: Operand) -> tuple[int, ...] | None:
    """Return the elements of an integer operand, or None if they are unknown before the run.

    Refuses an operand of more than MAX_SHAPE_VALUES elements.
    """
    count = known_product(operand.shape)
    if count > MAX_SHAPE_VALUES:
        refuse(f"{operand} has {count} elements; use at most {MAX_SHAPE_VALUES}")
    if count == 0:
        return ()
    if operand.value is None:
        return None
    values = tuple(operand.value.reshape(-1).tolist())
    if operand.data_type is DataType.UINT64 and max(values) > MAX_INDEX:
        refuse(f"{operand.name} is {list(values)}; use at most {MAX_INDEX}")
    return values


def known_int(operand: Operand) -> int | None:
    """Return the only element of an integer operand, or None if it is unknown. Refuses other numbers of elements."""
    require_one_element(operand)
    values = known_ints(operand)
    return values[0] if values else None


def require_one_element(operand: Operand) -> None:
    """Refuse an operand that must be one number, but has another number of elements."""
    count = known_product(operand.shape)
    if count not in (1, UNKNOWN_DIM):
        refuse(f"{operand} has {count} elements; give one")


def require_length(vector: Operand, count: int, each: str) -> None:
    """Refuse a vector of another length than `count`; `each` names in the message what its elements belong to."""
    length = known_product(vector.shape)
    if length not in (count, UNKNOWN_DIM):
        refuse(f"{vector} has {length} elements; give one for each of the {count} {each}")


def known_rank(vector: Operand) -> int:
    """Return the length of a vector with one size per output dimension. Refuses an unknown length."""
    count = known_product(vector.shape)
    if count == UNKNOWN_DIM:
        refuse(f"{vector} decides the output's rank, but has an unknown length; fix it")
    if count > MAX_RANK:
        refuse(f"{vector} has {count} elements, one for each dimension of the output; use at most {MAX_RANK}")
    return count


def known_sizes(vector: Operand, count: int) -> Shape:
    """Return the sizes in a vector of `count` elements, -1 while they are unknown. Refuses negative ones."""
    values = known_ints(vector)
    if values is None:
        return (UNKNOWN_DIM,) * count
    if any(value < 0 for value in values):
        refuse(f"{vector.name} is {list(values)}; use sizes of 0 or more")
    return values


def known_product(dims: Sequence[int]) -> int:
    """Return the product of dimensions: -1 if one is unknown, unless another is 0."""
    product = 1
    unknown = False
    for dim in dims:
        if dim == UNKNOWN_DIM:
            unknown = True
        else:
            product *= dim
    return UNKNOWN_DIM if unknown and product else product
