"""The socket of a supervisor, which daemons tell how they are."""

import socket
from contextlib import suppress

from waiting import DEADLINE_S


class Listener:
    """Takes what daemons say, from the first on."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)

    def next(self, with_field: str, patience_s: float = DEADLINE_S) -> dict[str, str]:
        """Wait for what has this field. Raises TimeoutError."""
        self._socket.settimeout(patience_s)
        while True:
            lines = self._socket.recv(4096).decode().splitlines()
            fields = {name: value for name, _, value in (line.partition("=") for line in lines)}
            if with_field in fields:
                return fields

    def drain(self) -> None:
        """Read what has come."""
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(4096)

    def close(self) -> None:
        self._socket.close()
