"""Conversion of the object API's results and errors to the return values of C functions."""

import functools
import inspect
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from typing_extensions import ParamSpec

from nnrt_client.enums import ReturnCode
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed

_log = logging.getLogger(__name__)

P = ParamSpec("P")
ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")

_thread = threading.local()


@dataclass(frozen=True, slots=True)
class Function:
    """C function, with a description of its return value and its counterpart in the object API."""

    name: str
    returns: str
    counterpart: str
    call: Callable[..., Any]
    # Whether it is a function of API 9 that is deprecated since API 11.
    is_legacy: bool = False


# All declared functions, in the order of their declarations.
FUNCTIONS: list[Function] = []


class BufferTooSmall(InvalidParameter, code=InvalidParameter.code, status=InvalidParameter.grpc_status):
    """The caller's buffer is too small. The function returns the needed size, `value`, besides the code."""

    def __init__(self, given: int, needed: int) -> None:
        super().__init__(f"the buffer has {given} bytes; give one of {needed}")
        self.value = needed


def last_error() -> NnrtError | None:
    """Return the error of the last call of a C function that failed in this thread, or None if none has failed.

    Like C's errno, it stays until the next error of the thread.
    """
    return getattr(_thread, "error", None)


def code_of(error: Exception, where: str) -> ReturnCode:
    """Return the code of an error, and store the error for `last_error`. Other errors than NnrtErrors become FAILED."""
    if not isinstance(error, NnrtError):
        _log.error("%s failed", where, exc_info=error)
        error = OperationFailed(f"{type(error).__name__}: {error}", place=where)
    _log.debug("%s: %s: %s", where, error.code.name, error)
    _drop_tracebacks(error)
    _thread.error = error
    return error.code


def _drop_tracebacks(error: BaseException) -> None:
    """Remove the tracebacks of an error and its causes, so that a kept error keeps no local variables alive."""
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:  # Causes may form a ring.
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def returns_code(
    counterpart: str, *, is_legacy: bool = False
) -> Callable[[Callable[P, None]], Callable[P, ReturnCode]]:
    """Declare a C function that returns only a code."""
    return _declare_function("code", counterpart, lambda value: ReturnCode.SUCCESS, lambda code, error: code, is_legacy)


def returns_value(
    name: str, otherwise: OtherT, counterpart: str
) -> Callable[[Callable[P, ValueT]], Callable[P, tuple[ReturnCode, ValueT | OtherT]]]:
    """Declare a C function with an out-pointer: it returns (code, value), with the value `otherwise` on errors."""
    return _declare_function(
        f"(code, {name})",
        counterpart,
        lambda value: (ReturnCode.SUCCESS, value),
        lambda code, error: (code, getattr(error, "value", otherwise)),
    )


def returns_two_values(
    first: str, second: str, counterpart: str
) -> Callable[[Callable[P, tuple[ValueT, ValueT]]], Callable[P, tuple[ReturnCode, ValueT | None, ValueT | None]]]:
    """Declare a C function with two out-pointers: it returns (code, first, second), with None twice on errors."""
    return _declare_function(
        f"(code, {first}, {second})",
        counterpart,
        lambda values: (ReturnCode.SUCCESS, *values),
        lambda code, error: (code, None, None),
    )


def returns_pointer(
    what: str, counterpart: str, *, is_legacy: bool = False
) -> Callable[[Callable[P, ValueT]], Callable[P, ValueT | None]]:
    """Declare a C function that returns a pointer, or None on errors."""
    return _declare_function(f"{what} or None", counterpart, lambda value: value, lambda code, error: None, is_legacy)


def returns_nothing(counterpart: str, *, is_legacy: bool = False) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Declare a C function that returns nothing, also on errors."""
    return _declare_function("nothing", counterpart, lambda value: None, lambda code, error: None, is_legacy)


def _declare_function(
    returns: str,
    counterpart: str,
    on_success: Callable[[Any], Any],
    on_error: Callable[[ReturnCode, Exception], Any],
    is_legacy: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def declare(body: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(body)
        def function(*args: Any, **kwargs: Any) -> Any:
            try:
                value = body(*args, **kwargs)
            except Exception as error:
                return on_error(code_of(error, body.__name__), error)
            return on_success(value)

        function.__signature__ = inspect.signature(body).replace(return_annotation=returns)  # type: ignore[attr-defined]
        FUNCTIONS.append(Function(body.__name__, returns, counterpart, function, is_legacy))
        return function

    return declare
