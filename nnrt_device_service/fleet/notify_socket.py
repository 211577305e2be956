"""Supervisor's end of the protocol in which daemons send their state; see `nnrt_device_service.host.readiness`."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nnrt_device_service.host.peer import CREDENTIALS

_DATAGRAM_BYTES = 4096


class Notice(NamedTuple):
    """Notice from a process. The kernel vouches for the `pid`; the process chose the fields."""

    pid: int
    fields: dict[str, str]


class NotifySocket:
    """Unix socket that receives notices."""

    def __init__(self, path: Path) -> None:
        """Bind the socket to `path`, in place of the socket of an earlier supervisor."""
        path.unlink(missing_ok=True)
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(str(path))

    def fileno(self) -> int:
        return self._socket.fileno()

    def notices(self) -> Iterator[Notice]:
        """Yield the notices that have arrived; never blocks."""
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_DATAGRAM_BYTES, socket.CMSG_SPACE(CREDENTIALS.size))
            except BlockingIOError:
                return
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    pid, _, _ = CREDENTIALS.unpack(content[: CREDENTIALS.size])
                    lines = (line.partition("=") for line in data.decode(errors="replace").splitlines())
                    yield Notice(pid, {name: value for name, _, value in lines})

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)
