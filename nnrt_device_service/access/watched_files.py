"""Files that may change while the daemon runs, and count from then on."""

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
# A file that was written to so lately may be half of itself.
_SETTLED_S = 0.5
# Between attempts to read files that couldn't be.
_RETRY_S = 1.0


class WatchedFiles(Generic[ContentT]):
    """The content of some files.

    They are read again when they have changed and nobody writes to them any more; until they can be read again, what
    they said before counts.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], ContentT]) -> None:
        """Raises what `read` raises, an NnrtError."""
        self._paths = paths
        self._read = read
        # For whoever looks whether they have changed. Nobody else waits for the disk.
        self._looking = threading.Lock()
        self._stamps = self._present_stamps()
        # Another state of theirs, when it was first seen, when it may be read, and whether that has failed.
        self._seen = self._stamps
        self._seen_at = self._read_at = 0.0
        self._has_failed = False
        self._content = read()

    def content(self) -> ContentT:
        """Their content now. Raises nothing, and where they haven't changed reads nothing."""
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
        # The second where clocks differ, such as those of a file server.
        is_settled = all(stamp is None or _is_settled(stamp) for stamp in stamps) or now - self._seen_at > _SETTLED_S
        if is_settled and now >= self._read_at:
            self._read_again(stamps, now)

    def _read_again(self, stamps: tuple[Fingerprint | None, ...], now: float) -> None:
        names = ", ".join(map(str, self._paths))
        try:
            content = self._read()
        except NnrtError as error:
            if not self._has_failed:
                _log.error("what %s said before counts on: %s", names, error)
            # It may have been for want of descriptors.
            self._has_failed, self._read_at = True, now + _RETRY_S
            return
        if self._present_stamps() == stamps:  # Else who asks next sees that it was written to meanwhile.
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
    """Tell whether nobody is likely to be writing: it was written a while ago, or moved here when that was done."""
    return stamp.written_ns < stamp.changed_ns or stamp.changed_ns < time.time_ns() - int(_SETTLED_S * 1e9)
