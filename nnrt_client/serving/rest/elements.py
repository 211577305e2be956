"""Elements of tensors as JSON."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from nnrt_client.serving.datatypes import BYTES, Array, element_count, object_array, require_dtype
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import Shape, format_shape

# What elements are in Python, by the kind of numpy's type.
_KINDS: dict[str, tuple[set[type], str]] = {
    "b": ({bool}, "true and false"),
    "i": ({int}, "whole numbers"),
    "u": ({int}, "whole numbers"),
    "f": ({int, float}, "numbers"),
    "O": ({str}, "strings"),
}
# Types that JSON has no elements for.
_BINARY_ONLY = ("FP16",)


def from_elements(datatype: str, shape: Shape, data: Any, place: str) -> Array:
    """Return the tensor of a list of elements, which may be flat or nested as the shape says.

    Raises:
        InvalidParameter: The data type is unknown or travels as bytes only, or the elements don't fit.
    """
    if datatype in _BINARY_ONLY:
        raise InvalidParameter(f"{datatype} travels as binary data only", place=place)
    dtype = np.dtype(object) if datatype == BYTES else require_dtype(datatype, place)
    flat = _flat(data, shape, element_count(datatype, shape, place), place)
    types, wanted = _KINDS[dtype.kind]
    if others := set(map(type, flat)) - types:
        found = ", ".join(sorted(other.__name__ for other in others))
        raise InvalidParameter(f"its data has elements of type {found}; {datatype} takes {wanted}", place=place)
    if datatype == BYTES:
        return object_array([_encoded(text, place) for text in flat]).reshape(shape)
    return _numbers(flat, dtype, datatype, place).reshape(shape)


def to_elements(array: Array, datatype: str, place: str) -> list[Any]:
    """Return the elements of a tensor as a flat list.

    Raises:
        InvalidParameter: JSON can't tell them.
    """
    if datatype in _BINARY_ONLY:
        raise InvalidParameter(f"{datatype} travels as binary data only; ask for that", place=place)
    if datatype == BYTES:
        return [_decoded(item, place) for item in array.ravel()]
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidParameter(
            "it has NaN or infinite elements, which JSON can't tell; ask for binary data", place=place
        )
    elements: list[Any] = array.ravel().tolist()
    return elements


def _flat(data: Any, shape: Shape, count: int, place: str) -> Sequence[Any]:
    """Return the elements of a list that is flat or nested as the shape says."""
    if not isinstance(data, list):
        raise InvalidParameter(f"its data is {type(data).__name__}; use a list", place=place)
    flat: list[Any] = data
    if any(type(item) is list for item in flat[:1]):
        for have, dim in enumerate(shape[1:]):
            rows = math.prod(shape[: have + 1])
            if len(flat) != rows or any(type(item) is not list or len(item) != dim for item in flat):
                raise InvalidParameter(f"its data isn't nested as its shape {format_shape(shape)} says", place=place)
            flat = list(chain.from_iterable(flat))
    if len(flat) != count:
        raise InvalidParameter(
            f"it has {len(flat)} elements; its shape {format_shape(shape)} takes {count}", place=place
        )
    return flat


def _numbers(flat: Sequence[Any], dtype: "np.dtype[Any]", datatype: str, place: str) -> Array:
    if dtype.kind in "iu" and flat:
        bounds, least, most = np.iinfo(dtype), min(flat), max(flat)
        if least < bounds.min or most > bounds.max:
            raise InvalidParameter(
                f"its elements are not all from {bounds.min} to {bounds.max}, as {datatype} needs", place=place
            )
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype)
        is_finite = dtype.kind != "f" or np.isfinite(array).all()
    except OverflowError:
        is_finite = False
    if not is_finite:
        raise InvalidParameter(f"it has elements that are too large for {datatype}", place=place)
    return array


def _encoded(text: str, place: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidParameter(f"it has a string that is no Unicode text: {error.reason}", place=place) from error


def _decoded(item: str | bytes, place: str) -> str:
    if isinstance(item, str):
        return item
    try:
        return bytes(item).decode()
    except UnicodeDecodeError as error:
        raise InvalidParameter("it has strings that are no UTF-8; ask for binary data", place=place) from error
