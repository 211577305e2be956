"""Tensors made from a shape or a range."""

from typing import Annotated

import numpy as np

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.ops.operands import (
    FLOATS,
    NUMBERS,
    AnyTensor,
    IndexVector,
    Number,
    declared_data_type,
    known_rank,
    known_sizes,
    require_holds,
    require_one_element,
)
from nnrt_hdi.ops.operator import Accepts, Floats, Operand, operator, refuse
from nnrt_hdi.tensor import TensorSpec, data_type_from_number


@operator(NodeType.FILL)
def fill(value: AnyTensor, shape: IndexVector) -> TensorSpec:
    """y = the only element of value everywhere, in the given shape."""
    require_one_element(value)
    return TensorSpec(value.data_type, known_sizes(shape, known_rank(shape)))


@operator(NodeType.CONSTANT_OF_SHAPE)
def constant_of_shape(
    shape: Annotated[Operand, Accepts(NUMBERS, max_rank=1)],
    *,
    data_type: int = 0,
    value: Floats = (),
    declared: tuple[TensorSpec, ...],
) -> TensorSpec:
    """y = value everywhere, in the given shape; value is a list of one number, or empty for 0.

    data_type is the number of a data type: 1 (BOOL) to 12 (FLOAT64), or HDI's 30 to 44. 0 means the type that the model
    declares for the output, or else FLOAT32.
    """
    result = data_type_from_number(data_type) if data_type else declared_data_type(declared, DataType.FLOAT32)
    if len(value) > 1:
        refuse(f"value is {list(value)}; give one number, or none for 0")
    require_holds(result, value[0] if value else 0.0, "value")
    sizes = known_sizes(shape, known_rank(shape))
    if not all(float(size).is_integer() for size in sizes):
        refuse(f"{shape.name} is {list(sizes)}; use whole numbers")
    return TensorSpec(result, tuple(int(size) for size in sizes))


@operator(NodeType.RANGE)
def range_(x: Number, *, data_type: int = 0, start: int = 0, limit: int = 0, delta: int = 1) -> TensorSpec:
    """y = start, start + delta, start + 2 delta, ... as long as they are before limit, in the data type of x.

    The attribute data_type is reserved and must be 0.
    """
    if data_type:
        refuse(f"the attribute data_type is {data_type}; leave it 0, the data type of x counts")
    if delta == 0:
        refuse("delta is 0; use 1 or more, or a negative number to count down")
    count = max(0, -((start - limit) // delta))
    last = start + (count - 1) * delta
    if count and x.data_type not in FLOATS:
        limits = np.iinfo(x.data_type.name.lower())
        if min(start, last) < limits.min or max(start, last) > limits.max:
            refuse(f"it goes from {start} to {last}; stay in {limits.min}..{limits.max} ({x.data_type.name})")
    return TensorSpec(x.data_type, (count,))
