"""Calls that a thread of this package makes for a thread of the application.

A signal handler may raise an exception at any line of the thread that receives the signals. So threads of the
application take no lock that others wait for, neither one of gRPC nor one of ours that guards more than a step. They
leave that to threads that receive no signals, and wait for them.
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

# How long an interrupted thread waits for the end of the call that it asked for.
_END_S = 10.0
# How often a waiting thread checks whether its errand has begun: the thread that was to make the call may have ended,
# or a signal may have interrupted the thread that was to hand it over.
_LOOK_AGAIN_S = 0.5
# How long an idle thread waits for work before it ends.
_IDLE_S = 0.1

Work = Callable[[], object]

# The queues of the idle threads, from which each takes its next call.
_idle: deque["queue.SimpleQueue[Work]"] = deque()
# Marks the threads of this module.
_this_thread = threading.local()


class _Errand(Generic[T]):
    """Call that another thread makes, and its outcome."""

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
        """Make the call, unless another thread has begun it."""
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
                del error  # Its traceback refers to this frame.
        return self._result


def elsewhere(
    function: Callable[..., T], *arguments: object, when_interrupted: Callable[[], object] | None = None
) -> T:
    """Call `function` in a thread that receives no signals, wait for its end, and return its result.

    A thread that receives no signals because it is one of this module's calls it directly. Where an exception
    interrupts the wait, the call goes on and its outcome is lost. With `when_interrupted`, this function is called to
    end the call, and the end is waited for. Raises what the call raises, and RuntimeError where no thread can be
    started.
    """
    if getattr(_this_thread, "is_ours", False):
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
    """Start `work` in a thread that receives no signals, and return whether such a thread could be started.

    This doesn't wait. The thread calls `then` with the result of `work`.
    """
    try:
        _start(work if then is None else partial(_do_and_tell, work, then))
    except (RuntimeError, MemoryError) as error:
        _log.debug("no thread can be started: %r", error)
        return False
    return True


def _hand_over(work: Work) -> None:
    """Give the work to an idle thread, or to a new one."""
    try:
        box = _idle.pop()
    except IndexError:
        _start(work)
    else:
        box.put(work)


def _start(work: Work) -> None:
    threading.Thread(target=_do, args=(work,), name="nnrt-errand", daemon=True).start()


def _do(work: Work) -> None:
    """Do the work, and then what other threads hand over, until none does for a while."""
    _this_thread.is_ours = True
    try:
        try:
            work()
        except MemoryError:  # A second try, because no other thread does it.
            work()
        while (more := _next()) is not None:
            more()
            del more
    except Exception:  # No memory, perhaps. A waiting thread starts another thread for an errand that has not begun.
        _log.exception("a thread of errands ends")


def _do_and_tell(work: Callable[[], T], then: Callable[[T], object]) -> None:
    result = work()
    try:
        then(result)
    except MemoryError:  # A second try, because only this thread has the result.
        then(result)


def _next() -> Work | None:
    """Wait, as an idle thread, for work; return None if none comes."""
    box: queue.SimpleQueue[Work] = queue.SimpleQueue()
    _idle.append(box)
    with suppress(queue.Empty):
        return box.get(timeout=_IDLE_S)
    with suppress(ValueError):  # Another thread took the queue, and is about to put work there, or was interrupted.
        _idle.remove(box)
        return None
    with suppress(queue.Empty):
        return box.get(timeout=_IDLE_S)
    return None


os.register_at_fork(after_in_child=_idle.clear)
