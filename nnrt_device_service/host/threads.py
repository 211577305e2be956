"""The threads of a daemon. On any host it may be impossible, at any time, to start one more."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from nnrt_hdi.errors import OutOfMemory

ResultT = TypeVar("ResultT")
_Work = Callable[[], object]

# A thread that has nothing to do for so long ends.
_IDLE_S = 30.0


def start_thread(work: _Work, name: str) -> threading.Thread:
    """A thread that doesn't keep the process from ending. Raises OutOfMemory where no more can be started."""
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
    """Threads that wait a while for more work when they have done theirs, for whom nobody has to wait."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        # Threads that wait, less the work put into `_handed` for them.
        self._idle = 0
        self._handed: SimpleQueue[_Work | None] = SimpleQueue()
        self._is_over = False

    def run(self, work: _Work) -> None:
        """Do this at once, in a thread of its own. Raises OutOfMemory where no more can be started.

        `work` raises nothing.
        """
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._handed.put(work)
                return
        start_thread(partial(self._work, work), self._name)

    def submit(self, function: Callable[[], ResultT]) -> "Future[ResultT]":
        """Call a function at once, in a thread of its own. Raises OutOfMemory where no more can be started."""
        future: Future[ResultT] = Future()
        self.run(partial(run_for, future, function))
        return future

    def close(self) -> None:
        """Have threads end when they have nothing to do. More may be started."""
        with self._lock:
            self._is_over = True
            for _ in range(self._idle):
                self._handed.put(None)
            self._idle = 0

    def _work(self, work: _Work | None) -> None:
        while work is not None:
            work()
            del work  # What was done must not live until there is more to do.
            work = self._next()

    def _next(self) -> _Work | None:
        """Wait for more to do; None if there isn't."""
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
        return self._handed.get()  # Which has been put there meanwhile.


def run_for(future: "Future[ResultT]", function: Callable[[], ResultT]) -> None:
    """Call a function whose outcome is that of a future. Raises nothing, SystemExit neither."""
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
