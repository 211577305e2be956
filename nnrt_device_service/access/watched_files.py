"""Files that may change while the daemon runs, and count from then on."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

ContentT = TypeVar("ContentT")
_Stamp = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles(Generic[ContentT]):
    """What some files say.

    They are read again when they have changed; until they can be read again, what they said before counts.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], ContentT]) -> None:
        """Raises what `read` raises, an NnrtError."""
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        self._stamp = self._present_stamp()
        self._content = read()

    def content(self) -> ContentT:
        """What they say now. Raises nothing, and where they haven't changed reads nothing."""
        with self._lock:
            stamp = self._present_stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                names = ", ".join(map(str, self._paths))
                try:
                    self._content = self._read()
                    _log.info("read again: %s", names)
                except NnrtError as error:
                    _log.error("what %s said before counts on: %s", names, error)
            return self._content

    def _present_stamp(self) -> _Stamp:
        return tuple(map(_stamp_of, self._paths))


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
