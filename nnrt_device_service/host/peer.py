"""Process at the other end of a Unix socket, from the kernel."""

import socket
import struct
from typing import NamedTuple

CREDENTIALS = struct.Struct("iII")
"""Process id, user id and group id, as in `struct ucred` of unix(7)."""


class Peer(NamedTuple):
    """Process on this host, from the kernel."""

    pid: int
    user_id: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end: the one that connected, or the one that listens. Raises OSError."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return Peer(*CREDENTIALS.unpack(credentials)[:2])
