"""The audit log: who did what, one JSON line for each session, compilation and refusal. No secret stands in it."""

import errno
import json
import logging
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nnrt_device_service.access.identity import Identity
from nnrt_device_service.host.log_lines import LogLines, StandardErrorLines
from nnrt_hdi.errors import InvalidPath

_log = logging.getLogger(__name__)

_STANDARD_ERROR = "-"


class AuditLog:
    """Writes lines to a file, which may be moved away while the daemon runs, or to the standard error.

    One that can't be written is lost; the daemon's log says so at the first, and the audit log how many there were.
    """

    def __init__(self, path: str) -> None:
        """Without a path nothing is written. Raises InvalidPath for a file that can't be."""
        self._lines: LogLines | None = None
        if path:
            try:
                self._lines = StandardErrorLines(_lost) if path == _STANDARD_ERROR else _PrivateFile(path)
            except OSError as error:
                raise InvalidPath(f"it can't be written: {error.strerror}", place=f"--audit-log {path!r}") from error

    def write(self, event: str, identity: Identity | None, **about: Any) -> None:
        """Write a line. Raises nothing."""
        lines = self._lines
        if lines is None:
            return
        who = {"identity": str(identity), "role": str(identity.role)} if identity else {"identity": None}
        try:
            lines.write(_line(event, **who, **about))
        except OSError as error:
            _log.error("lines of the audit log are lost: %s", error)

    def close(self) -> None:
        """Let go of the file. Nothing is written any more."""
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()


def _line(event: str, **about: Any) -> str:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "event": event, **about})


def _lost(count: int) -> str:
    return _line("lines lost", count=count)


class _PrivateFile(LogLines):
    """A file that only its owner reads."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        super().__init__(_lost)
        self._path = Path(path).absolute()
        self._file = self._opened()

    def close(self) -> None:
        os.close(self._file)

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._path, flags, 0o600)

    def _put(self, data: bytes) -> None:
        if not self._is_there():
            former, self._file = self._file, self._opened()
            os.close(former)
        size = os.fstat(self._file).st_size
        written = os.write(self._file, data)
        if written < len(data):  # The disk is full. Half a line would spoil the next.
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _is_there(self) -> bool:
        """Tell whether the file is still where it was opened."""
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False
