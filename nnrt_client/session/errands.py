"""Calls that a thread of ours makes for one of the application.

An exception from a signal handler may come at any line of the thread that gets the signals. So the application's
threads enter no lock that others wait for, neither gRPC's nor one of ours that guards more than a step: that is left to
threads that get no signals, and they wait for those.
"""

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from nnrt_client.session.latch import Latch

_log = logging.getLogger(__name__)

T = TypeVar("T")

# How long who is interrupted waits for the end of what it has asked for.
_END_S = 10.0
# Who waits for an errand looks so often whether it has begun: who was to hand it over may have been interrupted.
_LOOK_AGAIN_S = 0.5
# A thread that has nothing to do ends after so long.
_IDLE_S = 0.1

Work = Callable[[], object]

# Of threads that have nothing to do: where they take the next call from.
_idle: deque["queue.SimpleQueue[Work]"] = deque()
# Whether this thread is one of them.
_here = threading.local()


class _Errand(Generic[T]):
    """A call that another thread makes, and its outcome."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._begun = threading.Lock()
        self._result: T
        self._error: BaseException | None = None
        self.done = Latch()

    @property
    def has_begun(self) -> bool:
        return self._begun.locked()

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


def elsewhere(
    function: Callable[..., T], *arguments: object, when_interrupted: Callable[[], object] | None = None
) -> T:
    """Call this in a thread that gets no signals, and wait for what comes of it; in this thread, if it is one of those.

    Where the wait is interrupted the call goes on, and nobody learns what comes of it; with `when_interrupted`, this is
    called to end it, and its end is waited for. Raises what the call raises, RuntimeError where there is no thread.
    """
    if getattr(_here, "is_ours", False):
        return function(*arguments)
    errand = _Errand(partial(function, *arguments))
    try:
        _hand_over(errand.run)
        while not errand.done.wait(_LOOK_AGAIN_S):
            if not errand.has_begun:
                _start(errand.run)
        return errand.result()
    except BaseException:
        if when_interrupted is not None and not errand.done.is_set:
            _hand_over(when_interrupted)
            errand.done.wait(_END_S)
        raise


def begin(work: Callable[[], T], then: Callable[[T], object] | None = None) -> bool:
    """Do this in a thread that gets no signals, and don't wait for it; false where there is no thread to be had. `then`
    is called there with what comes of it."""
    try:
        _start(work if then is None else partial(_do_and_tell, work, then))
    except (RuntimeError, MemoryError) as error:
        _log.debug("no thread can be started: %r", error)
        return False
    return True


def _hand_over(work: Work) -> None:
    """Have a thread do this that has nothing else to do."""
    try:
        box = _idle.pop()
    except IndexError:
        _start(work)
    else:
        box.put(work)


def _start(work: Work) -> None:
    threading.Thread(target=_do, args=(work,), name="nnrt-errand", daemon=True).start()


def _do(work: Work) -> None:
    """Do this, and what comes next for a while."""
    _here.is_ours = True
    try:
        try:
            work()
        except MemoryError:  # Once more: nobody else does it.
            work()
        while (more := _next()) is not None:
            more()
            del more
    except Exception:  # No memory is left, perhaps. Who waits for an errand that has not begun starts another thread.
        _log.exception("a thread of errands ends")


def _do_and_tell(work: Callable[[], T], then: Callable[[T], object]) -> None:
    result = work()
    try:
        then(result)
    except MemoryError:  # Nobody else knows what came of it.
        then(result)


def _next() -> Work | None:
    """Wait for something to do; None where nothing comes."""
    box: queue.SimpleQueue[Work] = queue.SimpleQueue()
    _idle.append(box)
    with suppress(queue.Empty):
        return box.get(timeout=_IDLE_S)
    with suppress(ValueError):  # Somebody is about to put something there, or was interrupted before.
        _idle.remove(box)
        return None
    with suppress(queue.Empty):
        return box.get(timeout=_IDLE_S)
    return None


os.register_at_fork(after_in_child=_idle.clear)
