"""Files that may change while the daemon runs, and count from then on."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

ContentT = TypeVar("ContentT")
_Stamp = tuple[tuple[int, int, int, int] | None, ...]
# Between attempts to read files that couldn't be.
_RETRY_S = 1.0


class WatchedFiles(Generic[ContentT]):
    """The content of some files.

    They are read again when they have changed; until they can be read again, what they said before counts.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], ContentT]) -> None:
        """Raises what `read` raises, an NnrtError."""
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        self._stamp = self._present_stamp()
        # Of files that couldn't be read, and when to try again: it may have been for want of descriptors.
        self._failed: _Stamp | None = None
        self._retry_at = 0.0
        self._content = read()

    def content(self) -> ContentT:
        """Their content now. Raises nothing, and where they haven't changed reads nothing."""
        with self._lock:
            stamp = self._present_stamp()
            if stamp != self._stamp and (stamp != self._failed or time.monotonic() >= self._retry_at):
                self._read_again(stamp)
            return self._content

    def _read_again(self, stamp: _Stamp) -> None:
        names = ", ".join(map(str, self._paths))
        try:
            self._content = self._read()
        except NnrtError as error:
            if stamp != self._failed:
                _log.error("what %s said before counts on: %s", names, error)
            self._failed, self._retry_at = stamp, time.monotonic() + _RETRY_S
        else:
            self._stamp, self._failed = stamp, None
            _log.info("read again: %s", names)

    def _present_stamp(self) -> _Stamp:
        return tuple(map(_stamp_of, self._paths))


def _stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # The third changes with the mode as well.
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
