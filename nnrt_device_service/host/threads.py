"""Threads of a daemon. Starting one can fail at any time, on any host."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from nnrt_hdi.errors import OutOfMemory

ResultT = TypeVar("ResultT")
_Work = Callable[[], object]

# Seconds after which an idle thread ends.
_IDLE_S = 30.0


def start_thread(work: _Work, name: str) -> threading.Thread:
    """Start a daemon thread, which doesn't keep the process alive. Raises OutOfMemory if the host allows no more."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OutOfMemory(
            f"the daemon's host lets it start no more threads ({error}); try again later, or raise what limits them"
            " (the cgroup's pids.max, ulimit -u)"
        ) from error
    return thread


class Threads:
    """Unbounded pool of daemon threads, which wait a while for more work and then end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        # Waiting threads, minus the work in `_handed` for them.
        self._idle = 0
        self._handed: SimpleQueue[_Work | None] = SimpleQueue()
        self._is_over = False

    def run(self, work: _Work) -> None:
        """Do the work at once in a thread of its own. Raises OutOfMemory if no thread can be started.

        `work` raises nothing.
        """
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._handed.put(work)
                return
        start_thread(partial(self._work, [work]), self._name)

    def submit(self, function: Callable[[], ResultT]) -> "Future[ResultT]":
        """Call a function at once in a thread of its own. Raises OutOfMemory if no thread can be started."""
        future: Future[ResultT] = Future()
        self.run(partial(run_for, future, function))
        return future

    def close(self) -> None:
        """End the idle threads, and the others when they become idle. `run` still works."""
        with self._lock:
            self._is_over = True
            for _ in range(self._idle):
                self._handed.put(None)
            self._idle = 0

    def _work(self, first: list[_Work]) -> None:
        """Do the first work, taken out of the list, and then more. An idle thread keeps no work's objects alive."""
        work: _Work | None = first.pop()
        while work is not None:
            work()
            del work
            work = self._next()

    def _next(self) -> _Work | None:
        """Wait for more work; return None if the thread is to end."""
        with self._lock:
            if self._is_over:
                return None
            self._idle += 1
        try:
            return self._handed.get(timeout=_IDLE_S)
        except Empty:
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    return None
        return self._handed.get()  # `run` has put it there meanwhile.


def run_for(future: "Future[ResultT]", function: Callable[[], ResultT]) -> None:
    """Call a function and put its result or exception, even SystemExit, into the future. Raises nothing."""
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
