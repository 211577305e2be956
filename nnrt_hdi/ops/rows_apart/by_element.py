"""Judgements of elementwise operators, whose results depend at each position only on the elements there."""

from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.rows_apart.form import Form, Rows
from nnrt_hdi.ops.rows_apart.judgement import JudgedNode, judged
from nnrt_hdi.ops.rows_apart.sizes import ONE, Size


@judged(
    NodeType.ABS,
    NodeType.ACTIVATION,
    NodeType.CAST,
    NodeType.CEIL,
    NodeType.CLIP,
    NodeType.COS,
    NodeType.ERF,
    NodeType.EXPFUSION,
    NodeType.FLOOR,
    NodeType.LEAKY_RELU,
    NodeType.LOG,
    NodeType.LOGICAL_NOT,
    NodeType.NEG,
    NodeType.QUANT_DTYPE_CAST,
    NodeType.QUANT_DTYPE_CAST_V2,
    NodeType.RECIPROCAL,
    NodeType.ROUND,
    NodeType.RSQRT,
    NodeType.SIN,
    NodeType.SQRT,
    NodeType.SQUARE,
)
def unary(node: JudgedNode, x: Form, *_: Form) -> Form:
    """Keep rows apart always."""
    return node.combined_output(x, (), "")


@judged(
    NodeType.ADD_FUSION,
    NodeType.DIV_FUSION,
    NodeType.EQUAL,
    NodeType.GREATER,
    NodeType.GREATER_EQUAL,
    NodeType.LESS,
    NodeType.LESS_EQUAL,
    NodeType.LOGICAL_AND,
    NodeType.LOGICAL_OR,
    NodeType.MAXIMUM,
    NodeType.MINIMUM,
    NodeType.MOD,
    NodeType.MUL_FUSION,
    NodeType.NOT_EQUAL,
    NodeType.POW_FUSION,
    NodeType.REAL_DIV,
    NodeType.SQUARED_DIFFERENCE,
    NodeType.SUB_FUSION,
    NodeType.WHERE,
)
def broadcast(node: JudgedNode, *operands: Form) -> Form:
    """Keep rows apart if operands without rows have length 1 in the rows' dimension, or only later dimensions."""
    rank = node.outputs[0].rank
    rows = common_from_the_end(node, rank, *operands)
    return node.output(rows, broadcast_dims(rank, *operands))


@judged(NodeType.ELTWISE)
def eltwise(node: JudgedNode, *operands: Form) -> Form:
    """Keep rows apart if all operands have their rows at the same position."""
    return node.output(node.require_common(*operands), operands[0].dims)


@judged(NodeType.SELECT)
def select(node: JudgedNode, condition: Form, a: Form, b: Form) -> Form:
    """Keep rows apart if condition, a and b have their rows at the same position, with two exceptions.

    The condition may be one element, or a vector that selects entries of dimension 0 if the rows are in another one.
    """
    rows = node.require_common(a, b)
    # A vector selects entries of dimension 0.
    if condition.is_alike and condition.rank < 2 and (condition.is_one or rows.axis > 0):
        return node.output(rows, a.dims)
    return node.output(node.require_common(condition, a, b), a.dims)


@judged(NodeType.ASSERT)
def assert_(node: JudgedNode, condition: Form, data: Form) -> Form:
    """Keep rows apart always."""
    if condition.rows is None:
        node.require_alike(condition)
    return node.output(condition.rows, condition.dims)


@judged(NodeType.PRELU_FUSION)
def prelu(node: JudgedNode, x: Form, weight: Form) -> Form:
    """Keep rows apart if the rows' dimension is not that of the channels, or weight has one element."""
    node.require_alike(weight)
    return node.combined_output(x, [] if weight.is_one else [_channel_axis(node)], "has a weight for each entry of")


@judged(NodeType.BIAS_ADD, NodeType.FUSED_BATCH_NORM)
def by_channel(node: JudgedNode, x: Form, *vectors: Form) -> Form:
    """Keep rows apart if the rows' dimension is not that of the channels."""
    node.require_alike(*vectors)
    return node.combined_output(x, [_channel_axis(node)], "has numbers for each entry of")


@judged(NodeType.SCALE_FUSION)
def scale(node: JudgedNode, x: Form, scale: Form, bias: Form) -> Form:
    """Keep rows apart if scale and bias don't cover the rows' dimension."""
    node.require_alike(scale, bias)
    start = node.attrs["axis"] % x.rank
    return node.combined_output(x, range(start, start + scale.rank), "has numbers for each entry of")


def common_from_the_end(node: JudgedNode, rank: int, *operands: Form) -> Rows:
    """Return the position of the rows in the broadcast result.

    Refuses operands that have rows at another position, and operands without rows that are longer than 1 there.
    """
    places = {(operand.rows.moved_to(rank - operand.rank + operand.rows.axis)) for operand in operands if operand.rows}
    if not places:
        node.require_alike(*operands)
    if len(places) > 1:
        node.refuse("its operands have the rows in different places")
    (rows,) = places
    for operand in operands:
        if operand.rows is None:
            node.require_alike(operand)
            axis = rows.axis - (rank - operand.rank)
            if axis >= 0 and operand.dims[axis] != ONE:
                count = operand.dims[axis].number
                entries = f"{'an unknown number of' if count is None else count} entries"
                node.refuse(f"{node.name(operand)} has {entries} in dimension {axis}, that of the rows; give it 1")
    return rows


def broadcast_dims(rank: int, *operands: Form) -> list[Size | None]:
    """Return the dimensions of the broadcast result; None where operands have different sizes other than 1."""
    result: list[Size | None] = []
    for axis in range(-rank, 0):
        dims = {operand.dims[axis] for operand in operands if operand.rank >= -axis} - {ONE}
        result.append(dims.pop() if len(dims) == 1 else None if dims else ONE)
    return result


def _channel_axis(node: JudgedNode) -> int:
    """Return the dimension of x's channels."""
    x = node.inputs[0]
    return x.channel_axis % x.rank
