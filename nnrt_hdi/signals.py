"""Exceptions that signal handlers raise in the middle of other code."""

import signal
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from types import CodeType, FrameType, TracebackType


def raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised the error: a function that was called with the frame that it interrupted.

    Whoever catches errors of a kind, such as OSError, must let such an error pass: it is the application's. A handler
    in C leaves no trace; Python's own handler raises KeyboardInterrupt, which nobody catches by kind.
    """
    frames: list[FrameType] = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    if len(frames) < 2:
        return False
    installed = [_code_of(signal.getsignal(number)) for number in signal.valid_signals()]
    return any(
        called.f_code in installed or _is_among(interrupted, called.f_locals.values())
        for interrupted, called in pairwise(frames)
    )


class suppressed(suppress):  # noqa: N801  # Named as what it extends.
    """contextlib.suppress that lets errors of signal handlers pass."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return super().__exit__(kind, error, traceback) and error is not None and not raised_by_handler(error)


def _code_of(handler: object) -> CodeType | None:
    """Return the code that Python runs first when it calls a handler, or None if the handler has no Python code."""
    while isinstance(handler, partial):
        handler = handler.func
    function = handler if hasattr(handler, "__code__") or not callable(handler) else type(handler).__call__
    return getattr(function, "__code__", None)


def _is_among(frame: FrameType, values: Iterable[object]) -> bool:
    return any(
        value is frame or (isinstance(value, tuple) and any(each is frame for each in value)) for value in values
    )
