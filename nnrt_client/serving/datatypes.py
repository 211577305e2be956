"""Data types of the protocol, and tensors as its bytes."""

import json
import math
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import NUMPY_DTYPES, Shape, flat_bytes, format_shape

Array = NDArray[Any]

BYTES = "BYTES"
# By the names that data types have in both interfaces of NNRt.
_NAMES = {
    "BOOL": "BOOL",
    "INT8": "INT8",
    "INT16": "INT16",
    "INT32": "INT32",
    "INT64": "INT64",
    "UINT8": "UINT8",
    "UINT16": "UINT16",
    "UINT32": "UINT32",
    "UINT64": "UINT64",
    "FLOAT16": "FP16",
    "FLOAT32": "FP32",
    "FLOAT64": "FP64",
}
DTYPES: dict[str, np.dtype[Any]] = {name: NUMPY_DTYPES[DataType[known]] for known, name in _NAMES.items()}
DATATYPES = (*DTYPES, BYTES)
_MOST_DIMS, _MOST_ELEMENTS = 32, 1 << 48
# Each string is an object of Python, and takes much more time and memory than its bytes.
_MOST_STRINGS = 1 << 20
_LENGTH = struct.Struct("<I")


def datatype_of(data_type: IntEnum) -> str:
    """Return the protocol's name of a data type, which may be one of either interface."""
    return _NAMES[data_type.name]


def element_count(datatype: str, shape: Sequence[int], place: str) -> int:
    """Return the number of elements of a shape. Raises InvalidParameter for negative dimensions, and for too many."""
    if len(shape) > _MOST_DIMS:
        raise InvalidParameter(f"there are {len(shape)} dimensions; use at most {_MOST_DIMS}", place=place)
    if any(dim < 0 for dim in shape):
        raise InvalidParameter(f"the shape is {list(shape)}; dimensions are 0 or more", place=place)
    # NumPy takes no shape that would be too large without its zeros, either.
    most = _MOST_STRINGS if datatype == BYTES else _MOST_ELEMENTS
    if math.prod(max(dim, 1) for dim in shape) > most:
        raise InvalidParameter(
            f"the shape is {format_shape(tuple(shape))}; use at most {most} elements of {datatype}", place=place
        )
    return math.prod(shape)


def from_bytes(datatype: str, shape: Shape, data: Buffer, place: str) -> Array:
    """Return a read-only array over the bytes of a tensor; strings are copied.

    Raises:
        InvalidParameter: The data type is unknown, or there are too many or too few bytes.
    """
    count, view = element_count(datatype, shape, place), memoryview(data)
    if datatype == BYTES:
        return strings(view, count, place).reshape(shape)
    dtype = require_dtype(datatype, place)
    if view.nbytes != count * dtype.itemsize:
        raise InvalidParameter(
            f"it has {view.nbytes} bytes; {datatype}{format_shape(shape)} takes {count * dtype.itemsize}", place=place
        )
    if dtype == np.bool_ and np.frombuffer(view, np.uint8).max(initial=0) > 1:
        raise InvalidParameter("it has bytes other than 0 and 1; BOOL takes those", place=place)
    return np.frombuffer(view, dtype).reshape(shape)


def require_dtype(datatype: str, place: str) -> np.dtype[Any]:
    """Return numpy's type for a data type of fixed size. Raises InvalidParameter for an unknown one."""
    try:
        return DTYPES[datatype]
    except KeyError:
        raise InvalidParameter(
            f"the datatype is {datatype!r}; use one of {', '.join(DATATYPES)}", place=place
        ) from None


def strings(view: memoryview, count: int, place: str) -> Array:
    """Return the strings of a tensor, each with its length in 4 bytes in front, as `bytes` in an array of objects.

    Raises:
        InvalidParameter: There are not exactly `count`, or one passes the end.
    """
    found: list[bytes] = []
    at, size = 0, view.nbytes
    while at < size:
        end = at + _LENGTH.size
        if end <= size:
            begin, end = end, end + _LENGTH.unpack_from(view, at)[0]
        if end > size or len(found) == count:
            raise InvalidParameter(
                f"its bytes are no {count} strings with a length of 4 bytes in front; look at byte {at}", place=place
            )
        found.append(bytes(view[begin:end]))
        at = end
    if len(found) != count:
        raise InvalidParameter(f"it has {len(found)} strings; its shape takes {count}", place=place)
    return object_array(found)


def object_array(items: Sequence[Any]) -> Array:
    """Return an array of objects with one dimension."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def texts(value: Any) -> Array:
    """Return a value that the protocol has no type for as strings of JSON.

    A sequence becomes a string for each of its values, a map and an optional value one string. Tensors are lists in it.
    """
    items = value if isinstance(value, list) else [value]
    return object_array([json.dumps(_plain(item), ensure_ascii=False) for item in items])


def _plain(value: Any) -> Any:
    """Return a value as `json` takes it. Keys become strings."""
    match value:
        case np.ndarray() | np.generic():
            return value.tolist()
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


def to_bytes(array: Array) -> Buffer:
    """Return the bytes of a tensor: of a contiguous array its own memory, of strings as `strings` takes them."""
    if array.dtype.kind == "O":
        parts: list[bytes] = []
        for item in array.ravel():
            text = item.encode() if isinstance(item, str) else bytes(item)
            parts += (_LENGTH.pack(len(text)), text)
        return b"".join(parts)
    return flat_bytes(np.ascontiguousarray(array))
