"""Judgement of a whole graph: the position of the rows in each of its tensors."""

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.inference import inferred_graph
from nnrt_hdi.ops.rows_apart import by_element, folding, images, moving  # noqa: F401  (each declares judgements)
from nnrt_hdi.ops.rows_apart.counting import follow_elements
from nnrt_hdi.ops.rows_apart.form import FOLLOWED, MAX_ELEMENTS, Form, Rows, known_elements
from nnrt_hdi.ops.rows_apart.judgement import JUDGEMENTS, JudgedNode
from nnrt_hdi.ops.rows_apart.sizes import ROW_COUNT, Size, Unknowns
from nnrt_hdi.tensor import UNKNOWN_DIM

# Their results depend on the shape of the operand only, not on its elements.
_OF_SHAPES = (NodeType.SHAPE, NodeType.RANK)


def require_rows_apart(graph: Graph) -> None:
    """Raise Unsupported, with place and reason, for a graph whose runs can't be joined along dimension 0.

    Dimension 0 of each input and output must be -1 and have one entry for each row.
    """
    forms = forms_of(graph)
    for tensor in graph.outputs:
        rows = forms[tensor].rows
        if rows is None:
            raise Unsupported("it is the same for all rows; leave it out", place=graph.tensor_place(tensor))
        if rows != Rows():
            raise Unsupported("its dimension 0 is not that of the rows alone", place=graph.tensor_place(tensor))


def forms_of(graph: Graph) -> dict[int, Form]:
    """Return the form of each tensor, which has the position of its rows.

    Raises:
        Unsupported: An operator mixes rows.
    """
    graph, unknowns = inferred_graph(graph), Unknowns()
    forms = {tensor: _input(graph, tensor, unknowns) for tensor in graph.inputs}
    for tensor, constant in graph.constants.items():
        spec, value = graph.tensors[tensor], constant.shape_value
        is_followed = value is not None and spec.data_type in FOLLOWED and value.size <= MAX_ELEMENTS
        forms[tensor] = Form(tuple(map(Size, spec.shape)), None, known_elements(value) if is_followed else None)
    for index in graph.order:
        node = JudgedNode(graph, index, [forms[tensor] for tensor in graph.nodes[index].inputs], unknowns)
        forms.update(zip(graph.nodes[index].outputs, _output_forms(node), strict=True))
    return forms


def rows_apart_condition(node_type: NodeType) -> str:
    """Return the condition under which an operator keeps rows apart, such as "always", from its docstring."""
    return " ".join((JUDGEMENTS[node_type].__doc__ or "").split()).removeprefix("Keep rows apart ").removesuffix(".")


def _input(graph: Graph, tensor: int, unknowns: Unknowns) -> Form:
    shape, place = graph.tensors[tensor].shape, graph.tensor_place(tensor)
    if not shape or shape[0] != UNKNOWN_DIM:
        raise Unsupported(
            f"{graph.tensors[tensor]} has no open dimension 0, along which runs could be joined", place=place
        )
    dims = [unknowns.get("input", tensor, axis) if dim == UNKNOWN_DIM else Size(dim) for axis, dim in enumerate(shape)]
    return Form((ROW_COUNT, *dims[1:]), Rows())


def _output_forms(node: JudgedNode) -> tuple[Form, ...]:
    """Return the forms of a node's outputs."""
    try:
        if node.node.type not in _OF_SHAPES:
            form = follow_elements(node)
            if form is not None:
                return (form,)
            if all(operand.is_alike for operand in node.operands):
                return node.equal_outputs()
        made = JUDGEMENTS[node.node.type](node, *node.operands)
        forms = made if isinstance(made, tuple) else (made,)
        _require_no_parameters(node, forms)
        return forms
    except Unsupported as error:
        if error.place:
            raise
        node.refuse(error.message)


def _require_no_parameters(node: JudgedNode, forms: tuple[Form, ...]) -> None:
    """Refuse quantization parameters that run along the dimension of the rows."""
    inputs, outputs = node.scalings
    for form, scaling in zip((*node.operands, *forms), (*inputs, *outputs), strict=True):
        is_for_each = scaling is not None and len(scaling.params) > 1
        if form.rows is not None and scaling is not None and is_for_each and form.rows.axis == scaling.axis:
            where = f"dimension {scaling.axis}, which is that of the rows"
            node.refuse(f"it has quantization parameters for each entry of {where}")
