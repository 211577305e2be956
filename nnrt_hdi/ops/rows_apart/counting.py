"""Judgements of operators that compute shapes: SHAPE, arithmetic on its result, and tensors of such shapes."""

import operator
from collections.abc import Callable

import numpy as np

from nnrt_hdi.enums import ActivationType, NodeType, ReduceMode
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.ops.operands import INDICES
from nnrt_hdi.ops.rows_apart.form import MAX_ELEMENTS, Elements, Form, as_elements
from nnrt_hdi.ops.rows_apart.judgement import JudgedNode, judged
from nnrt_hdi.ops.rows_apart.moving import rows_in_shape
from nnrt_hdi.ops.rows_apart.sizes import Size, product
from nnrt_hdi.ops.slicing import Masks, strided_cuts

# Computes the result's elements from those of the operands. Raises ValueError for elements that aren't tracked.
Counted = Callable[..., Elements]
COUNTED: dict[NodeType, Counted] = {}
# The limit of 32 bits, beyond which numbers wrap around.
_MOST = 2**31


@judged(NodeType.SHAPE)
def shape_of(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if all numbers that follow from the result serve as shapes, as for RESHAPE and FILL."""
    return Form((Size(x.rank),), None, as_elements(list(x.dims)))


@judged(NodeType.RANK)
def rank_of(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart always."""
    return Form((), None, as_elements([Size(x.rank)], ()))


@judged(NodeType.RANGE)
def range_(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart always, because the result is the same for all rows."""
    return node.output(None)


@judged(NodeType.FILL)
def fill(node: JudgedNode, value: Form, shape: Form) -> Form:
    """Keep rows apart if value is the same for all rows, and one number in shape depends on how many rows there are."""
    node.require_alike(value)
    return _filled(node, shape)


@judged(NodeType.CONSTANT_OF_SHAPE)
def constant_of_shape(node: JudgedNode, shape: Form) -> Form:
    """Keep rows apart if one number in shape depends on how many rows there are."""
    return _filled(node, shape)


def _filled(node: JudgedNode, shape: Form) -> Form:
    if shape.rows is not None or shape.elements is None:
        node.refuse("shape has a part for each row, so each would make another shape")
    dims = list(shape.elements.flat)
    return node.output(rows_in_shape(node, None, dims), dims)


def counts(*types: NodeType) -> Callable[[Counted], Counted]:
    """Register a function that computes the elements of these operators' results from the operands' elements."""

    def declare(function: Counted) -> Counted:
        COUNTED.update(dict.fromkeys(types, function))
        return function

    return declare


def follow_elements(node: JudgedNode) -> Form | None:
    """Return the form of a node's result with its elements, or None if they don't follow from the operands'."""
    function = COUNTED.get(node.node.type)
    elements = [operand.elements for operand in node.operands]
    if function is None or any(part is None for part in elements) or len(node.outputs) != 1:
        return None
    try:
        result = function(node, *elements)
    except (NnrtError, ValueError, IndexError, OverflowError):
        return None  # Operands that don't fit fail in the run.
    if isinstance(result, Size):  # For rank 0 numpy returns the element itself.
        result = as_elements([result], ())
    if result.size > MAX_ELEMENTS or any(abs(size.factor) >= _MOST for size in result.flat):
        return None
    return Form(tuple(map(Size, result.shape)), None, result)


@counts(NodeType.GATHER)
def gather(node: JudgedNode, x: Elements, indices: Elements, axis: Elements) -> Elements:
    at, along = _ints(indices), _ints(axis).item()
    if (at < -x.shape[along]).any():
        raise IndexError(at)
    return np.take(x, at, along)


@counts(NodeType.CONCAT)
def concat(node: JudgedNode, *parts: Elements) -> Elements:
    return np.concatenate(parts, node.attrs["axis"])


@counts(NodeType.STACK)
def stack(node: JudgedNode, *parts: Elements) -> Elements:
    return np.stack(parts, node.attrs["axis"])


@counts(NodeType.CAST)
def cast(node: JudgedNode, x: Elements, type_: Elements) -> Elements:
    _require_integers(node)
    return x


@counts(NodeType.TRANSPOSE)
def transpose(node: JudgedNode, x: Elements, permutation: Elements) -> Elements:
    return np.transpose(x, _ints(permutation).reshape(-1).tolist())


@counts(NodeType.RESHAPE, NodeType.SQUEEZE, NodeType.UNSQUEEZE, NodeType.EXPAND_DIMS)
def reshape(node: JudgedNode, x: Elements, *_: Elements) -> Elements:
    return x.reshape(node.outputs[0].shape)


@counts(NodeType.STRIDED_SLICE)
def strided_slice(node: JudgedNode, x: Elements, *vectors: Elements) -> Elements:
    entries = zip(*(_ints(vector).reshape(-1).tolist() for vector in vectors), strict=True)
    cuts = strided_cuts(x.shape, list(entries), Masks(*(node.attrs[name] for name in Masks._fields)))
    part = x[tuple(cut.part for cut in cuts if cut.part is not None)]
    is_kept = node.outputs[0].rank == len(cuts)
    return part.reshape([cut.length for cut in cuts if is_kept or not cut.is_shrunk])


@counts(NodeType.REDUCE_FUSION)
def reduce(node: JudgedNode, x: Elements, axis: Elements) -> Elements:
    _require_integers(node)
    if x.ndim != 1 or node.attrs["mode"] is not ReduceMode.PROD:
        raise ValueError("only products are followed")
    return as_elements([product(x.tolist())], (1,) if node.attrs["keep_dims"] else ())


@counts(NodeType.EQUAL)
def equal(node: JudgedNode, a: Elements, b: Elements) -> Elements:
    return _by_pairs(_are_equal, a, b)


@counts(NodeType.WHERE)
def where(node: JudgedNode, condition: Elements, a: Elements, b: Elements) -> Elements:
    return np.where(_ints(condition) != 0, a, b)


@counts(NodeType.MUL_FUSION)
def mul(node: JudgedNode, a: Elements, b: Elements) -> Elements:
    _require_integers(node)
    return _by_pairs(operator.mul, a, b)


@counts(NodeType.ADD_FUSION, NodeType.SUB_FUSION)
def add(node: JudgedNode, a: Elements, b: Elements) -> Elements:
    _require_integers(node)
    sign = Size(-1 if node.node.type is NodeType.SUB_FUSION else 1)
    return _by_pairs(lambda one, other: _sum(node, one, other * sign), a, b)


@counts(NodeType.DIV_FUSION, NodeType.REAL_DIV)
def div(node: JudgedNode, a: Elements, b: Elements) -> Elements:
    _require_integers(node)
    return _by_pairs(lambda one, other: _quotient(node, one, other), a, b)


def _require_integers(node: JudgedNode) -> None:
    """Raise ValueError unless the result is an integer without an activation."""
    activation = node.attrs.get("activation_type", ActivationType.NO_ACTIVATION)
    if activation is not ActivationType.NO_ACTIVATION or node.outputs[0].data_type not in INDICES:
        raise ValueError("it is no plain integer")


def _by_pairs(function: Callable[[Size, Size], Size | None], a: Elements, b: Elements) -> Elements:
    """Compute a number from each pair of elements, with broadcasting. Raises ValueError if one is unknown."""
    made: Elements = np.asarray(np.frompyfunc(function, 2, 1)(a, b))
    if any(size is None for size in made.flat):
        raise ValueError("one is known only in a run")
    return made


def _sum(node: JudgedNode, a: Size, b: Size) -> Size | None:
    if 0 in (a.factor, b.factor):
        return b if a.factor == 0 else a
    if a.unknowns == b.unknowns:
        return Size(a.factor + b.factor, a.unknowns) if a.factor + b.factor else Size(0)
    if a.counts_rows or b.counts_rows:
        return None
    return node.unknowns.get("+", *sorted((a, b), key=repr), is_nonnegative=a.is_nonnegative and b.is_nonnegative)


def _are_equal(a: Size, b: Size) -> Size | None:
    """Return 1 if the sizes are equal, 0 if they differ, or None if only a run knows it."""
    if a == b:
        return Size(1)
    is_never = (a.is_nonnegative and (b.number or 0) < 0) or (b.is_nonnegative and (a.number or 0) < 0)
    return Size(0) if is_never or (a.number is not None and b.number is not None) else None


def _quotient(node: JudgedNode, a: Size, b: Size) -> Size | None:
    exact = a.divided_by(b)
    if exact is not None or a.counts_rows or b.counts_rows or b.factor == 0:
        return exact
    return node.unknowns.get("/", a, b, is_nonnegative=a.is_nonnegative and b.is_nonnegative)


def _ints(elements: Elements) -> Elements:
    """Convert elements to integers. Raises ValueError if only a run knows one."""
    found = [size.number for size in elements.flat]
    if None in found:
        raise ValueError("one is known only in a run")
    return np.array(found, np.int64).reshape(elements.shape)
