"""Files that are read again when they change while the process runs."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from nnrt_hdi.errors import NnrtError
from nnrt_hdi.files.fingerprint import Fingerprint

_log = logging.getLogger(__name__)

ContentT = TypeVar("ContentT")
# A file that was written to more recently may be incomplete.
_SETTLED_S = 0.5
# Seconds between attempts to read files after a failure.
_RETRY_S = 1.0


class WatchedFiles(Generic[ContentT]):
    """Content of some files, which are read again when they have changed.

    The files are read only after nobody has written to them for a while. Until they can be read, the former content
    stays in force.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], ContentT]) -> None:
        """Read the files with `read`. Raises the NnrtError that `read` raises."""
        self._paths = paths
        self._read = read
        # Lock of the thread that looks for changes. Other threads don't wait for the disk.
        self._looking = threading.Lock()
        self._stamps = self._present_stamps()
        # Latest state of the files, when it was first seen, when it may be read, and whether reading it failed.
        self._seen = self._stamps
        self._seen_at = self._read_at = 0.0
        self._has_failed = False
        self._content = read()

    def content(self) -> ContentT:
        """Return the current content. Raises nothing, and reads nothing if the files haven't changed."""
        if self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        return self._content

    def _look(self) -> None:
        stamps, now = self._present_stamps(), time.monotonic()
        if stamps == self._stamps:
            self._seen = stamps
            return
        if stamps != self._seen:
            self._seen, self._seen_at, self._read_at, self._has_failed = stamps, now, now, False
        # The second condition is for clocks that differ, such as a file server's.
        is_settled = all(stamp is None or _is_settled(stamp) for stamp in stamps) or now - self._seen_at > _SETTLED_S
        if is_settled and now >= self._read_at:
            self._read_again(stamps, now)

    def _read_again(self, stamps: tuple[Fingerprint | None, ...], now: float) -> None:
        names = ", ".join(map(str, self._paths))
        try:
            content = self._read()
        except NnrtError as error:
            if not self._has_failed:
                _log.error("%s: the former content stays in force: %s", names, error)
            # A lack of descriptors, for example, may pass.
            self._has_failed, self._read_at = True, now + _RETRY_S
            return
        # Otherwise the files changed meanwhile, and the next call reads them again.
        if self._present_stamps() == stamps:
            self._content, self._stamps = content, stamps
            _log.info("read again: %s", names)

    def _present_stamps(self) -> tuple[Fingerprint | None, ...]:
        return tuple(map(_stamp_of, self._paths))


def _stamp_of(path: Path) -> Fingerprint | None:
    try:
        return Fingerprint.of(path.stat())
    except OSError:
        return None


def _is_settled(stamp: Fingerprint) -> bool:
    """Return whether the file seems complete: written a while ago, or moved here after it was written."""
    return stamp.written_ns < stamp.changed_ns or stamp.changed_ns < time.time_ns() - int(_SETTLED_S * 1e9)
