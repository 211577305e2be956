"""The main thread gets the signals: an exception from a handler may come at any line that it executes.

So it enters no lock that others wait for, neither gRPC's nor one of ours that guards more than a step: that is left to
threads that get no signals, and the main thread waits for them.
"""

import queue
import threading
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Generic, TypeVar

from nnrt_client.session.latch import Latch

T = TypeVar("T")

# How long who is interrupted waits for the end of what it has asked for.
_END_S = 10.0
# Who waits for an errand looks so often whether anybody is left to run it.
_LOOK_AGAIN_S = 0.5


def is_main_thread() -> bool:
    """Tell if signals are handled in this thread."""
    return get_ident() == threading.main_thread().ident


class _Errand(Generic[T]):
    """A call that another thread makes, and its outcome."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._begun = threading.Lock()
        self._result: T
        self._error: BaseException | None = None
        self.done = Latch()

    def run(self) -> None:
        """Make the call, unless another thread does."""
        if self._begun.acquire(blocking=False):
            try:
                self._result = self._function()
            except BaseException as error:
                self._error = error
            del self._function
            self.done.set()

    def result(self) -> T:
        if (error := self._error) is not None:
            self._error = None
            try:
                raise error
            finally:
                del error  # It knows this frame.
        return self._result


class Errands:
    """Calls that other threads make for the main thread. Starting a thread is one of them, for `Thread.start` waits."""

    def __init__(self, name: str) -> None:
        """Raises RuntimeError where there is no thread to be had."""
        self._name = name
        self._asked: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._is_over = False
        threading.Thread(target=self._start_asked, name=name, daemon=True).start()

    def stop(self) -> None:
        """End the thread that starts others; from now on the main thread starts them itself."""
        self._is_over = True
        self._asked.put(None)

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call this in a thread that gets no signals, and wait for what comes of it; in this thread, if it is such a
        one. Where the wait is interrupted the call goes on, and nobody learns what comes of it."""
        if not is_main_thread():
            return function(*arguments)
        errand = _Errand(partial(function, *arguments))
        self._asked.put(errand.run)
        while not errand.done.wait(_LOOK_AGAIN_S):
            if self._is_over:
                _start(errand.run, self._name)
                errand.done.wait()
        return errand.result()

    def _start_asked(self) -> None:
        while (work := self._asked.get()) is not None:
            try:
                _start(work, self._name)
            except RuntimeError:  # The process has no thread left.
                work()


def off_the_main_thread(function: Callable[..., T], *arguments: object, when_interrupted: Callable[[], object]) -> T:
    """Call this in a thread that gets no signals, and wait for what comes of it; in this thread, if it is such a one.

    Where the wait is interrupted, end the call so, and wait for that.
    """
    if not is_main_thread():
        return function(*arguments)
    errand = _Errand(partial(function, *arguments))
    try:
        _start(errand.run, "nnrt-errand")
        errand.done.wait()
        return errand.result()
    except BaseException:
        if not errand.done.is_set:
            _start(when_interrupted, "nnrt-errand")
            errand.done.wait(_END_S)
        raise


def _start(work: Callable[[], object], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()
