"""Numbers that follow from shapes: the arithmetic with which networks compute shapes.

If the shapes of a run's inputs are known, so are these numbers and the shapes that depend on them. A backend that runs
graphs of any shapes computes them in its kernels. For a backend that needs known shapes, `decided_graph` computes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Constant, Graph, Node
from nnrt_hdi.ops.inference import infer_node, inferred_graph
from nnrt_hdi.ops.operator import OPERATORS
from nnrt_hdi.ops.run_sizes import deciding_operands
from nnrt_hdi.ops.slicing import Masks, strided_cuts, window
from nnrt_hdi.tensor import Array, TensorSpec

N = NodeType
NOTHING = ActivationType.NO_ACTIVATION
AnyArray = NDArray[Any]
Function = Callable[..., AnyArray | None]


def decided_graph(graph: Graph) -> Graph:
    """Return the graph with everything known that follows from the shapes of its inputs.

    Numbers that follow become constants, and shapes that follow become known. The inputs and outputs stay. Raises the
    problem of a node that is wrong for these shapes.
    """
    specs, values = list(graph.tensors), dict(graph.shape_values)
    for index in graph.order:
        node = graph.nodes[index]
        operands = [(specs[at], values.get(at)) for at in node.inputs]
        try:
            outputs = infer_node(node, operands, tuple([specs[at] for at in node.outputs]))
            number = _number(node, operands, outputs[0]) if _follows(node, specs) else None
        except NnrtError as error:
            raise error.at(graph.place(index)) from error
        for at, spec in zip(node.outputs, outputs, strict=True):
            specs[at] = spec
        if number is not None:
            values[node.outputs[0]] = number
    made = {at for node in graph.nodes for at in node.outputs} - {*graph.outputs}
    found = {at: Constant.of(values[at]) for at in sorted(made & values.keys())}
    return inferred_graph(_without(graph, specs, found))


def late_nodes(graph: Graph) -> frozenset[int]:
    """Return the nodes whose outputs have shapes that only a run can know.

    The shapes depend on computed numbers that `decided_graph` doesn't find. A backend that needs known shapes should
    report these nodes as unsupported.
    """
    # Tensors whose shapes are known before a run, and tensors whose elements are known too.
    shaped, numbers = {*graph.inputs, *graph.constants}, {*graph.shape_values}
    given = {*graph.inputs, *graph.constants}
    late = set()
    for index in graph.order:
        node = graph.nodes[index]
        is_late = not (given | numbers).issuperset(deciding_operands(node))
        if is_late and any(graph.tensors[at].is_dynamic for at in node.outputs):
            late.add(index)
        is_shaped = not is_late and shaped.issuperset(node.inputs)
        shaped.update(at for at in node.outputs if is_shaped or not graph.tensors[at].is_dynamic)
        sources = shaped if node.type is N.SHAPE else numbers
        if _follows(node, graph.tensors) and sources.issuperset(node.inputs):
            numbers.add(node.outputs[0])
    return frozenset(late)


def _follows(node: Node, tensors: Sequence[TensorSpec]) -> bool:
    """Return whether a node's result can be computed here, once its operands (for SHAPE their shape) are known."""
    if node.type not in FUNCTIONS or node.attrs.get("activation_type", NOTHING) != NOTHING:
        return False
    read = () if node.type is N.SHAPE else node.inputs
    specs = [tensors[at] for at in (*read, node.outputs[0])]
    return all(spec.numpy_dtype.kind in "iub" and not spec.is_quantized for spec in specs)


def _number(node: Node, operands: Sequence[tuple[TensorSpec, Array | None]], output: TensorSpec) -> Array | None:
    """Return the result of a node if its operands are known and the result is small, else None."""
    if output.is_dynamic or output.byte_size > INLINE_CONSTANT_BYTES:
        return None
    if node.type is N.SHAPE:
        spec = operands[0][0]
        return None if spec.is_dynamic else np.array(spec.shape, output.numpy_dtype)
    given = [value for _, value in operands if value is not None]
    if len(given) < len(operands):
        return None
    attrs = SimpleNamespace(**OPERATORS[node.type].bind(node.attrs))
    with np.errstate(all="ignore"):
        number = FUNCTIONS[node.type](attrs, output, *given)
    return None if number is None else np.ascontiguousarray(number, output.numpy_dtype).reshape(output.shape)


def _without(graph: Graph, specs: Sequence[TensorSpec], found: dict[int, Constant]) -> Graph:
    """Return the graph with these tensors as constants, without the nodes that are no longer needed."""
    source = {at: index for index, node in enumerate(graph.nodes) for at in node.outputs}
    needed: set[int] = set()
    waiting = [*graph.outputs]
    while waiting:
        at = waiting.pop()
        if at in source and at not in found and source[at] not in needed:
            needed.add(source[at])
            waiting += graph.nodes[source[at]].inputs
    # A node that still computes one output computes all of them, so all stay results.
    nodes = [node for index, node in enumerate(graph.nodes) if index in needed]
    given = {at for node in nodes for at in node.outputs}
    constants = {**graph.constants, **{at: constant for at, constant in found.items() if at not in given}}
    used = {*graph.inputs, *graph.outputs, *(at for node in nodes for at in (*node.inputs, *node.outputs))}
    places = {at: place for place, at in enumerate(sorted(used))}

    def placed(tensors: Sequence[int]) -> tuple[int, ...]:
        return tuple([places[at] for at in tensors])

    return Graph(
        tuple(specs[at] for at in sorted(used)),
        tuple(replace(node, inputs=placed(node.inputs), outputs=placed(node.outputs)) for node in nodes),
        placed(graph.inputs),
        placed(graph.outputs),
        {places[at]: constant for at, constant in constants.items() if at in used},
        graph.name,
    )


# ---- functions by node type: they get the attributes, the output's spec and the operands


def _reshaped(_: SimpleNamespace, output: TensorSpec, x: AnyArray, *__: AnyArray) -> AnyArray:
    return x.reshape(output.shape)


def _gathered(_: SimpleNamespace, __: TensorSpec, x: AnyArray, indices: AnyArray, axis: AnyArray) -> AnyArray | None:
    """Return the entries at the indices, or None if the run will refuse an index."""
    along = int(axis.item())
    is_inside = (indices >= 0).all() and (indices < x.shape[along]).all()
    return np.take(x, indices, axis=along) if is_inside else None


def _cut(attrs: SimpleNamespace, _: TensorSpec, x: AnyArray, begin: AnyArray, size: AnyArray) -> AnyArray:
    along = [axis % x.ndim for axis in attrs.axes] or range(x.ndim)
    places = window(x.shape, along, begin.reshape(-1).tolist(), size.reshape(-1).tolist())
    return x[tuple(slice(start, start + length) for start, length in places)]


def _strided(attrs: SimpleNamespace, output: TensorSpec, x: AnyArray, *vectors: AnyArray) -> AnyArray:
    entries = list(zip(*(vector.reshape(-1).tolist() for vector in vectors), strict=True))
    cuts = strided_cuts(x.shape, entries, Masks(**vars(attrs)))
    return x[tuple(cut.part for cut in cuts if cut.part is not None)].reshape(output.shape)


def _on(function: Callable[..., AnyArray]) -> Function:
    """Return `function` as an entry of FUNCTIONS, which casts both operands to the type of the result first."""
    return lambda _, output, a, b: function(a.astype(output.numpy_dtype), b.astype(output.numpy_dtype))


def _quotient(a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute the quotient rounded towards zero; 0 where b is 0."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    return np.asarray(np.where(b == 0, a.dtype.type(0), (a - np.fmod(a, divisor)) // divisor))


FUNCTIONS: dict[NodeType, Function] = {
    N.SHAPE: _reshaped,  # Gets the shape as operand, see `_number`.
    **dict.fromkeys((N.SQUEEZE, N.UNSQUEEZE, N.EXPAND_DIMS, N.RESHAPE, N.FLATTEN), _reshaped),
    N.CAST: lambda _, output, x, __: x.astype(output.numpy_dtype),
    N.GATHER: _gathered,
    N.CONCAT: lambda attrs, _, *parts: np.concatenate(parts, axis=attrs.axis),
    N.STACK: lambda attrs, _, *parts: np.stack(parts, axis=attrs.axis),
    N.SLICE_FUSION: _cut,
    N.STRIDED_SLICE: _strided,
    N.ADD_FUSION: _on(np.add),
    N.SUB_FUSION: _on(np.subtract),
    N.MUL_FUSION: _on(np.multiply),
    N.DIV_FUSION: _on(_quotient),
    N.MAXIMUM: _on(np.maximum),
    N.MINIMUM: _on(np.minimum),
    N.EQUAL: lambda _, __, a, b: np.equal(a, b),
    N.WHERE: lambda _, __, condition, a, b: np.asarray(np.where(condition, a, b)),
    N.CONSTANT_OF_SHAPE: lambda attrs, output, _: np.full(output.shape, attrs.value[0] if attrs.value else 0),
    N.FILL: lambda _, output, value, __: np.full(output.shape, value.item()),
}
