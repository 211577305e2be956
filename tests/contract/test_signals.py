"""What a signal handler raises is told from what the code raises that it interrupted, whatever the handler is."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial, wraps
from types import FrameType
from typing import Any

import pytest

from nnrt_hdi.enums import DataType
from nnrt_hdi.signals import raised_by_handler, suppressed

Handler = Callable[[int, FrameType | None], Any]


class _Raised(OSError):
    pass


def plain(number: int, frame: FrameType | None) -> None:
    raise _Raised


def forgetful(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _Raised


def third(first: int, number: int, frame: FrameType | None) -> None:
    del frame
    raise _Raised


def deep(number: int, frame: FrameType | None) -> None:
    int("no number", base=0) if number < 0 else plain(number, None)


def interrupted(number: int, frame: FrameType | None) -> None:
    """Another handler comes meanwhile."""
    signal.raise_signal(signal.SIGUSR2)


@wraps(plain)
def wrapped(*arguments: Any) -> None:
    plain(*arguments)


class Handlers:
    def method(self, number: int, frame: FrameType | None) -> None:
        raise _Raised

    def forgetful(self, number: int, frame: FrameType | None) -> None:
        del frame
        raise _Raised


class Called:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise _Raised


class Forgetful:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        raise _Raised


HANDLERS: dict[str, Handler] = {
    "function": plain,
    "that forgets its frame": forgetful,
    "that calls others": deep,
    "that is interrupted": interrupted,
    "lambda": lambda *arguments: plain(*arguments),
    "decorated": wrapped,
    "method": Handlers().method,
    "method that forgets": Handlers().forgetful,
    "partial": partial(third, 1),
    "partial of one of a method": partial(partial(Handlers().method)),
    "callable": Called(),
    "callable that forgets": Forgetful(),
    "partial of a callable": partial(Forgetful()),
}


@pytest.fixture
def handled() -> Iterator[Callable[[Handler], None]]:
    """Installs a handler for the test's signal."""
    former = {number: signal.signal(number, plain) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield lambda handler: (signal.signal(signal.SIGUSR1, handler), None)[1]
    for number, handler in former.items():
        signal.signal(number, handler)


def within(depth: int) -> None:
    if depth:
        within(depth - 1)
    else:
        signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_errors_of_handlers(handled: Callable[[Handler], None], handler: Handler) -> None:
    """Wherever they come, and though it is a kind that is suppressed."""
    handled(handler)
    for depth in (0, 3):
        with pytest.raises(_Raised), suppressed(OSError):
            within(depth)
    try:
        signal.raise_signal(signal.SIGUSR1)
    except _Raised as error:
        assert raised_by_handler(error)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_errors_of_the_code_itself(handled: Callable[[Handler], None], handler: Handler) -> None:
    """Of the system, of C, and of functions that it calls; whatever handlers there are."""
    handled(handler)
    erring: list[Callable[[], object]] = [partial(os.stat, "/no/such"), partial(DataType, 999), lambda: [].pop()]
    for call in erring:
        with pytest.raises((OSError, ValueError, IndexError)) as caught:
            call()
        assert not raised_by_handler(caught.value)
        with suppressed(OSError, ValueError, IndexError):
            call()
