"""Conversion of C's parameters to arguments of `oh_nn`'s functions, and of their results to C.

One Python argument may stand for several parameters of C, such as a pointer and its length. Values that a Python
function returns are written through the pointers of an out-parameter.
"""

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from nnrt_client.c.addresses import addresses
from nnrt_client.c_interface.handles import Handle
from nnrt_client.c_interface.structs import OH_NN_QuantParam, OH_NN_Tensor
from nnrt_hdi.errors import InvalidParameter

CType = type[Any]
# Most elements of an array that is read. No model has so many of anything.
_MOST_ELEMENTS = 1 << 24
_MOST_BYTES = 1 << 47


class Parameter(ABC):
    """Parameter of a C function, or successive parameters for one value, such as a pointer and its length."""

    # Types for ctypes, and declarations in C.
    types: tuple[CType, ...]
    declared: tuple[str, ...]


class In(Parameter):
    """Parameter that becomes an argument of the Python function."""

    @abstractmethod
    def read(self, *raw: Any) -> Any:
        """Return the argument. Raise InvalidParameter if it can't be read."""

    def finish(self, argument: Any, *raw: Any) -> None:
        """Update the program's memory behind the parameter, after the function has returned."""


class Out(Parameter):
    """Out-parameter: pointers through which the library writes a value that the Python function returns."""

    @abstractmethod
    def require(self, *raw: Any) -> None:
        """Raise InvalidParameter unless `write` can use these pointers; called before the Python function."""

    @abstractmethod
    def write(self, value: Any, owner: Handle[Any] | None, *raw: Any) -> None:
        """Write a value through the pointers.

        An array or text to which this writes a pointer lives as long as `owner`, or as the process if that is None.
        """


class Number(In):
    """Number or flag, passed by value."""

    def __init__(self, name: str, type_: CType, c_type: str) -> None:
        self.types, self.declared = (type_,), (f"{c_type} {name}",)

    def read(self, value: Any) -> Any:
        return value


class Object(In):
    """Handle. An address at which no live handle is counts as a null pointer."""

    types = (ctypes.c_void_p,)

    def __init__(self, name: str, c_type: str) -> None:
        self.declared = (f"{c_type} *{name}",)

    def read(self, address: int | None) -> Handle[Any] | None:
        return None if address is None else addresses.handle(address)


class TakenObject(In):
    """Pointer to a handle, which the function destroys and the library sets to null."""

    types = (ctypes.c_void_p,)

    def __init__(self, name: str, c_type: str) -> None:
        self.declared = (f"{c_type} **{name}",)

    def read(self, place: int | None) -> Handle[Any] | None:
        if place is None:
            return None
        address = _pointer_at(place).value
        return None if address is None else addresses.handle(address)

    def finish(self, argument: Any, place: int | None) -> None:
        if argument is not None and place is not None and type(argument).find(argument) is None:
            addresses.remove(argument)
            _pointer_at(place).value = None


class Text(In):
    """Text in UTF-8 that ends with a zero byte."""

    types = (ctypes.c_char_p,)

    def __init__(self, name: str) -> None:
        self.declared = (f"const char *{name}",)

    def read(self, text: bytes | None) -> str | None:
        if text is None:
            return None
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise InvalidParameter(f"{text!r} is no text in UTF-8") from error


class FileName(Text):
    """Name of a file or a directory, in any encoding."""

    def read(self, text: bytes | None) -> str | None:
        return None if text is None else os.fsdecode(text)


class Bytes(In):
    """Pointer to bytes and their number, which become a memoryview without a copy."""

    types = (ctypes.c_void_p, ctypes.c_size_t)

    def __init__(self, name: str, count: str, c_type: str = "const void") -> None:
        self.declared = (f"{c_type} *{name}", f"size_t {count}")

    def read(self, address: int | None, size: int) -> memoryview | None:
        if address is None:
            return None
        if size > _MOST_BYTES:
            raise InvalidParameter(f"the buffer has {size} bytes; give the number that it has")
        return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


class Elements(In):
    """Pointer to an array of numbers, and its length."""

    def __init__(self, name: str, type_: CType, c_type: str, count: str) -> None:
        self.type = type_
        self.types = (ctypes.c_void_p, ctypes.c_size_t)
        self.declared = (f"const {c_type} *{name}", f"size_t {count}")

    def read(self, address: int | None, size: int) -> Sequence[Any] | None:
        if address is None:
            return None
        return _elements(self.type, address, size)


class Indices(In):
    """Pointer to an OH_NN_UInt32Array."""

    types = (ctypes.c_void_p,)

    def __init__(self, name: str) -> None:
        self.declared = (f"const OH_NN_UInt32Array *{name}",)

    def read(self, address: int | None) -> Sequence[int] | None:
        if address is None:
            return None
        array = _UInt32Array.from_address(address)
        if not array.data and not array.size:
            return ()
        return _pair(ctypes.c_uint32, array.data, array.size, "the array")


class LegacyTensor(In):
    """Pointer to an OH_NN_Tensor, the description of a tensor in API 9."""

    types = (ctypes.c_void_p,)

    def __init__(self, name: str) -> None:
        self.declared = (f"const OH_NN_Tensor *{name}",)

    def read(self, address: int | None) -> OH_NN_Tensor | None:
        if address is None:
            return None
        tensor = _Tensor.from_address(address)
        dimensions = (
            _pair(ctypes.c_int32, tensor.dimensions, tensor.dimension_count, "dimensions")
            if tensor.dimensions or tensor.dimension_count
            else None
        )
        return OH_NN_Tensor(tensor.data_type, dimensions, _quant_param(tensor.quant_param), tensor.type)


class Handles(In):
    """Array of NN_Tensor handles, and its length."""

    types = (ctypes.c_void_p, ctypes.c_size_t)

    def __init__(self, name: str, count: str) -> None:
        self.declared = (f"NN_Tensor *{name}[]", f"size_t {count}")

    def read(self, address: int | None, size: int) -> Sequence[Handle[Any] | None] | None:
        if address is None:
            return None
        return [None if one is None else addresses.handle(one) for one in _elements(ctypes.c_void_p, address, size)]


class Function(In):
    """Pointer to a function of the C program, which becomes a Python callable."""

    types = (ctypes.c_void_p,)

    def __init__(self, name: str, c_type: str, prototype: Any, wrap: Callable[[Any], Callable[..., Any]]) -> None:
        """Create the parameter. `wrap` converts a C function to one that Python calls."""
        self.declared = (f"{c_type} {name}",)
        self.prototype = prototype
        self._wrap = wrap

    def read(self, address: int | None) -> Callable[..., Any] | None:
        return None if address is None else self._wrap(self.prototype(address))


class OutNumber(Out):
    """Pointer to a number that the library writes."""

    types = (ctypes.c_void_p,)

    def __init__(self, name: str, type_: CType, c_type: str) -> None:
        self.type = type_
        self._name = name
        self.declared = (f"{c_type} *{name}",)

    def require(self, place: int | None) -> None:
        _require_place(place, self._name)

    def write(self, value: Any, owner: Handle[Any] | None, place: int) -> None:
        self.type.from_address(place).value = value


class OutText(Out):
    """Pointer to a text pointer, which must be null before the call."""

    types = (ctypes.c_void_p,)

    def __init__(self, name: str) -> None:
        self._name = name
        self.declared = (f"const char **{name}",)

    def require(self, place: int | None) -> None:
        _require_empty(place, self._name)

    def write(self, value: str, owner: Handle[Any] | None, place: int) -> None:
        text = addresses.keep(owner, value, ctypes.create_string_buffer(value.encode()))
        _pointer_at(place).value = ctypes.addressof(text)


class OutElements(Out):
    """Pointers to an array pointer, which must be null before the call, and to a length. Empty arrays stay null."""

    types = (ctypes.c_void_p, ctypes.c_void_p)

    def __init__(self, name: str, type_: CType, c_type: str, count: str, count_type: CType, c_count: str) -> None:
        self.type, self.count_type = type_, count_type
        self._names = name, count
        self.declared = (f"{c_type} **{name}", f"{c_count} *{count}")

    def require(self, place: int | None, count_place: int | None) -> None:
        _require_empty(place, self._names[0])
        _require_place(count_place, self._names[1])

    def write(self, value: Sequence[Any], owner: Handle[Any] | None, place: int, count_place: int) -> None:
        _pointer_at(place).value = _kept_array(self.type, value, owner)
        self.count_type.from_address(count_place).value = len(value)


class OutRange(Out):
    """Pointers to two array pointers and to their common length, whose values before the call don't matter."""

    types = (ctypes.c_void_p,) * 3

    def __init__(self, least: str, most: str, count: str) -> None:
        self._names = least, most, count
        self.declared = (f"size_t **{least}", f"size_t **{most}", f"size_t *{count}")

    def require(self, *places: int | None) -> None:
        for place, name in zip(places, self._names, strict=True):
            _require_place(place, name)

    def write(self, value: Any, owner: Handle[Any] | None, *places: int) -> None:
        least, most = value
        for place, array in zip(places, (least, most), strict=False):
            _pointer_at(place).value = _kept_array(ctypes.c_size_t, array, owner)
        ctypes.c_size_t.from_address(places[2]).value = len(least)


class _UInt32Array(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_uint32))


class _QuantParam(ctypes.Structure):
    _fields_ = (
        ("quant_count", ctypes.c_uint32),
        ("num_bits", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("zero_point", ctypes.c_void_p),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data_type", ctypes.c_int),
        ("dimension_count", ctypes.c_uint32),
        ("dimensions", ctypes.c_void_p),
        ("quant_param", ctypes.c_void_p),
        ("type", ctypes.c_int),
    )


def _quant_param(address: int | None) -> OH_NN_QuantParam | None:
    if address is None:
        return None
    given = _QuantParam.from_address(address)
    numbers = given.quant_count
    return OH_NN_QuantParam(
        numBits=_pair(ctypes.c_uint32, given.num_bits, numbers, "numBits"),
        scale=_pair(ctypes.c_double, given.scale, numbers, "scale"),
        zeroPoint=_pair(ctypes.c_int32, given.zero_point, numbers, "zeroPoint"),
    )


def _pair(type_: CType, address: int | None, size: int, what: str) -> Sequence[Any]:
    """Return the elements of an array. Raise InvalidParameter unless it has both data and a size."""
    if address is None or not size:
        raise InvalidParameter(f"{what} has {'no' if address is None else 'a pointer to'} data and size {size}")
    return _elements(type_, address, size)


def _elements(type_: CType, address: int, size: int) -> Sequence[Any]:
    if size > _MOST_ELEMENTS:
        raise InvalidParameter(f"the array has {size} elements; give at most {_MOST_ELEMENTS}")
    elements: Sequence[Any] = (type_ * size).from_address(address)[:]
    return elements


def _kept_array(type_: CType, value: Sequence[Any], owner: Handle[Any] | None) -> int | None:
    if not value:
        return None
    array = addresses.keep(owner, (type_, tuple(value)), (type_ * len(value))(*value))
    return ctypes.addressof(array)


def _pointer_at(place: int) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(place)


def _require_place(place: int | None, name: str) -> None:
    if place is None:
        raise InvalidParameter(f"{name} is a null pointer; give one to where the result goes")


def _require_empty(place: int | None, name: str) -> None:
    _require_place(place, name)
    assert place is not None
    if _pointer_at(place).value is not None:
        raise InvalidParameter(f"*{name} is not null; set it to null before the call")
