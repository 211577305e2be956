"""Who is at the other end of a Unix socket, by the kernel's word."""

import socket
import struct
from typing import NamedTuple

CREDENTIALS = struct.Struct("iII")
"""The process, its user and its group, as in `struct ucred` of unix(7)."""


class Peer(NamedTuple):
    """A process on this host, as the kernel names it."""

    pid: int
    user_id: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process that connected, or that listened where this one connected. Raises OSError."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return Peer(*CREDENTIALS.unpack(credentials)[:2])
