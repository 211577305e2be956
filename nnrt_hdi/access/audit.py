"""Audit log: one JSON line for each session, compilation and refusal, with the identity. Contains no secrets."""

import errno
import json
import logging
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nnrt_hdi.access.identity import Identity
from nnrt_hdi.errors import InvalidPath
from nnrt_hdi.log_lines import LogLines, StandardErrorLines

_log = logging.getLogger(__name__)

_STANDARD_ERROR = "-"


class AuditLog:
    """Audit log in a file, which may be moved away (rotated) at any time, or on standard error.

    Lines that can't be written are lost. The process's log reports the first, the audit log later their number.
    """

    def __init__(self, path: str) -> None:
        """Open the log: a file, `-` for standard error, or an empty path for none. Raises InvalidPath."""
        self._lines: LogLines | None = None
        if path:
            try:
                self._lines = StandardErrorLines(_lost) if path == _STANDARD_ERROR else _PrivateFile(path)
            except OSError as error:
                raise InvalidPath(f"it can't be written: {error.strerror}", place=f"--audit-log {path!r}") from error

    def write(self, event: str, identity: Identity | None, **about: Any) -> None:
        """Write a line about an event. Logs failures and raises nothing."""
        lines = self._lines
        if lines is None:
            return
        who = {"identity": str(identity), "role": str(identity.role)} if identity else {"identity": None}
        try:
            lines.write(_line(event, **who, **about))
        except OSError as error:
            _log.error("lines of the audit log are lost: %s", error)

    def close(self) -> None:
        """Close the file. Later writes do nothing."""
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()


def _line(event: str, **about: Any) -> str:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "event": event, **about})


def _lost(count: int) -> str:
    return _line("lines lost", count=count)


class _PrivateFile(LogLines):
    """File that only its owner can read; reopened at its path when it has been moved away."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises OSError."""
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
        if written < len(data):  # The disk is full. Remove the partial line, which would corrupt the next one.
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _is_there(self) -> bool:
        """Return whether the open file still lies at its path."""
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False
