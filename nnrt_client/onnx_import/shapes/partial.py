"""Shape arithmetic: operators on arrays of dimensions, some of which are known only in a run.

Each function is an ONNX operator on arrays of numbers and `Dim`s, declared as in
`nnrt_client.onnx_import.operators.operator`. It returns None if too little is known.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from onnx import TensorProto

from nnrt_client.onnx_import.shapes.dims import (
    MAX_ELEMENTS,
    Dim,
    Dims,
    Elements,
    Number,
    elements,
    equal,
    is_less,
    new_dim,
    product,
)
from nnrt_client.onnx_import.signature import bind
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.ops.signature import Signature

Arithmetic = Callable[..., Elements | None]
ARITHMETIC: dict[str, Signature] = {}
_LARGEST = 2**62
# Operators that read the dimensions of their input, not its elements.
_SHAPE_READERS = ("Shape", "Size")
_TRUTHS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
# Integer types that hold every dimension.
_CAST = {TensorProto.INT32: np.int32, TensorProto.INT64: np.int64}


class Known(Protocol):
    """Value of the graph, as far as it is known before a run."""

    dtype: np.dtype[np.generic]
    dims: Dims

    @property
    def elements(self) -> Elements | None: ...


def arithmetic(name: str) -> Callable[[Arithmetic], Arithmetic]:
    def declare(function: Arithmetic) -> Arithmetic:
        ARITHMETIC[name] = Signature.of(function)
        return function

    return declare


@arithmetic("Shape")
def shape(dims: Elements, *, start: int = 0, end: int | None = None) -> Elements | None:
    return dims[start:end]


@arithmetic("Size")
def size(dims: Elements) -> Elements | None:
    return elements(product(dims.tolist()))


@arithmetic("Gather")
def gather(data: Elements, indices: Elements, *, axis: int = 0) -> Elements | None:
    if not data.ndim or _has_dims(indices):
        return None
    return _as_array(np.take(data, indices.astype(np.int64), axis))


@arithmetic("Concat")
def concat(*parts: Elements, axis: int) -> Elements | None:
    return np.concatenate(parts, axis)


@arithmetic("Slice")
def slice_(
    data: Elements,
    starts: Elements | None = None,
    ends: Elements | None = None,
    axes: Elements | None = None,
    steps: Elements | None = None,
) -> Elements | None:
    if (
        starts is None
        or ends is None
        or any(part is not None and _has_dims(part) for part in (starts, ends, axes, steps))
    ):
        return None
    count = len(starts)
    along = range(count) if axes is None else axes.tolist()
    by = [1] * count if steps is None else steps.tolist()
    cuts = [slice(None)] * data.ndim
    for axis, start, end, step in zip(along, starts.tolist(), ends.tolist(), by, strict=True):
        # With a negative step, an end before the first element means: down to the first element.
        cuts[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
    return data[tuple(cuts)]


@arithmetic("Unsqueeze")
def unsqueeze(data: Elements, given: Elements | None = None, *, axes: tuple[int, ...] = ()) -> Elements | None:
    return np.expand_dims(data, tuple(axes if given is None else given.tolist()))


@arithmetic("Squeeze")
def squeeze(data: Elements, given: Elements | None = None, *, axes: tuple[int, ...] = ()) -> Elements | None:
    named = tuple(axes if given is None else given.tolist())
    return _as_array(np.squeeze(data, named or None))


@arithmetic("Reshape")
def reshape(data: Elements, shape: Elements, *, allowzero: int = 0) -> Elements | None:
    return None if _has_dims(shape) or 0 in shape.tolist() else data.reshape(shape.tolist())


@arithmetic("Cast")
def cast(data: Elements, *, to: int, saturate: int = 1) -> Elements | None:
    return data if to in _CAST else None


@arithmetic("Identity")
def identity(data: Elements) -> Elements | None:
    return data


@arithmetic("Add")
def add(a: Elements, b: Elements) -> Elements | None:
    return _as_array(a + b)


@arithmetic("Sub")
def sub(a: Elements, b: Elements) -> Elements | None:
    return _as_array(a - b)


@arithmetic("Mul")
def mul(a: Elements, b: Elements) -> Elements | None:
    return _as_array(a * b)


@arithmetic("Div")
def div(a: Elements, b: Elements) -> Elements | None:
    """Divide numbers that aren't negative: for these, Python's division rounds as ONNX's does, toward zero."""
    numbers = [value for part in (a, b) for value in part.reshape(-1) if isinstance(value, int)]
    if any(number < 0 for number in numbers) or 0 in b.reshape(-1).tolist():
        return None
    return _as_array(a // b)


@arithmetic("Equal")
def compare(a: Elements, b: Elements) -> Elements | None:
    return _compare(a, b, equal)


@arithmetic("Less")
def less(a: Elements, b: Elements) -> Elements | None:
    return _compare(a, b, is_less)


@arithmetic("LessOrEqual")
def less_or_equal(a: Elements, b: Elements) -> Elements | None:
    return _negate(_compare(b, a, is_less))


@arithmetic("Greater")
def greater(a: Elements, b: Elements) -> Elements | None:
    return less(b, a)


@arithmetic("GreaterOrEqual")
def greater_or_equal(a: Elements, b: Elements) -> Elements | None:
    return less_or_equal(b, a)


@arithmetic("Where")
def where(condition: Elements, a: Elements, b: Elements) -> Elements | None:
    return None if _has_dims(condition) else _as_array(np.where(condition.astype(bool), a, b))


@arithmetic("ReduceProd")
def reduce_prod(
    data: Elements,
    given: Elements | None = None,
    *,
    axes: tuple[int, ...] = (),
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Elements | None:
    if data.ndim != 1:
        return None
    return _as_array(np.prod(data, keepdims=bool(keepdims)))


def compute(name: str, given: Sequence[Known | None], attributes: Mapping[str, Any]) -> Elements | None:
    """Return the result of a node as far as it is known before a run, or None if nothing is known."""
    signature = ARITHMETIC.get(name)
    if signature is None or not given:
        return None
    if name in _SHAPE_READERS:
        inputs: list[Elements | None] = [elements(value.dims) if value else None for value in given]
    else:
        inputs = [value.elements if value else None for value in given]
    if name == "Concat" and any(numbers is not None for numbers in inputs):
        inputs = [_unknown(value) if numbers is None else numbers for numbers, value in zip(inputs, given, strict=True)]
    if any(numbers is None and value is not None for numbers, value in zip(inputs, given, strict=True)):
        return None
    try:
        result = signature.function(*inputs, **bind(signature, inputs, attributes))
    except (NnrtError, ValueError, IndexError, TypeError, OverflowError):
        # The operator's own function reports what is wrong.
        return None
    if result is None or result.size > MAX_ELEMENTS:
        return None
    # ONNX would wrap around here. No dimension is that large.
    is_sane = all(abs(value) < _LARGEST for value in result.reshape(-1) if isinstance(value, int))
    return result if is_sane else None


def result_dtype(name: str, given: Sequence[Known | None], attributes: Mapping[str, Any]) -> np.dtype[np.generic]:
    """Return the data type of the result of a node for which `compute` returned numbers."""
    if name in _TRUTHS:
        return np.dtype(np.bool_)
    if name in _SHAPE_READERS:
        return np.dtype(np.int64)
    if name == "Cast":
        return np.dtype(_CAST[attributes["to"]])
    value = given[1 if name == "Where" else 0]
    assert value is not None
    return value.dtype


def _unknown(value: Known | None) -> Elements | None:
    """Return new unknown numbers for a short integer vector that a run computes, or None for another value."""
    if value is None or value.dtype.kind != "i" or len(value.dims) != 1 or not isinstance(value.dims[0], int):
        return None
    return elements([new_dim(is_size=False) for _ in range(min(value.dims[0], MAX_ELEMENTS + 1))])


def _compare(a: Elements, b: Elements, holds: Callable[[Number, Number], bool | None]) -> Elements | None:
    """Return for each pair whether `holds` is true, or None if that is known only in a run for any pair."""
    pairs = np.broadcast(a, b)
    found = [holds(*pair) for pair in pairs]
    return None if None in found else elements([bool(one) for one in found]).reshape(pairs.shape)


def _negate(truths: Elements | None) -> Elements | None:
    return None if truths is None else _as_array(np.logical_not(truths.astype(bool)).astype(object))


def _has_dims(values: Elements) -> bool:
    return any(isinstance(value, Dim) for value in values.reshape(-1))


def _as_array(result: Any) -> Elements:
    """Return a result as an array. At rank 0 numpy returns the element itself."""
    return result if isinstance(result, np.ndarray) else elements(result)
