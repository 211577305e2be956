"""Audit log: one JSON line for each session, compilation and refusal, with the identity. Contains no secrets."""

from typing import Any

from nnrt_hdi.access.identity import Identity
from nnrt_hdi.access.json_lines import JsonLines


class AuditLog:
    """Audit log in a file, which may be moved away (rotated) at any time, or on standard error."""

    def __init__(self, path: str) -> None:
        """Open the log: a file, `-` for standard error, or an empty path for none. Raises InvalidPath."""
        self._lines = JsonLines(path, "--audit-log") if path else None

    def write(self, event: str, identity: Identity | None, **about: Any) -> None:
        """Write a line about an event. Logs failures and raises nothing."""
        if self._lines is not None:
            who = {"identity": str(identity), "role": str(identity.role)} if identity else {"identity": None}
            self._lines.write({"event": event, **who, **about})

    def close(self) -> None:
        """Close the file. Later writes do nothing."""
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()
