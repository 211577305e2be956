"""Judgements of operators that combine many elements into one: reductions, normalizations, products, recurrences."""

from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.reduction import reduced_axes
from nnrt_hdi.ops.rows_apart.by_element import broadcast_dims, common_from_the_end
from nnrt_hdi.ops.rows_apart.form import Form
from nnrt_hdi.ops.rows_apart.judgement import JudgedNode, judged
from nnrt_hdi.ops.rows_apart.moving import known_numbers, rows_in_shape
from nnrt_hdi.ops.rows_apart.sizes import ONE, Size, product


@judged(NodeType.SOFTMAX, NodeType.LOG_SOFTMAX)
def softmax(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if axis is not the rows' dimension."""
    axis = node.attrs["axis"]
    along = axis if isinstance(axis, int) else axis[0] if axis else -1
    return node.combined_output(x, [along % x.rank], "adds up along")


@judged(NodeType.LAYER_NORM_FUSION)
def layer_norm(node: JudgedNode, x: Form, gamma: Form, beta: Form) -> Form:
    """Keep rows apart if the rows' dimension comes before begin_norm_axis."""
    node.require_alike(gamma, beta)
    return node.combined_output(x, range(node.attrs["begin_norm_axis"], x.rank), "takes the mean over")


@judged(NodeType.L2_NORMALIZE_FUSION)
def l2_normalize(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if axis names dimensions, but not that of the rows."""
    return node.combined_output(x, [axis % x.rank for axis in node.attrs["axis"] or range(x.rank)], "adds up along")


@judged(NodeType.REDUCE_FUSION, NodeType.ALL)
def reduce(node: JudgedNode, x: Form, axis: Form) -> Form:
    """Keep rows apart if axis is a constant that names dimensions, but not that of the rows."""
    reduced = reduced_axes(known_numbers(node, axis), x.rank, node.attrs.get("reduce_to_end", False))
    return node.moved_output(x, x.changed(reduced, ONE) if node.attrs["keep_dims"] else x.without(reduced), "folds")


@judged(NodeType.ARGMAX_FUSION)
def arg_max(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if axis is not the rows' dimension."""
    along, count = [node.attrs["axis"] % x.rank], node.attrs["top_k"]
    is_kept = node.attrs["keep_dims"] or count > 1
    return node.moved_output(x, x.changed(along, Size(count)) if is_kept else x.without(along), "compares along")


@judged(NodeType.TOPK_FUSION)
def top_k(node: JudgedNode, x: Form, k: Form) -> tuple[Form, ...]:
    """Keep rows apart if axis is not the rows' dimension, and k is the same for all rows."""
    node.require_alike(k)
    count = None if k.elements is None else k.elements.reshape(-1)[0]
    dims = x.changed([node.attrs["axis"] % x.rank], count)
    return tuple(node.moved_output(x, dims, "compares along", at=at) for at in range(2))


@judged(NodeType.FULL_CONNECTION)
def full_connection(node: JudgedNode, x: Form, weight: Form, *bias: Form) -> Form:
    """Keep rows apart if the rows' dimension of x comes before those that are its columns."""
    node.require_alike(weight, *bias)
    features = weight.dims[0]
    if node.attrs["axis"] is None and not node.attrs["use_axis"]:
        # x is read as a matrix with as many columns as the weight takes.
        columns = weight.dims[1]
        count = product(x.dims).divided_by(columns)
        if count is None:
            node.refuse("how many rows of its weight's length x has is known only in a run, so they may mix")
        return node.output(rows_in_shape(node, x, [count, columns]), [None, features])
    return node.moved_output(x, [*range((node.attrs["axis"] or 0) % x.rank), features], "adds up along")


@judged(NodeType.MATMUL_FUSION)
def matmul(node: JudgedNode, a: Form, b: Form) -> Form:
    """Keep rows apart if each row has its own matrices, or only one operand has rows and doesn't sum over them."""
    rank = node.outputs[0].rank
    left = _matrix(a, node.attrs["transpose_a"])
    right = _matrix(b, node.attrs["transpose_b"])
    height, width = left.dims[-2], right.dims[-1]
    batch = broadcast_dims(rank - 2, *(Form(part.dims[:-2]) for part in (left, right)))
    dims = [*batch, height, width]
    for part, other, own, operand in ((left, right, 2, b), (right, left, 1, a)):
        if part.rows is None or part.rows.axis < part.rank - 2:
            continue
        if part.rows.axis != part.rank - own:
            node.refuse(f"it adds up along dimension {part.rows.axis}, which is that of the rows")
        if other.rows is not None:
            node.refuse("its operands have the rows in different places")
        node.require_alike(operand)
        return node.output(part.rows.moved_to(rank - own), dims)
    return node.output(common_from_the_end(node, rank, a, b), dims)


def _matrix(operand: Form, transposed: bool) -> Form:
    """Return the operand with its last two dimensions swapped if `transposed`."""
    if not transposed:
        return operand
    order = [*range(operand.rank - 2), operand.rank - 1, operand.rank - 2]
    rows = operand.rows and operand.rows.moved_to(order[operand.rows.axis])
    return Form(tuple(operand.dims[axis] for axis in order), rows)


@judged(NodeType.LSTM)
def lstm(node: JudgedNode, x: Form, w_ih: Form, w_hh: Form, bias: Form, hx: Form, cx: Form) -> tuple[Form, Form, Form]:
    """Keep rows apart if the rows' dimension of x, hx and cx is the batch."""
    node.require_alike(w_ih, w_hh, bias)
    rows = node.require_rows(x)
    if rows.axis != 1:
        node.refuse(f"x has the rows in dimension {rows.axis}, which is not the batch; transpose it to dimension 1")
    for state in (hx, cx):
        place = node.require_rows(state)
        if place.moved_to(place.axis + 3 - state.rank) != rows:
            node.refuse(f"{node.name(state)} does not have the rows in the batch, as x has them")
    return node.output(rows, [x.dims[0], None, None]), node.output(rows, at=1), node.output(rows, at=2)
