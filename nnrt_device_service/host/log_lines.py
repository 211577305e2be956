"""Lines of logs, which are written at once or not at all: the daemon waits for nobody who doesn't read them."""

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
    """Takes lines. How many could not be written is said before the next that can be."""

    def __init__(self, said_of_lost: Callable[[int], str]) -> None:
        """`said_of_lost` makes the line that says how many were lost."""
        self._said_of_lost = said_of_lost
        self._lock = threading.Lock()
        self._lost = 0

    def write(self, line: str) -> None:
        """Write a line. Raises OSError for the first of those that are lost."""
        with self._lock:
            lines = [self._said_of_lost(self._lost), line] if self._lost else [line]
            try:
                self._put("".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
                self._lost = 0
            except OSError:
                self._lost += 1
                if self._lost == 1:
                    raise

    def close(self) -> None:
        """Let go of what the lines are written to."""

    @abstractmethod
    def _put(self, data: bytes) -> None:
        """Write all of that, in one piece. Raises OSError, also where only a part could be written."""


class StandardErrorLines(LogLines):
    """Lines on the standard error."""

    _is_cut = False

    def _put(self, data: bytes) -> None:
        rest = b"\n" + data if self._is_cut else data
        while rest:
            written = os.write(_STANDARD_ERROR, rest)
            rest = rest[written:]
            self._is_cut = bool(rest)


def never_wait_for_a_reader() -> None:
    """Have writing to the standard error fail where a pipe or a socket is full, whoever in this process writes.

    Others who have a pipe go on waiting, as they are used to. A socket, such as the journal's, can't be opened again:
    whoever has it loses lines too.
    """
    sys.stderr.flush()
    kind = os.fstat(_STANDARD_ERROR).st_mode
    if stat.S_ISFIFO(kind):
        with suppress(OSError):  # It is of another user, or this is no Linux.
            own = os.open(f"/proc/self/fd/{_STANDARD_ERROR}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.dup2(own, _STANDARD_ERROR)
            os.close(own)
    elif stat.S_ISSOCK(kind):
        flags = fcntl.fcntl(_STANDARD_ERROR, fcntl.F_GETFL)
        fcntl.fcntl(_STANDARD_ERROR, fcntl.F_SETFL, flags | os.O_NONBLOCK)
