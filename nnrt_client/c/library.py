"""Callbacks for the shared library's table of functions. Each converts C's arguments and calls `oh_nn`'s function."""

import atexit
import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nnrt_client.c.addresses import address_of, addresses
from nnrt_client.c.functions import SIGNATURES, Signature
from nnrt_client.c.parameters import In, Out
from nnrt_client.c_interface.adapter import code_of, last_error
from nnrt_client.c_interface.handles import Handle, OH_NN_Memory
from nnrt_client.enums import ReturnCode
from nnrt_client.session.process_runtime import disconnect

_FAILED = int(ReturnCode.FAILED)
# Kept as long as the process lives, because the table points to them.
_callbacks: list[Any] = []
# Text that `nnrt_last_error` returned last to each thread.
_thread = threading.local()


def fill(table: int, count: int) -> None:
    """Fill the library's table, at the address `table`, with the functions of SIGNATURES and nnrt_last_error.

    An exit handler clears the table when the interpreter ends, because a program may go on after it has ended its own
    interpreter. Raise RuntimeError if `count`, the size of the table, is that of another version.
    """
    made = [_prototype(signature)(_callback(signature)) for signature in SIGNATURES]
    made.append(ctypes.CFUNCTYPE(ctypes.c_void_p)(_last_error))
    if len(made) != count:
        raise RuntimeError(f"the library has {count} functions, and {__file__} {len(made)}: they are of two versions")
    _callbacks.extend(made)
    places = (ctypes.c_void_p * count).from_address(table)
    places[:] = [ctypes.cast(callback, ctypes.c_void_p).value for callback in made]
    atexit.register(places.__setitem__, slice(None), [None] * count)


def end() -> None:
    """Close the connections of the process. The library calls this when the process exits."""
    disconnect()


def _last_error() -> int:
    error = last_error()
    _thread.text = ctypes.create_string_buffer(b"" if error is None else str(error).encode())
    return ctypes.addressof(_thread.text)


def _prototype(signature: Signature) -> Any:
    result: Any = {"void": None, "OH_NN_ReturnCode": ctypes.c_int}.get(signature.returns, ctypes.c_void_p)
    return ctypes.CFUNCTYPE(result, *signature.types)


def _callback(signature: Signature) -> Callable[..., Any]:
    """Return the function that C calls, which returns an error value instead of raising."""
    call = _converter(signature)
    name, returns = signature.name, signature.returns
    failed = {"void": None, "OH_NN_ReturnCode": _FAILED}.get(returns)

    def function(*raw: Any) -> Any:
        try:
            return call(*raw)
        except BaseException as error:
            if isinstance(error, Exception):
                with suppress(Exception):
                    code = int(code_of(error, name))
                    return code if returns == "OH_NN_ReturnCode" else failed
            return failed

    return function


def _converter(signature: Signature) -> Callable[..., Any]:
    """Return a function that converts C's arguments, calls the function of `oh_nn`, and writes the results for C."""
    function = signature.python
    ins: list[tuple[In, slice]] = []
    outs: list[tuple[Out, slice]] = []
    at = 0
    for parameter in signature.parameters:
        part = slice(at, at + len(parameter.types))
        at = part.stop
        if isinstance(parameter, In):
            ins.append((parameter, part))
        elif isinstance(parameter, Out):
            outs.append((parameter, part))
    finishing = [(index, parameter, part) for index, (parameter, part) in enumerate(ins) if _finishes(parameter)]
    owned = signature.name.startswith(("OH_NNTensorDesc_", "OH_NNExecutor_", "OH_NNModel_"))

    def call(*raw: Any) -> Any:
        for out, part in outs:
            out.require(*raw[part])
        arguments = [parameter.read(*raw[part]) for parameter, part in ins]
        result = function(*arguments)
        for index, parameter, part in finishing:
            parameter.finish(arguments[index], *raw[part])
        if outs:
            code, *values = result
            ((out, part),) = outs
            value = values[0] if len(values) == 1 else values
            if values[0] is not None and (code == ReturnCode.SUCCESS or isinstance(value, int)):
                out.write(value, arguments[0] if owned else None, *raw[part])
            return int(code)
        if isinstance(result, OH_NN_Memory):
            return addresses.keep_memory(arguments[0], result)
        if isinstance(result, Handle):
            return addresses.get(result)
        return address_of(result) if isinstance(result, memoryview) else result

    return call


def _finishes(parameter: In) -> bool:
    return type(parameter).finish is not In.finish
