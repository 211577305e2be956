"""Matrix products."""

from typing import Annotated

from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.ops.activation import require_fusable
from nnrt_hdi.ops.operands import (
    FLOATS,
    NUMBERS,
    Vector,
    broadcast_shape,
    declared_data_type,
    higher_precision,
    known_product,
    normalized_axis,
    precision,
    require_channels,
    same_data_type,
)
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, TensorSpec

Matrices = Annotated[Operand, Accepts(NUMBERS, min_rank=2)]


@operator(NodeType.FULL_CONNECTION)
def full_connection(
    x: Annotated[Operand, Accepts(FLOATS, min_rank=1)],
    weight: Annotated[Operand, Accepts(FLOATS, min_rank=2, max_rank=2)],
    bias: Vector | None = None,
    *,
    has_bias: bool | None = None,
    use_axis: bool | None = None,
    axis: int | None = None,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
) -> TensorSpec:
    """y = f(X W^T + bias), f the fused activation; W is [out features, in features].

    X is x as a matrix with in features columns, and y is [rows, out features]. With use_axis, which an axis
    implies, the dimensions from axis (absent: 0) on are the columns, and y keeps those before it: [..., out
    features]. bias is [out features]; has_bias repeats whether there is one.
    """
    given = (x, weight) if bias is None else (x, weight, bias)
    require_fusable(activation_type, same_data_type(*given))
    out_features = weight.shape[0]
    if has_bias is not None and has_bias != (bias is not None):
        refuse(f"has_bias is {has_bias} but there are {len(given)} inputs; they must agree")
    if bias is not None:
        require_channels(out_features, bias)
    if axis is not None and use_axis is False:
        refuse(f"axis is {axis} but use_axis is False; leave one of them out")
    if axis is None and not use_axis:
        return TensorSpec(x.data_type, (_rows(x, weight), out_features))
    first = normalized_axis(axis or 0, x.rank)
    columns = known_product(x.shape[first:])
    if UNKNOWN_DIM not in (columns, weight.shape[1]) and columns != weight.shape[1]:
        refuse(f"{x} has {columns} elements from dimension {first} on but {weight} takes {weight.shape[1]}")
    return TensorSpec(x.data_type, (*x.shape[:first], out_features))


@operator(NodeType.MATMUL_FUSION)
def matmul(
    a: Matrices,
    b: Matrices,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
    declared: tuple[TensorSpec, ...],
) -> TensorSpec:
    """y = f(A B), f the fused activation; [..., M, K] by [..., K, N] is [..., M, N], batches broadcast.

    transpose_a and transpose_b swap the last two dimensions of an operand first. The result has the
    higher-precision type of the two or a higher one that the model declares, and is computed in it; integers
    wrap around.
    """
    lowest = higher_precision(a, b)
    data_type = declared_data_type(declared, lowest)
    if data_type not in NUMBERS or precision(data_type) < precision(lowest):
        refuse(f"the output is declared {data_type.name}; {a} by {b} gives {lowest.name} or a higher precision")
    require_fusable(activation_type, data_type)
    rows, inner = _matrix(a, transpose_a)
    inner_b, columns = _matrix(b, transpose_b)
    if UNKNOWN_DIM not in (inner, inner_b) and inner != inner_b:
        refuse(
            f"{a} has rows of {inner} elements but {b} has columns of {inner_b}; make them equal"
            f" (transpose_a is {transpose_a}, transpose_b {transpose_b})"
        )
    batch = broadcast_shape(_batch(a), _batch(b))
    return TensorSpec(data_type, (*batch, rows, columns))


def _rows(x: Operand, weight: Operand) -> int:
    """Rows of x as a matrix that fits the weight."""
    columns = weight.shape[1]
    if columns == 0:
        refuse(f"{weight} takes no elements; give it at least one column, or set axis")
    total = known_product(x.shape)
    if UNKNOWN_DIM in (total, columns):
        return UNKNOWN_DIM
    if total % columns:
        refuse(f"{x} has {total} elements, which are no rows of the {columns} that {weight} takes")
    return total // columns


def _matrix(operand: Operand, transposed: bool) -> Shape:
    """The last two dimensions, as the product reads them."""
    return operand.shape[:-3:-1] if transposed else operand.shape[-2:]


def _batch(operand: Operand) -> Operand:
    return Operand(f"the batch of {operand.name}", operand.spec.with_shape(operand.shape[:-2]))
