"""Packets of the local socket: a message each, perhaps with descriptors (local_socket.proto).

A receiver that expects no descriptor may call `recv` instead.
"""

import array
import os
import socket
import sys
from collections.abc import Sequence

from google.protobuf.message import Message

from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.limits import LOCAL_PACKET_BYTES

IS_POSSIBLE = sys.platform == "linux"

# Plain numbers: operations on the enum's flags take microseconds.
AT_ONCE = int(socket.MSG_DONTWAIT) if IS_POSSIBLE else 0
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC) if IS_POSSIBLE else 0
PEEK = AT_ONCE | int(socket.MSG_PEEK)
_TOO_LONG = int(socket.MSG_TRUNC)
_CUT_SHORT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_NO_ROOM = int(socket.MSG_CTRUNC)
_DESCRIPTOR_BYTES = array.array("i").itemsize
# Room for one descriptor. The kernel closes any others.
_ANCILLARY_BYTES = socket.CMSG_LEN(_DESCRIPTOR_BYTES) if IS_POSSIBLE else 0


def send_packet(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message with descriptors, which stay the caller's. Raise OSError if the other end is gone."""
    if not descriptors:
        connection.send(message.SerializeToString())
        return
    rights = array.array("i", descriptors)
    connection.sendmsg([message.SerializeToString()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def receive_packet(
    connection: socket.socket, flags: int = 0, *, takes_descriptor: bool = False
) -> tuple[bytes, int | None]:
    """Receive the next packet.

    Without `takes_descriptor` the kernel drops descriptors. Were they received and closed, the peer's own file system
    could make this process wait for ever.

    Returns:
        The bytes, empty at the end; and a descriptor or None, which the caller must close.

    Raises:
        InvalidParameter: The packet is too long, or has several descriptors.
        OutOfMemory: This process has no room for a descriptor.
        OSError: The other end is gone or too slow.
    """
    room = _ANCILLARY_BYTES if takes_descriptor else 0
    data, ancillary, found, _ = connection.recvmsg(LOCAL_PACKET_BYTES, room, flags | _CLOSE_ON_EXEC)
    descriptor = array.array("i", ancillary[0][2][:_DESCRIPTOR_BYTES])[0] if ancillary else None
    if found & (_CUT_SHORT if takes_descriptor else _TOO_LONG):
        if descriptor is not None:
            os.close(descriptor)
        elif found & _NO_ROOM:
            raise OutOfMemory("a descriptor came, and there is no room for it; this process has too many open")
        raise InvalidParameter(f"a packet has over {LOCAL_PACKET_BYTES} bytes or more than one descriptor; send less")
    return data, descriptor
