"""Slices, repetitions and indices of any shape, against Python's slices, TensorFlow Lite and ONNX Runtime."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from part import examples

from nnrt_hdi.enums import Format, NodeType
from nnrt_hdi.tensor import data_type_of

from .oracles import expected
from .single_node import AnyArray, compute, spec
from .tflite import Tensor, run_tflite
from .tolerances import require_close

Record = Callable[[str, str, str, float], None]
Case = tuple[AnyArray, tuple[Any, ...]]

pytestmark = pytest.mark.slow

geometries = settings(
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
positions = st.one_of(st.none(), st.integers(-6, 6))
# Names of the masks, here and in TensorFlow Lite.
MASKS = {
    "begin_mask": "beginMask",
    "end_mask": "endMask",
    "ellipsis_mask": "ellipsisMask",
    "new_axis_mask": "newAxisMask",
    "shrink_axis_mask": "shrinkAxisMask",
}
strides = st.sampled_from([None, 1, 2, 3, -1, -2, -3])


def _numbered(shape: tuple[int, ...]) -> AnyArray:
    """Return an array whose elements all differ."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _part(draw: st.DrawFn, size: int) -> slice | int:
    """Draw an index of one dimension: one element, or a slice."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.integers(-size, size - 1))
    return slice(draw(positions), draw(positions), draw(strides))


@st.composite
def indexed(draw: st.DrawFn) -> Case:
    """Draw an array and a Python index: slices, integers, None and at most one ellipsis."""
    x = _numbered(draw(shapes))
    index: list[Any] = [_part(draw, size) for size in x.shape]
    if draw(st.booleans()):
        first, last = sorted(draw(st.tuples(*[st.integers(0, x.ndim)] * 2)))
        index[first:last] = [...]
    for _ in range(draw(st.integers(0, 5 - x.ndim))):
        index.insert(draw(st.integers(0, len(index))), None)
    while index and index[-1] == slice(None):  # dimensions at the end need no entry
        index.pop()
    return x, tuple(index)


def _entries(index: tuple[Any, ...]) -> tuple[list[AnyArray], dict[str, int]]:
    """Return begin, end, strides and the masks that are equivalent to a Python index."""
    masks, columns = dict.fromkeys(MASKS, 0), np.ones((3, len(index)), np.int32)
    for number, part in enumerate(index):
        bit = 1 << number
        if part is None or part is ...:
            masks["new_axis_mask" if part is None else "ellipsis_mask"] |= bit
        elif isinstance(part, int):
            masks["shrink_axis_mask"] |= bit
            columns[:2, number] = part, part + 1
        else:
            masks["begin_mask"] |= bit if part.start is None else 0
            masks["end_mask"] |= bit if part.stop is None else 0
            columns[:, number] = part.start or 0, part.stop or 0, part.step or 1
    return [*columns], masks


@geometries
@given(case=indexed())
def test_strided_slice_is_an_index_of_python(case: Case, record_error: Record) -> None:
    x, index = case
    entries, masks = _entries(index)
    actual = compute(NodeType.STRIDED_SLICE, [x, *entries], masks)
    record_error("STRIDED_SLICE *", "float32", "python", require_close(actual, x[index]))


@geometries
@given(case=indexed())
def test_strided_slice_is_that_of_tensorflow_lite(case: Case, record_error: Record) -> None:
    x, index = case
    assume(x[index].size)  # LiteRT has results without elements, but does not hand them out
    # In LiteRT an ellipsis covers at least one dimension; in TensorFlow, as here, it may cover none.
    assume(... not in index or sum(part is not None for part in index) <= x.ndim)
    entries, masks = _entries(index)
    actual = compute(NodeType.STRIDED_SLICE, [x, *entries], masks)
    operands = [Tensor(spec(array.shape, data_type_of(array.dtype)), array) for array in (x, *entries)]
    options = {MASKS[name]: bits for name, bits in masks.items()}
    output = spec(actual.shape)
    wanted = run_tflite("STRIDED_SLICE", operands, output, options_of="StridedSliceOptions", **options)
    record_error("STRIDED_SLICE *", "float32", "tensorflow lite", require_close(actual, wanted))


def _agrees(node_type: NodeType, arrays: list[AnyArray], attrs: dict[str, Any], record_error: Record) -> None:
    (wanted,), oracle = expected(node_type, arrays, attrs, Format.NONE)
    record_error(f"{node_type.name} *", "float32", oracle, require_close(compute(node_type, arrays, attrs), wanted))


@geometries
@given(shape=shapes, data=st.data())
def test_slice(shape: tuple[int, ...], data: st.DataObject, record_error: Record) -> None:
    axes = data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(1, len(shape)))]
    begin = [data.draw(st.integers(0, shape[axis])) for axis in axes]
    size = [data.draw(st.integers(0, shape[axis] - start)) for axis, start in zip(axes, begin, strict=True)]
    named = tuple(axis - len(shape) * data.draw(st.integers(0, 1)) for axis in axes)
    arrays = [_numbered(shape), np.array(begin), np.array(size)]
    _agrees(NodeType.SLICE_FUSION, arrays, {"axes": named}, record_error)


@geometries
@given(shape=shapes, data=st.data())
def test_tile(shape: tuple[int, ...], data: st.DataObject, record_error: Record) -> None:
    multiples = st.integers(0, 3)
    if data.draw(st.booleans()):
        dims = data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(1, len(shape)))]
        counts = [data.draw(multiples) for _ in dims]
    else:
        dims, counts = [], data.draw(st.lists(multiples, min_size=len(shape), max_size=5))
    _agrees(NodeType.TILE_FUSION, [_numbered(shape), np.array(counts)], {"dims": tuple(dims)}, record_error)


@geometries
@given(shape=shapes, places=st.lists(st.integers(0, 3), max_size=3), seed=st.integers(0, 99), data=st.data())
def test_gather(
    shape: tuple[int, ...], places: list[int], seed: int, data: st.DataObject, record_error: Record
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    indices = np.random.default_rng(seed).integers(0, shape[axis], places)
    _agrees(NodeType.GATHER, [_numbered(shape), indices, np.array([axis])], {}, record_error)


@geometries
@given(
    shape=shapes, places=st.lists(st.integers(1, 3), min_size=1, max_size=3), seed=st.integers(0, 99), data=st.data()
)
def test_gather_nd_and_scatter_nd(
    shape: tuple[int, ...], places: list[int], seed: int, data: st.DataObject, record_error: Record
) -> None:
    depth, random = data.draw(st.integers(1, len(shape))), np.random.default_rng(seed)
    indices = np.stack([random.integers(0, size, places) for size in shape[:depth]], axis=-1)
    _agrees(NodeType.GATHER_ND, [_numbered(shape), indices], {}, record_error)
    updates = _numbered((*places, *shape[depth:]))
    _agrees(NodeType.SCATTER_ND, [indices, updates, np.array(shape)], {}, record_error)


def test_shrunk_dimension_stays_where_the_output_is_declared_with_it() -> None:
    """NNRt's documentation and models disagree about it; the number of elements is the same."""
    x, entries = _numbered((2, 3)), [np.array([1, 0]), np.array([0, 3]), np.array([1, 1])]
    attrs = {"shrink_axis_mask": 1}
    np.testing.assert_array_equal(compute(NodeType.STRIDED_SLICE, [x, *entries], attrs), [3, 4, 5])
    declared = (spec((1, 3)),)
    np.testing.assert_array_equal(compute(NodeType.STRIDED_SLICE, [x, *entries], attrs, declared), [[3, 4, 5]])
