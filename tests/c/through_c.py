"""Plugin `pytest -p through_c`: the tests call the C library through `nnrt_client.oh_nn`.

The plugin replaces each function of `nnrt_client.oh_nn` by one that calls the C function of that name, so that every
case of tests/oh_nn also tests the library. Handles stay Python objects, and C gets their addresses. A test skips if it
passes a value that no C program can pass, such as a text for a number.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from nnrt_client import oh_nn
from nnrt_client.c import LIBRARY
from nnrt_client.c.addresses import addresses
from nnrt_client.c.functions import SIGNATURES, Signature
from nnrt_client.c.parameters import (
    Bytes,
    Elements,
    Function,
    Handles,
    In,
    Indices,
    LegacyTensor,
    Number,
    Object,
    OutElements,
    OutNumber,
    OutRange,
    OutText,
    Parameter,
    TakenObject,
    Text,
)
from nnrt_client.c_interface.handles import Handle, OH_NN_Memory

Raw = list[Any]
# Addresses of handles by their Python ids, also of destroyed handles; and user data by the number that C passes on.
_known: dict[int, int] = {}
_user_data: dict[int, Any] = {}
# Lists of tensors by their handles: a callback gets the list that its run got.
_arrays: dict[tuple[int | None, ...], Any] = {}
# Callbacks and buffers that C may use until the process ends.
_functions: list[Any] = []
_buffers: list[Any] = []


class NotInC(Exception):
    """Raised for a value that no C program can pass."""


class UInt32Array(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_uint32))


class QuantParam(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_uint32),
        ("bits", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("zero_point", ctypes.c_void_p),
    )


class LegacyStruct(ctypes.Structure):
    _fields_ = (
        ("data_type", ctypes.c_int),
        ("count", ctypes.c_uint32),
        ("dimensions", ctypes.c_void_p),
        ("quant", ctypes.c_void_p),
        ("type", ctypes.c_int),
    )


def address_of(handle: Any) -> int | None:
    if handle is None:
        return None
    if not isinstance(handle, Handle):
        return 0x10  # An invalid handle.
    if type(handle).find(handle) is not None:
        _known[id(handle)] = addresses.get(handle)
    return _known.get(id(handle), 0x10)


def array(type_: Any, values: Any, kept: Raw) -> tuple[int | None, int]:
    """Return the address of an array of C values, and its length."""
    if values is None:
        return None, 0
    try:
        made = (type_ * len(values))(*values)
    except Exception as error:
        raise NotInC from error
    kept.append(made)
    return ctypes.addressof(made), len(values)


def buffer(given: Any, kept: Raw) -> tuple[int | None, int]:
    if given is None:
        return None, 0
    try:
        view = np.frombuffer(given, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise NotInC from error
    kept.append(view)
    return view.ctypes.data, view.size


def indices(given: Any, kept: Raw) -> Any:
    if isinstance(given, oh_nn.OH_NN_UInt32Array):
        given = given.data or ()
    elif given is None:
        return None
    struct = UInt32Array(*array(ctypes.c_uint32, given, kept))
    if not len(given):
        struct.data = None
    kept.append(struct)
    return ctypes.addressof(struct)


def legacy(given: Any, kept: Raw) -> Any:
    if given is None:
        return None
    if not isinstance(given, oh_nn.OH_NN_Tensor):
        raise NotInC
    quant = given.quantParam
    quant_struct = None
    if quant is not None:
        parts = [
            array(t, v, kept)
            for t, v in zip(
                (ctypes.c_uint32, ctypes.c_double, ctypes.c_int32),
                (quant.numBits, quant.scale, quant.zeroPoint),
                strict=True,
            )
        ]
        if len({length for place, length in parts if place is not None}) > 1:
            raise NotInC
        count = max(length for _, length in parts)
        quant_struct = QuantParam(count, *(place for place, _ in parts))
        kept.append(quant_struct)
    place, count = array(ctypes.c_int32, given.dimensions or None, kept)
    struct = LegacyStruct(given.dataType, count, place, quant_struct and ctypes.addressof(quant_struct), given.type)
    kept.append(struct)
    return ctypes.addressof(struct)


def callback(parameter: Function, given: Any) -> Any:
    if given is None:
        return None
    if not callable(given):
        raise NotInC

    def on_run_done(data: int, code: int, outputs: int, count: int) -> None:
        handles = tuple((ctypes.c_void_p * count).from_address(outputs)[:]) if count else ()
        given(_user_data.get(data), oh_nn.OH_NN_ReturnCode(code), _arrays.get(handles))

    def on_service_died(data: int) -> None:
        given(_user_data.get(data))

    made = parameter.prototype(on_run_done if "RunDone" in parameter.declared[0] else on_service_died)
    _functions.append(made)
    return ctypes.cast(made, ctypes.c_void_p).value


def given_to(parameter: In, given: Any, kept: Raw) -> Raw:
    """Return the C arguments for one Python argument."""
    if isinstance(parameter, Number):
        if parameter.declared[0].startswith("void *"):
            if given is None:
                return [None]
            _user_data[id(given)] = given
            return [id(given)]
        try:
            made = parameter.types[0](given)
        except (TypeError, ValueError) as error:
            raise NotInC from error
        if made.value != given:
            raise NotInC
        return [made]
    if isinstance(parameter, Object):
        return [address_of(given)]
    if isinstance(parameter, TakenObject):
        place = ctypes.c_void_p(address_of(given))
        kept.append(place)
        return [ctypes.addressof(place)]
    if isinstance(parameter, Text):
        if given is None:
            return [None]
        text = str(given) if hasattr(given, "__fspath__") else given
        if not isinstance(text, str) or "\0" in text:
            raise NotInC
        try:
            return [text.encode()]
        except UnicodeEncodeError as error:
            raise NotInC from error
    if isinstance(parameter, Bytes):
        return list(buffer(given, _buffers))  # Some are read or written by later calls.
    if isinstance(parameter, Elements):
        return list(array(parameter.type, given, kept))
    if isinstance(parameter, Indices):
        return [indices(given, kept)]
    if isinstance(parameter, LegacyTensor):
        return [legacy(given, kept)]
    if isinstance(parameter, Handles):
        if given is None:
            return [None, 0]
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise NotInC
        places = [address_of(one) for one in given]
        _arrays[tuple(places)] = given
        return list(array(ctypes.c_void_p, places, kept))
    assert isinstance(parameter, Function)
    return [callback(parameter, given)]


def read(parameter: Parameter, places: Raw, code: Any) -> Raw:
    """Return the values that the C function has written to its output parameters."""
    if isinstance(parameter, OutNumber):
        return [places[0].value]
    if isinstance(parameter, OutText):
        address = places[0].value
        return [None if address is None else ctypes.string_at(address).decode()]
    if isinstance(parameter, OutElements):
        address, length = places[0].value, places[1].value
        if code is not oh_nn.OH_NN_SUCCESS:
            return [() if parameter.declared[0].startswith("const size_t") else None]
        return [() if address is None else tuple((parameter.type * length).from_address(address))]
    assert isinstance(parameter, OutRange)
    if code is not oh_nn.OH_NN_SUCCESS:
        return [None, None]
    length = places[2].value
    return [tuple((ctypes.c_size_t * length).from_address(place.value)) for place in places[:2]]


def written_through(parameter: Parameter) -> Raw:
    if isinstance(parameter, OutNumber):
        return [parameter.type(0)]
    if isinstance(parameter, OutElements):
        return [ctypes.c_void_p(), parameter.count_type(0)]
    return [ctypes.c_void_p() for _ in range(len(parameter.types) - isinstance(parameter, OutRange))] + (
        [ctypes.c_size_t(0)] if isinstance(parameter, OutRange) else []
    )


def through(library: ctypes.CDLL, signature: Signature) -> Callable[..., Any]:
    call = getattr(library, signature.name)
    call.argtypes = signature.types
    call.restype = {"void": None, "OH_NN_ReturnCode": ctypes.c_int}.get(signature.returns, ctypes.c_void_p)
    python = signature.python

    def function(*arguments: Any) -> Any:
        kept: Raw = []
        raw: Raw = []
        left = list(arguments)
        out = None
        places: Raw = []
        try:
            for parameter in signature.parameters:
                if isinstance(parameter, In):
                    raw += given_to(parameter, left.pop(0), kept)
                else:
                    out, places = parameter, written_through(parameter)
                    raw += [ctypes.addressof(place) for place in places]
        except NotInC:
            pytest.skip("no C program can say this")
        result = call(*raw)
        if signature.returns == "void":
            return None
        if signature.returns == "OH_NN_ReturnCode":
            code = oh_nn.OH_NN_ReturnCode(result)
            if out is None:
                return code
            values = read(out, places, code)
            if code is not oh_nn.OH_NN_SUCCESS and isinstance(out, OutNumber) and not values[0]:
                values = [None if out.declared[0].split()[0] != "size_t" else 0]
            return (code, *values)
        if result is None:
            return None
        if signature.returns == "void *":
            size = ctypes.c_size_t(0)
            offset = ctypes.c_size_t(0)
            library.OH_NNTensor_GetSize(raw[0], ctypes.addressof(size))
            library.OH_NNTensor_GetOffset(raw[0], ctypes.addressof(offset))
            return memoryview((ctypes.c_char * (size.value - offset.value)).from_address(result)).cast("B")
        handle = addresses.handle(result)
        assert handle is not None
        if isinstance(handle, OH_NN_Memory):
            assert ctypes.c_size_t.from_address(result + 8).value == handle.length
        _known[id(handle)] = result
        return handle

    function.__name__ = function.__qualname__ = signature.name
    function.__wrapped__ = python  # type: ignore[attr-defined]
    return function


def _subjects(item: pytest.Function) -> list[Any]:
    from part import subject_of  # Pytest is the first to import it.

    cases = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return [item.originalname, *filter(None, map(subject_of, cases))]


def install() -> None:
    """Load the library into this interpreter, and replace the functions of `oh_nn` by its functions."""
    library = ctypes.CDLL(str(LIBRARY))
    library.OH_NNTensorDesc_Destroy(None)  # The first call makes the library look up Python's own functions.
    for signature in SIGNATURES:
        setattr(oh_nn, signature.name, through(library, signature))


install()  # Before any module of tests has taken the names.

# Tests of behaviour that only Python has, by the beginnings of their names.
_PYTHON_ONLY = {
    "test_a_destroyed_tensor_takes_its_desc_along": "in C memory goes with its tensor",
    "test_memory_of_a_destroyed_executor": "in C memory goes with its executor",
    "test_row[10.12-10 ": "in C memory goes with its tensor",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Select a sample of the cases that covers each test and each C function."""
    from part import part

    kept = set(part(items, lambda item: item.nodeid, _subjects))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
    for item in items:
        for begin, reason in _PYTHON_ONLY.items():
            if item.name.startswith(begin):
                item.add_marker(pytest.mark.skip(reason=reason))
