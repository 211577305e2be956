"""Comparisons, logic, and choices by a condition. Everything but 0 is true."""

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.ops.operands import Logical, broadcast_spec, common_format, common_shape, same_data_type
from nnrt_hdi.ops.operator import Operand, operator, refuse
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, TensorSpec, format_shape


@operator(NodeType.EQUAL, "y = (a == b); false if either is NaN.", quantized=True)
@operator(NodeType.NOT_EQUAL, "y = (a != b); true if either is NaN.", quantized=True)
@operator(NodeType.GREATER, "y = (a > b); false if either is NaN.", quantized=True)
@operator(NodeType.GREATER_EQUAL, "y = (a >= b); false if either is NaN.", quantized=True)
@operator(NodeType.LESS, "y = (a < b); false if either is NaN.", quantized=True)
@operator(NodeType.LESS_EQUAL, "y = (a <= b); false if either is NaN.", quantized=True)
@operator(NodeType.LOGICAL_AND, "y = a and b.")
@operator(NodeType.LOGICAL_OR, "y = a or b.")
def binary_truth(a: Logical, b: Logical) -> TensorSpec:
    return broadcast_spec(a, b, data_type=DataType.BOOL)


@operator(NodeType.LOGICAL_NOT)
def logical_not(x: Logical) -> TensorSpec:
    """y = not x."""
    return TensorSpec(DataType.BOOL, x.shape, x.format)


@operator(NodeType.WHERE, quantized=True)
def where(condition: Logical, a: Logical, b: Logical) -> TensorSpec:
    """y = a where condition is true, else b; all three broadcast."""
    return broadcast_spec(a, b, condition, data_type=same_data_type(a, b))


@operator(NodeType.SELECT, quantized=True)
def select(condition: Logical, a: Logical, b: Logical) -> TensorSpec:
    """y = a where condition is true, else b, both of one shape.

    The condition has that shape too, or one element, or it is a vector that selects whole rows: the entries of
    dimension 0.
    """
    data_type = same_data_type(a, b)
    shape = _selected_shape(condition, a, b)
    return TensorSpec(data_type, shape, common_format(a, b))


@operator(NodeType.ASSERT)
def assert_(condition: Logical, data: Logical, *, summarize: int = 0) -> TensorSpec:
    """y = condition; the run fails if an element is false, and reports the first `summarize` elements of data."""
    if summarize < 0:
        refuse(f"summarize is {summarize}; use 0 or more")
    return condition.spec


def _selected_shape(condition: Operand, a: Operand, b: Operand) -> Shape:
    """Return the shape of SELECT's result. Refuses a condition that doesn't fit."""
    if condition.rank > 1:
        return common_shape(condition, a, b)
    shape = common_shape(a, b)
    rows = condition.shape[0] if condition.rank else 1
    if rows in (1, UNKNOWN_DIM):
        return shape
    if shape[:1] not in ((rows,), (UNKNOWN_DIM,)):
        refuse(f"{condition} picks no rows of {a.name} {format_shape(shape)}; give it that shape, or one for each row")
    return rows, *shape[1:]
