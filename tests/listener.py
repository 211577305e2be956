"""Socket of a supervisor, to which daemons send their state."""

import socket
from contextlib import suppress

from waiting import DEADLINE_S


class Listener:
    """Receiver of the messages that daemons send to their supervisor."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)

    def next(self, with_field: str, patience_s: float = DEADLINE_S) -> dict[str, str]:
        """Wait for a message that has this field, and return its fields. Raises TimeoutError."""
        self._socket.settimeout(patience_s)
        while True:
            lines = self._socket.recv(4096).decode().splitlines()
            fields = {name: value for name, _, value in (line.partition("=") for line in lines)}
            if with_field in fields:
                return fields

    def drain(self) -> None:
        """Discard the messages that have arrived."""
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(4096)

    def close(self) -> None:
        self._socket.close()
