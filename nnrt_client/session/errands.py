"""Errands: calls that a worker thread makes for a thread of the application.

A signal handler may raise an exception at any line of the main thread, which would leave a lock locked. So threads of
the application don't take locks of gRPC, or locks of this package that are locked for longer than a step. Worker
threads, which receive no signals, make such calls while the application's thread waits.
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

# Seconds that an interrupted thread waits for the end of its call.
_END_S = 10.0
# Interval at which a waiting thread checks whether its call has begun: the worker may have ended, or a signal may have
# interrupted the waiting thread before it handed the call over.
_LOOK_AGAIN_S = 0.5
# Seconds that an idle worker waits for work before it ends.
_IDLE_S = 0.1

Work = Callable[[], object]

# One queue of each idle worker, from which it takes its next call.
_idle: deque["queue.SimpleQueue[Work]"] = deque()
# Has `is_ours` set in the workers.
_this_thread = threading.local()


class _Errand(Generic[T]):
    """Call that a worker makes, and its outcome."""

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
        """Make the call, unless another worker has begun it."""
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


def call_in_worker(
    function: Callable[..., T], *arguments: object, when_interrupted: Callable[[], object] | None = None
) -> T:
    """Call `function` in a worker thread, which receives no signals, and return its result.

    A worker that calls this calls `function` directly. If an exception of a signal handler interrupts the wait, the
    call continues and its outcome is lost; with `when_interrupted`, a worker calls that to end the call, and this waits
    for the end. Raises what `function` raises, and RuntimeError if no thread can be started.
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


def start_in_worker(work: Callable[[], T], then: Callable[[T], object] | None = None) -> bool:
    """Start `work` in a worker thread, which receives no signals. Return False if no thread can be started.

    This doesn't wait. The worker calls `then` with the result of `work`.
    """
    try:
        _start(work if then is None else partial(_do_then, work, then))
    except (RuntimeError, MemoryError) as error:
        _log.debug("no thread can be started: %r", error)
        return False
    return True


def _hand_over(work: Work) -> None:
    """Pass the work to an idle worker, or to a new one."""
    try:
        box = _idle.pop()
    except IndexError:
        _start(work)
    else:
        box.put(work)


def _start(work: Work) -> None:
    threading.Thread(target=_do, args=(work,), name="nnrt-errand", daemon=True).start()


def _do(work: Work) -> None:
    """Do the work, then further work that threads pass, until none comes for `_IDLE_S`."""
    _this_thread.is_ours = True
    try:
        try:
            work()
        except MemoryError:  # Try once more, because no other thread does this work.
            work()
        while (more := _next()) is not None:
            more()
            del more
    except Exception:  # Such as MemoryError. A waiting thread starts another worker for a call that has not begun.
        _log.exception("a thread of errands ends")


def _do_then(work: Callable[[], T], then: Callable[[T], object]) -> None:
    result = work()
    try:
        then(result)
    except MemoryError:  # Try once more, because only this thread has the result.
        then(result)


def _next() -> Work | None:
    """Wait for work as an idle worker. Return None if none comes."""
    box: queue.SimpleQueue[Work] = queue.SimpleQueue()
    _idle.append(box)
    with suppress(queue.Empty):
        return box.get(timeout=_IDLE_S)
    with suppress(ValueError):  # Another thread has taken the queue to put work there, or was interrupted before that.
        _idle.remove(box)
        return None
    with suppress(queue.Empty):
        return box.get(timeout=_IDLE_S)
    return None


os.register_at_fork(after_in_child=_idle.clear)
