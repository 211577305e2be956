"""Writes to the user's cache by threads of their own, while the session already runs its model."""

import logging
import os
import threading
import time
from abc import ABC, abstractmethod

from nnrt_client.session.errands import call_in_worker
from nnrt_client.session.latch import Latch
from nnrt_hdi.signals import raised_by_handler

_log = logging.getLogger(__name__)

# Writes that are under way. A set changes in single steps.
_under_way: "set[BackgroundWrite]" = set()


class BackgroundWrite(ABC):
    """Write by a thread. If the process ends earlier, there is no file."""

    def __init__(self) -> None:
        """Start the thread; if the process can start none, end the write."""
        self.ended = Latch()
        self._process = os.getpid()
        try:
            call_in_worker(self._start)  # An exception of a signal handler would leave a write that nobody ends.
        except RuntimeError as error:  # The process can start no thread.
            if raised_by_handler(error):
                raise
            self._give_up(error)

    @property
    def is_of_this_process(self) -> bool:
        """False in a forked child, where no thread writes."""
        return os.getpid() == self._process

    @abstractmethod
    def _write(self) -> None:
        """Write; the log gets what this raises."""

    def _start(self) -> None:
        _under_way.add(self)
        try:
            threading.Thread(target=self._run, name="nnrt-cache", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        _log.debug("nothing is written to the cache: %s", error)
        self._end()

    def _run(self) -> None:
        try:
            self._write()
        except Exception:
            _log.exception("nothing was written to the cache")
        finally:
            self._end()

    def _end(self) -> None:
        _under_way.discard(self)
        self.ended.set()


def writes_under_way() -> list[BackgroundWrite]:
    """Return the writes of this process that have not ended."""
    return [write for write in list(_under_way) if write.is_of_this_process]


def wait_until_cached(timeout_s: float | None = None) -> bool:
    """Wait until what `load` has read and compiled is in the cache, or could not be written.

    This is for programs that load a model, run it once, and end: a session that is closed earlier ends the writing.

    Args:
        timeout_s: How long to wait; without it, until all are done.

    Returns:
        Whether all were done in time.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    for write in writes_under_way():
        write.ended.wait(None if until is None else max(until - time.monotonic(), 0.0))
    return not writes_under_way()
