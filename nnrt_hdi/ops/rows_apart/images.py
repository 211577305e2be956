"""Judgements of operators on images, whose dimension 0 is the batch."""

from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.rows_apart.form import Form, Rows
from nnrt_hdi.ops.rows_apart.judgement import JudgedNode, judged
from nnrt_hdi.ops.rows_apart.sizes import Size
from nnrt_hdi.ops.spatial import block_pair


@judged(
    NodeType.AVGPOOL_FUSION,
    NodeType.CONV2D_FUSION,
    NodeType.CONV2D_TRANSPOSE_FUSION,
    NodeType.DEPTH_TO_SPACE,
    NodeType.INSTANCE_NORM,
    NodeType.LRN,
    NodeType.MAX_POOL_FUSION,
    NodeType.RESIZE,
    NodeType.SPACE_TO_DEPTH,
)
def image_operator(node: JudgedNode, x: Form, *parameters: Form) -> Form:
    """Keep rows apart if dimension 0 is the rows' dimension."""
    node.require_alike(*parameters)
    return node.output(_batch(node, x))


@judged(NodeType.SPACE_TO_BATCH_ND)
def space_to_batch(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if dimension 0 is the rows' dimension."""
    rows, blocks = _batch(node, x), _blocks(node)
    return node.output(Rows(0, blocks * rows.outer, rows.inner))


@judged(NodeType.BATCH_TO_SPACE_ND)
def batch_to_space(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if dimension 0 is ordered by block and then by row, as SPACE_TO_BATCH_ND makes it."""
    rows, blocks = _batch(node, x), _blocks(node)
    outer = rows.outer.divided_by(blocks)
    if outer is None:
        node.refuse("it makes one image of entries of dimension 0, which is that of the rows")
    return node.output(Rows(0, outer, rows.inner))


@judged(NodeType.DETECTION_POST_PROCESS)
def detection_post_process(node: JudgedNode, *operands: Form) -> Form:
    """Keep rows apart never, because the operator takes one image."""
    node.refuse("it takes one image, whose boxes it compares with each other")


def _batch(node: JudgedNode, x: Form) -> Rows:
    rows = node.require_rows(x)
    if rows.axis:
        node.refuse(f"x has the rows in dimension {rows.axis}, which is part of an image")
    return rows


def _blocks(node: JudgedNode) -> Size:
    rows, columns = block_pair(node.attrs["block_shape"])
    return Size(rows * columns)
