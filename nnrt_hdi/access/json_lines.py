"""Logs of JSON lines for machines, such as the audit log."""

import errno
import json
import logging
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nnrt_hdi.errors import InvalidPath
from nnrt_hdi.log_lines import LogLines, StandardErrorLines

_log = logging.getLogger(__name__)

_STANDARD_ERROR = "-"


class JsonLines:
    """Lines in a file, which may be moved away (rotated) at any time, or on standard error.

    Lines that can't be written are lost. The process's log reports the first, a later line their number.
    """

    def __init__(self, path: str, flag: str) -> None:
        """Open the file that an option names, or standard error for `-`. Raises InvalidPath."""
        self._name = flag.removeprefix("--").replace("-", " ")
        try:
            self._lines: LogLines = StandardErrorLines(_lost) if path == _STANDARD_ERROR else _PrivateFile(path)
        except OSError as error:
            raise InvalidPath(f"it can't be written: {error.strerror}", place=f"{flag} {path!r}") from error

    def write(self, *lines: Mapping[str, Any]) -> None:
        """Write lines, with the time unless they have it. Logs failures and raises nothing."""
        try:
            self._lines.write(*map(_line, lines))
        except OSError as error:
            _log.error("lines of the %s are lost: %s", self._name, error)

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def time_now() -> str:
    """Return the time as lines have it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _line(about: Mapping[str, Any]) -> str:
    return json.dumps({"time": time_now(), **about})


def _lost(count: int) -> str:
    return _line({"event": "lines lost", "count": count})


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
