"""Threads that answer gRPC calls."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from nnrt_device_service.host.threads import Threads, run_for, start_thread
from nnrt_hdi.errors import OutOfMemory

_log = logging.getLogger(__name__)


class CallThreads(Executor):
    """Executor with one thread for each call under way.

    gRPC submits calls from its one serving thread, and an exception there would end the serving for good. So `submit`
    raises nothing: a call for which no thread can be started goes to a spare thread, where `require_thread` refuses it.
    """

    def __init__(self, threads: Threads) -> None:
        """Start the spare thread; raise OutOfMemory if it can't be started."""
        self._threads = threads
        self._refused: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._is_refusing = False
        self._refuser = start_thread(self._refuse, "rpc-refuser")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Call a function at once in a thread."""
        future: Future[Any] = Future()
        call = partial(run_for, future, partial(fn, *args, **kwargs))
        try:
            self._threads.run(call)
            self._is_refusing = False
        except OutOfMemory as error:
            self._refused.put(call)
            if not self._is_refusing:  # Log it once, as clients may retry often.
                _log.warning("calls are refused: %s", error.message)
            self._is_refusing = True
        return future

    def require_thread(self) -> None:
        """Raise OutOfMemory if this is the spare thread, so no thread could be started for the call."""
        if threading.current_thread() is self._refuser:
            raise OutOfMemory(
                "the daemon's host lets it start no more threads for calls; try again later, or raise what limits them"
                " (the cgroup's pids.max, ulimit -u)"
            )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the spare thread, without waiting."""
        self._refused.put(None)

    def _refuse(self) -> None:
        for call in iter(self._refused.get, None):
            call()
