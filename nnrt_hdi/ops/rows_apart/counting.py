"""Sizes that a model computes with: SHAPE, the arithmetic behind it, and the tensors that are made in such shapes."""

from collections.abc import Callable

import numpy as np

from nnrt_hdi.enums import ActivationType, NodeType, ReduceMode
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.ops.operands import INDICES
from nnrt_hdi.ops.rows_apart.form import MAX_ELEMENTS, Elements, Form, as_elements
from nnrt_hdi.ops.rows_apart.judgement import Judged, judged
from nnrt_hdi.ops.rows_apart.moving import counted_rows
from nnrt_hdi.ops.rows_apart.sizes import Size, product
from nnrt_hdi.ops.slicing import Masks, strided_cuts

# What an operator makes of elements; None where that is not followed.
Counted = Callable[..., Elements | None]
COUNTED: dict[NodeType, Counted] = {}
# As far as 32 bits reach, beyond which numbers wrap around.
_MOST = 2**31


@judged(NodeType.SHAPE)
def shape_of(node: Judged, x: Form) -> Form:
    """always, as far as RESHAPE, FILL and the like are given what is made of it"""
    return Form((Size(x.rank),), None, as_elements(list(x.dims)))


@judged(NodeType.RANK)
def rank_of(node: Judged, x: Form) -> Form:
    """always"""
    return Form((), None, as_elements([Size(x.rank)], ()))


@judged(NodeType.RANGE)
def range_(node: Judged, x: Form) -> Form:
    """always: it is the same for all rows"""
    return node.made(None)


@judged(NodeType.FILL)
def fill(node: Judged, value: Form, shape: Form) -> Form:
    """if value is the same for all rows, and one dimension of shape is theirs"""
    node.require_alike(value)
    return _filled(node, shape)


@judged(NodeType.CONSTANT_OF_SHAPE)
def constant_of_shape(node: Judged, shape: Form) -> Form:
    """if one dimension of shape is that of the rows"""
    return _filled(node, shape)


def _filled(node: Judged, shape: Form) -> Form:
    if shape.rows is not None or shape.elements is None:
        node.refuse("shape has a part for each row, so each would make another shape")
    dims = list(shape.elements.flat)
    return node.made(counted_rows(node, dims), dims)


def counts(*types: NodeType) -> Callable[[Counted], Counted]:
    """Declare what operators make of the elements of their operands."""

    def declare(function: Counted) -> Counted:
        COUNTED.update(dict.fromkeys(types, function))
        return function

    return declare


def counted(node: Judged) -> Form | None:
    """The result of a node on integers of which each is followed; None where it isn't."""
    function = COUNTED.get(node.node.type)
    elements = [operand.elements for operand in node.operands]
    if function is None or any(part is None for part in elements) or len(node.outputs) != 1:
        return None
    try:
        result = function(node, *elements)
    except (NnrtError, ValueError, IndexError, OverflowError):
        return None  # What doesn't fit together fails in a run.
    if result is None or result.size > MAX_ELEMENTS or any(abs(size.factor) >= _MOST for size in result.flat):
        return None
    return Form(tuple(map(Size, result.shape)), None, result)


@counts(NodeType.GATHER)
def gather(node: Judged, x: Elements, indices: Elements, axis: Elements) -> Elements | None:
    at, along = _ints(indices), _ints(axis)
    if at is None or along is None or not x.ndim or not x.size:
        return None
    dim = x.shape[along.item()]
    return _array(np.take(x, at, along.item())) if ((-dim <= at) & (at < dim)).all() else None


@counts(NodeType.CONCAT)
def concat(node: Judged, *parts: Elements) -> Elements | None:
    return np.concatenate(parts, node.attrs["axis"])


@counts(NodeType.STACK)
def stack(node: Judged, *parts: Elements) -> Elements | None:
    return np.stack(parts, node.attrs["axis"])


@counts(NodeType.UNSQUEEZE)
def unsqueeze(node: Judged, x: Elements) -> Elements | None:
    return np.expand_dims(x, node.attrs["axis"])


@counts(NodeType.EXPAND_DIMS)
def expand_dims(node: Judged, x: Elements, axis: Elements) -> Elements | None:
    at = _ints(axis)
    return None if at is None else np.expand_dims(x, at.item())


@counts(NodeType.CAST)
def cast(node: Judged, x: Elements, type_: Elements) -> Elements | None:
    return x if node.outputs[0].data_type in INDICES else None


@counts(NodeType.TRANSPOSE)
def transpose(node: Judged, x: Elements, permutation: Elements) -> Elements | None:
    order = _ints(permutation)
    return None if order is None else x.transpose(order.reshape(-1).tolist())


@counts(NodeType.RESHAPE, NodeType.SQUEEZE)
def reshape(node: Judged, x: Elements, *shape: Elements) -> Elements | None:
    wanted = node.outputs[0].shape
    return x.reshape(wanted) if wanted.count(-1) < 2 else None


@counts(NodeType.STRIDED_SLICE)
def strided_slice(node: Judged, x: Elements, begin: Elements, end: Elements, strides: Elements) -> Elements | None:
    numbers = [_ints(vector) for vector in (begin, end, strides)]
    known = [vector.reshape(-1).tolist() for vector in numbers if vector is not None]
    if len(known) < len(numbers):
        return None
    masks = Masks(*(node.attrs[name] for name in Masks._fields))
    cuts = strided_cuts(x.shape, list(zip(*known, strict=True)), masks)
    part = x[tuple(cut.part for cut in cuts if cut.part is not None)]
    is_kept = node.outputs[0].rank == len(cuts)
    return part.reshape([cut.length for cut in cuts if is_kept or not cut.is_shrunk])


@counts(NodeType.REDUCE_FUSION)
def reduce(node: Judged, x: Elements, axis: Elements) -> Elements | None:
    if x.ndim != 1 or node.attrs["mode"] is not ReduceMode.PROD or node.outputs[0].data_type not in INDICES:
        return None
    return as_elements([product(x.tolist())], (1,) if node.attrs["keep_dims"] else ())


@counts(NodeType.EQUAL)
def equal(node: Judged, a: Elements, b: Elements) -> Elements | None:
    pairs = np.broadcast(a, b)
    return _each([_are_equal(*pair) for pair in pairs], pairs.shape)


@counts(NodeType.WHERE)
def where(node: Judged, condition: Elements, a: Elements, b: Elements) -> Elements | None:
    is_true = _ints(condition)
    return None if is_true is None else _array(np.where(is_true != 0, a, b))


@counts(NodeType.MUL_FUSION)
def mul(node: Judged, a: Elements, b: Elements) -> Elements | None:
    return _by_pairs(node, a, b, lambda one, other: one * other)


@counts(NodeType.ADD_FUSION)
def add(node: Judged, a: Elements, b: Elements) -> Elements | None:
    return _by_pairs(node, a, b, lambda one, other: _sum(node, one, other))


@counts(NodeType.SUB_FUSION)
def sub(node: Judged, a: Elements, b: Elements) -> Elements | None:
    return _by_pairs(node, a, b, lambda one, other: _sum(node, one, other * Size(-1)))


@counts(NodeType.DIV_FUSION, NodeType.REAL_DIV)
def div(node: Judged, a: Elements, b: Elements) -> Elements | None:
    return _by_pairs(node, a, b, lambda one, other: _quotient(node, one, other))


def _by_pairs(node: Judged, a: Elements, b: Elements, of: Callable[[Size, Size], Size | None]) -> Elements | None:
    """Numbers computed of pairs, unless an activation follows; of truth values it would be something else."""
    is_plain = node.attrs.get("activation_type", ActivationType.NO_ACTIVATION) is ActivationType.NO_ACTIVATION
    if not is_plain or node.outputs[0].data_type not in INDICES:
        return None
    pairs = np.broadcast(a, b)
    return _each([of(*pair) for pair in pairs], pairs.shape)


def _each(found: list[Size | None], shape: tuple[int, ...]) -> Elements | None:
    """Elements, if all are known."""
    known = [size for size in found if size is not None]
    return as_elements(known, shape) if len(known) == len(found) else None


def _sum(node: Judged, a: Size, b: Size) -> Size | None:
    if 0 in (a.factor, b.factor):
        return b if a.factor == 0 else a
    if a.unknowns == b.unknowns:
        return Size(a.factor + b.factor, a.unknowns) if a.factor + b.factor else Size(0)
    if a.counts_rows or b.counts_rows:
        return None
    return node.unknowns.of("+", *sorted((a, b), key=repr), is_size=a.is_size and b.is_size)


def _are_equal(a: Size, b: Size) -> Size | None:
    """1 or 0, where it is known before a run."""
    if a == b:
        return Size(1)
    is_never = (a.is_size and (b.number or 0) < 0) or (b.is_size and (a.number or 0) < 0)
    return Size(0) if is_never or (a.number is not None and b.number is not None) else None


def _quotient(node: Judged, a: Size, b: Size) -> Size | None:
    exact = a.over(b)
    if exact is not None or a.counts_rows or b.counts_rows or b.factor == 0:
        return exact
    return node.unknowns.of("/", a, b, is_size=a.is_size and b.is_size)


def _ints(elements: Elements) -> Elements | None:
    """Elements of which each is known."""
    found = [size.number for size in elements.flat]
    return None if None in found else np.array(found, np.int64).reshape(elements.shape)


def _array(result: Elements | Size) -> Elements:
    """Of rank 0 numpy gives the element itself."""
    return as_elements([result], ()) if isinstance(result, Size) else result
