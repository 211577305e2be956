"""Packed values: strings, sequences and maps of a program, as bytes.

Tensors have numbers. A program may take tensors of strings, and return also sequences, maps and optional values. Such a
value travels as a tensor of UINT8, which has its packed form. Each number in it is a uint64, little-endian:

    tensor      its rank, its dimensions, and its elements. Strings are numbers, which say where in the text each one
                begins, and where the last one ends; then the text, in UTF-8
    sequence    the number of its values, then these
    map         its keys, then its values: two tensors of one dimension
    optional    1 and the value, or 0 if there is none

Elements and texts end with bytes of 0, so that what follows begins at a multiple of 8.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from typing_extensions import Self

from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import MAX_RANK, NUMPY_DTYPES, UNKNOWN_DIM, Array, Shape, TensorSpec, flat_bytes, format_shape

STRINGS = "tensor(string)"

_NUMBER_BYTES = 8
# The longest name of a type, which bounds how deep types lie in each other.
_LONGEST_NAME = 200
# Element types as ONNX Runtime names them.
_ELEMENTS = {
    {"float32": "float", "float64": "double"}.get(name, name): dtype
    for name, dtype in ((dtype.name, dtype) for dtype in NUMPY_DTYPES.values())
}
_TENSOR = re.compile(r"tensor\((\w+)\)")
_NESTED = re.compile(r"(seq|optional)\((.+)\)")
_MAP = re.compile(r"map\((string|int64),(tensor\(\w+\))\)")


@dataclass(frozen=True, slots=True)
class ValueType:
    """Type of a value.

    `name` is in ONNX Runtime's notation: tensor(string), seq(map(int64,tensor(float))). `shape` has the dimensions of a
    tensor, -1 for those that only the run knows. It is None for other values, and if the rank is unknown.

    Raises InvalidParameter for a type that has no packed form.
    """

    name: str
    shape: Shape | None = None

    def __post_init__(self) -> None:
        _form(self.name)

    def __str__(self) -> str:
        return self.name + ("" if self.shape is None else format_shape(self.shape))

    def pack(self, value: Any) -> Array:
        """Return the packed form of a value.

        Tensors of strings are arrays, or lists, of str or bytes in UTF-8. Sequences are lists, maps are dicts, and None
        is an optional value that is missing.

        Raises:
            InvalidParameter: The value is not of this type.
        """
        pieces: list[bytes] = []
        shape = _form(self.name).pack(value, pieces)
        self.require_shape(shape)
        return np.frombuffer(b"".join(pieces), np.uint8)

    def unpack(self, packed: Array) -> Any:
        """Return the value with this packed form: arrays, which are object arrays of str for strings, lists and dicts.

        Raises:
            InvalidParameter: The bytes are no packed form of a value of this type.
        """
        reader = _Reader(flat_bytes(packed))
        value = _form(self.name).unpack(reader)
        reader.require_end()
        if isinstance(value, np.ndarray):
            self.require_shape(value.shape)
        return value

    def require_shape(self, shape: Shape | None) -> None:
        """Raise InvalidParameter if a tensor can't have this shape. None is the shape of other values."""
        if self.shape is None or shape is None:
            return
        if len(shape) != len(self.shape) or any(
            known not in (UNKNOWN_DIM, dim) for known, dim in zip(self.shape, shape, strict=True)
        ):
            raise InvalidParameter(f"its shape is {format_shape(shape)}; the model takes {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSpec(TensorSpec):
    """Input or output of a program that is a packed value: a tensor of bytes, with the value's type."""

    value: ValueType

    @classmethod
    def of(cls, value: ValueType, name: str) -> Self:
        return cls(DataType.UINT8, (UNKNOWN_DIM,), name=name, value=value)

    def __str__(self) -> str:
        return str(self.value)

    def with_shape(self, shape: Sequence[int]) -> Self:
        return replace(self, shape=tuple(shape))


def value_shape(spec: TensorSpec) -> Shape:
    """Return the shape of a tensor, or of the value that it has packed; () if that has none."""
    return (spec.value.shape or ()) if isinstance(spec, PackedSpec) else spec.shape


def shape_of_strings(packed: Array) -> Shape:
    """Return the shape of a packed tensor of strings. Raise InvalidParameter for bytes that have fewer."""
    reader = _Reader(flat_bytes(packed))
    shape = _read_shape(reader)
    reader.take(_NUMBER_BYTES * (math.prod(shape) + 1))
    return shape


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return whether an array of this dtype may have strings."""
    return dtype.kind in "OUST"


class _Reader:
    """Reader of a packed form, which raises InvalidParameter where that is too short."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return self._data.nbytes - self._at

    def take(self, size_bytes: int) -> memoryview:
        """Return the next bytes, and skip those that fill up the last number."""
        begin, end = self._at, self._at + size_bytes
        if size_bytes > self.left or _padded(end) > self._data.nbytes:
            raise InvalidParameter(
                f"the packed value ends after {self._data.nbytes} bytes; {size_bytes} more are needed from {begin} on"
            )
        self._at = _padded(end)
        return self._data[begin:end]

    def numbers(self, count: int) -> list[int]:
        numbers: list[int] = np.frombuffer(self.take(_NUMBER_BYTES * count), "<u8").tolist()
        return numbers

    def require_end(self) -> None:
        if self.left:
            raise InvalidParameter(f"{self.left} bytes follow the packed value; leave them out")


class _Form(ABC):
    """Packed form of the values of a type."""

    @abstractmethod
    def pack(self, value: Any, pieces: list[bytes]) -> Shape | None:
        """Append the packed form of a value, and return its shape if it is a tensor."""

    @abstractmethod
    def unpack(self, reader: _Reader) -> Any:
        """Return the value that the reader is at."""


class _Tensor(_Form):
    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype

    def pack(self, value: Any, pieces: list[bytes]) -> Shape:
        try:
            array = np.ascontiguousarray(value, self._dtype).reshape(np.shape(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidParameter(f"it is no array of {self._dtype.name}: {error}") from error
        shape: Shape = array.shape
        pieces += (_numbers(len(shape), *shape), _filled(array.tobytes()))
        return shape

    def unpack(self, reader: _Reader) -> Any:
        shape = _read_shape(reader)
        data = reader.take(math.prod(shape) * self._dtype.itemsize)
        if self._dtype.kind == "b":  # The bytes may have any value.
            return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
        return np.frombuffer(data, self._dtype).reshape(shape).copy()


class _Strings(_Form):
    def pack(self, value: Any, pieces: list[bytes]) -> Shape:
        shape, strings = _strings_in(value)
        try:
            whole = "".join(strings)  # Fails if some are bytes.
            encoded = None if whole.isascii() else [text.encode() for text in strings]
            lengths, text = list(map(len, encoded or strings)), whole.encode() if encoded is None else b"".join(encoded)
        except (TypeError, UnicodeEncodeError):
            encoded = [_encoded(at, one) for at, one in enumerate(strings)]
            lengths, text = list(map(len, encoded)), b"".join(encoded)
        bounds = np.zeros(len(lengths) + 1, "<u8")
        np.cumsum(lengths, out=bounds[1:])
        pieces += (_numbers(len(shape), *shape), bounds.tobytes(), _filled(text))
        return shape

    def unpack(self, reader: _Reader) -> Any:
        shape = _read_shape(reader)
        count = math.prod(shape)
        bounds = np.frombuffer(reader.take(_NUMBER_BYTES * (count + 1)), "<u8")
        if bounds[0] or (bounds[1:] < bounds[:-1]).any():
            raise InvalidParameter("a string ends before it begins, or the first one doesn't begin at 0")
        text = bytes(reader.take(int(bounds[-1])))
        parts = pairwise(bounds.tolist())
        strings = np.empty(count, object)
        try:
            if text.isascii():
                whole = text.decode()
                strings[:] = [whole[begin:end] for begin, end in parts]
            else:
                strings[:] = [text[begin:end].decode() for begin, end in parts]
        except UnicodeDecodeError as error:
            raise InvalidParameter(f"a string is not in UTF-8: {error.reason} in {error.object[:32]!r}") from error
        return strings.reshape(shape)


class _Sequence(_Form):
    def __init__(self, each: _Form) -> None:
        self._each = each

    def pack(self, value: Any, pieces: list[bytes]) -> None:
        if not isinstance(value, list | tuple):
            raise InvalidParameter(f"it is {type(value).__name__}; give a list")
        pieces.append(_numbers(len(value)))
        for one in value:
            self._each.pack(one, pieces)

    def unpack(self, reader: _Reader) -> Any:
        (count,) = reader.numbers(1)
        if count > reader.left // _NUMBER_BYTES:  # No value has less than one number.
            raise InvalidParameter(f"the sequence has {count} values in {reader.left} bytes")
        return [self._each.unpack(reader) for _ in range(count)]


class _Map(_Form):
    def __init__(self, keys: _Form, values: _Form) -> None:
        self._keys = keys
        self._values = values

    def pack(self, value: Any, pieces: list[bytes]) -> None:
        if not isinstance(value, dict):
            raise InvalidParameter(f"it is {type(value).__name__}; give a dict")
        self._keys.pack(list(value), pieces)
        self._values.pack(list(value.values()), pieces)

    def unpack(self, reader: _Reader) -> Any:
        keys, values = self._keys.unpack(reader), self._values.unpack(reader)
        if keys.ndim != 1 or keys.shape != values.shape:
            raise InvalidParameter(f"the map has keys of the shape {keys.shape}, and values of {values.shape}")
        return dict(zip(keys.tolist(), values.tolist(), strict=True))


class _Optional(_Form):
    def __init__(self, present: _Form) -> None:
        self._present = present

    def pack(self, value: Any, pieces: list[bytes]) -> None:
        pieces.append(_numbers(value is not None))
        if value is not None:
            self._present.pack(value, pieces)

    def unpack(self, reader: _Reader) -> Any:
        (is_present,) = reader.numbers(1)
        if is_present > 1:
            raise InvalidParameter(f"an optional value begins with {is_present}; use 0 or 1")
        return self._present.unpack(reader) if is_present else None


@lru_cache(maxsize=256)
def _form(name: str) -> _Form:
    """Return the packed form of a type. Raise InvalidParameter if it has none."""
    if len(name) <= _LONGEST_NAME:
        if name == STRINGS:
            return _Strings()
        if (found := _TENSOR.fullmatch(name)) and found[1] in _ELEMENTS:
            return _Tensor(_ELEMENTS[found[1]])
        if found := _NESTED.fullmatch(name):
            return (_Sequence if found[1] == "seq" else _Optional)(_form(found[2]))
        if found := _MAP.fullmatch(name):
            return _Map(_form(f"tensor({found[1]})"), _form(found[2]))
    raise InvalidParameter(f"values of the type {name[:_LONGEST_NAME]} can't be packed")


def _read_shape(reader: _Reader) -> Shape:
    (rank,) = reader.numbers(1)
    if rank > MAX_RANK:
        raise InvalidParameter(f"the packed tensor has {rank} dimensions; use at most {MAX_RANK}")
    return TensorSpec(DataType.UINT64, tuple(reader.numbers(rank))).shape


def _strings_in(value: Any) -> tuple[Shape, list[Any]]:
    """Return the shape and the elements of an array or a list of strings."""
    try:
        # A list becomes an array of objects, because the strings of numpy's own dtype end before zeros.
        array = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value, object)
    except ValueError as error:
        raise InvalidParameter(f"it is no array of strings: {error}") from error
    if not is_text(array.dtype):
        raise InvalidParameter(f"it is {array.dtype.name}{format_shape(array.shape)}; give strings")
    return array.shape, array.ravel().tolist()


def _encoded(at: int, string: Any) -> bytes:
    """Return one string in UTF-8. Raise InvalidParameter if it isn't one."""
    try:
        if isinstance(string, str):
            return string.encode()
        if isinstance(string, bytes):
            string.decode()
            return bytes(string)
    except UnicodeError as error:
        raise InvalidParameter(f"element {at}, {string[:32]!r}, is no text in UTF-8: {error.args[-1]}") from error
    raise InvalidParameter(f"element {at} is {type(string).__name__}; give str, or bytes in UTF-8")


def _numbers(*numbers: int) -> bytes:
    return np.array(numbers, "<u8").tobytes()


def _filled(data: bytes) -> bytes:
    return data + bytes(_padded(len(data)) - len(data))


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _NUMBER_BYTES) * _NUMBER_BYTES
