"""The audit log: who did what, one JSON line for each session, compilation and refusal. No secret stands in it."""

import json
import logging
import os
import sys
from datetime import datetime, timezone
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Any

from nnrt_device_service.access.identity import Identity
from nnrt_hdi.errors import InvalidPath

_log = logging.getLogger(__name__)

_STANDARD_ERROR = "-"


class AuditLog:
    """Writes lines to a file, which may be moved away while the daemon runs, or to the standard error."""

    def __init__(self, path: str) -> None:
        """Without a path nothing is written. Raises InvalidPath for a file that can't be."""
        self._handler: logging.Handler | None = None
        if path:
            try:
                self._handler = logging.StreamHandler(sys.stderr) if path == _STANDARD_ERROR else _PrivateFile(path)
            except OSError as error:
                raise InvalidPath(f"it can't be written: {error.strerror}", place=f"--audit-log {path!r}") from error

    def write(self, event: str, identity: Identity | None, **about: Any) -> None:
        """Write a line. One that can't be written is lost, with an error in the daemon's log."""
        if self._handler is None:
            return
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        who = {"identity": str(identity), "role": str(identity.role)} if identity else {"identity": None}
        line = json.dumps({"time": now, "event": event, **who, **about})
        self._handler.handle(logging.makeLogRecord({"msg": line}))


class _PrivateFile(WatchedFileHandler):
    """A file that only its owner reads."""

    def __init__(self, path: str) -> None:
        super().__init__(path, encoding="utf-8")
        self._is_lost = False

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, "a", encoding=self.encoding)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # Raised where the file has been moved away and no other one can be made.
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not self._is_lost:  # Once, for there may be many.
            _log.error("lines of the audit log are lost: %s", sys.exc_info()[1])
        self._is_lost = True
