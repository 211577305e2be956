"""The one place where results and errors of the object API become what C functions return."""

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
    """One of the C functions, what it returns in words, and what the object API has in its place."""

    name: str
    returns: str
    counterpart: str
    call: Callable[..., Any]
    # Of API 9, deprecated since API 11.
    is_legacy: bool = False


# All that have been declared, in their order.
FUNCTIONS: list[Function] = []


class BufferTooSmall(InvalidParameter, code=InvalidParameter.code, status=InvalidParameter.grpc_status):
    """The caller's buffer is too small. The function returns the `value`, which is the size needed, all the same."""

    def __init__(self, given: int, needed: int) -> None:
        super().__init__(f"the buffer has {given} bytes; give one of {needed}")
        self.value = needed


def last_error() -> NnrtError | None:
    """Give the error behind the last code but SUCCESS, or the last None, that this thread was given.

    It stays until the next one, like C's errno.
    """
    return getattr(_thread, "error", None)


def code_of(error: Exception, where: str) -> ReturnCode:
    """The code of an error, which `last_error` remembers. One that nobody raised on purpose is FAILED, and logged."""
    if not isinstance(error, NnrtError):
        _log.error("%s failed", where, exc_info=error)
        error = OperationFailed(f"{type(error).__name__}: {error}", place=where)
    _log.debug("%s: %s: %s", where, error.code.name, error)
    _forget_frames(error)
    _thread.error = error
    return error.code


def _forget_frames(error: BaseException) -> None:
    """An error that is remembered must not keep alive what the calls it went through held."""
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:  # Causes may form a ring.
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def returns_code(
    counterpart: str, *, is_legacy: bool = False
) -> Callable[[Callable[P, None]], Callable[P, ReturnCode]]:
    """Declares a function that returns its code."""
    return _declaring("code", counterpart, lambda value: ReturnCode.SUCCESS, lambda code, error: code, is_legacy)


def returns_value(
    name: str, otherwise: OtherT, counterpart: str
) -> Callable[[Callable[P, ValueT]], Callable[P, tuple[ReturnCode, ValueT | OtherT]]]:
    """Declares a function with an out-pointer: it returns (code, value), on errors with the value `otherwise`."""
    return _declaring(
        f"(code, {name})",
        counterpart,
        lambda value: (ReturnCode.SUCCESS, value),
        lambda code, error: (code, getattr(error, "value", otherwise)),
    )


def returns_two_values(
    first: str, second: str, counterpart: str
) -> Callable[[Callable[P, tuple[ValueT, ValueT]]], Callable[P, tuple[ReturnCode, ValueT | None, ValueT | None]]]:
    """Declares a function with two out-pointers."""
    return _declaring(
        f"(code, {first}, {second})",
        counterpart,
        lambda values: (ReturnCode.SUCCESS, *values),
        lambda code, error: (code, None, None),
    )


def returns_pointer(
    what: str, counterpart: str, *, is_legacy: bool = False
) -> Callable[[Callable[P, ValueT]], Callable[P, ValueT | None]]:
    """Declares a function that returns a pointer, None on errors."""
    return _declaring(f"{what} or None", counterpart, lambda value: value, lambda code, error: None, is_legacy)


def returns_nothing(counterpart: str, *, is_legacy: bool = False) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Declares a function that returns nothing, whatever happens."""
    return _declaring("nothing", counterpart, lambda value: None, lambda code, error: None, is_legacy)


def _declaring(
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
