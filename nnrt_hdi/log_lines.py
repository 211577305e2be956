"""Log lines that are written without waiting: a reader that doesn't read can't block the process."""

import fcntl
import os
import stat
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

_STANDARD_ERROR = 2


class LogLines(ABC):
    """Writer of lines. After lost lines, a line with their number precedes the next one."""

    def __init__(self, format_lost: Callable[[int], str]) -> None:
        """Set the function that makes the line about a number of lost lines."""
        self._format_lost = format_lost
        self._lock = threading.Lock()
        self._lost = 0

    def write(self, *lines: str) -> None:
        """Write lines together. Raises OSError when the first are lost."""
        with self._lock:
            written = [self._format_lost(self._lost), *lines] if self._lost else lines
            try:
                self._put("".join(f"{line}\n" for line in written).encode(errors="backslashreplace"))
                self._lost = 0
            except OSError:
                self._lost += len(lines)
                if self._lost == len(lines):
                    raise

    def close(self) -> None:
        """Close the output. Does nothing here."""

    @abstractmethod
    def _put(self, data: bytes) -> None:
        """Write all data. Raises OSError if not all could be written."""


class StandardErrorLines(LogLines):
    """Writer to standard error. After a partial line it first ends that line."""

    _is_cut = False

    def _put(self, data: bytes) -> None:
        rest = b"\n" + data if self._is_cut else data
        while rest:
            written = os.write(_STANDARD_ERROR, rest)
            rest = rest[written:]
            self._is_cut = bool(rest)


def unblock_standard_error() -> None:
    """Make all writes of this process to standard error fail, instead of block, when its pipe or socket is full.

    A pipe is opened again, so that other processes that write to it still block. A socket, such as the journal's, can't
    be opened again, so it becomes non-blocking for all processes that share it.
    """
    sys.stderr.flush()
    kind = os.fstat(_STANDARD_ERROR).st_mode
    if stat.S_ISFIFO(kind):
        with suppress(OSError):  # The pipe belongs to another user, or this isn't Linux.
            own = os.open(f"/proc/self/fd/{_STANDARD_ERROR}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.dup2(own, _STANDARD_ERROR)
            os.close(own)
    elif stat.S_ISSOCK(kind):
        flags = fcntl.fcntl(_STANDARD_ERROR, fcntl.F_GETFL)
        fcntl.fcntl(_STANDARD_ERROR, fcntl.F_SETFL, flags | os.O_NONBLOCK)
