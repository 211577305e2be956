"""Packets of the local socket at both of its ends: a message each, and perhaps descriptors (local_socket.proto).

Who expects no descriptor may as well call `recv`: what comes without one needs nothing of this.
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

# Numbers, for operations on flags of the enum take microseconds.
AT_ONCE = int(socket.MSG_DONTWAIT) if IS_POSSIBLE else 0
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC) if IS_POSSIBLE else 0
PEEK = AT_ONCE | int(socket.MSG_PEEK)
_TOO_LONG = int(socket.MSG_TRUNC)
_CUT_SHORT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_NO_ROOM = int(socket.MSG_CTRUNC)
_DESCRIPTOR_BYTES = array.array("i").itemsize
# Exactly one descriptor fits. The kernel closes any others that come with it.
_ANCILLARY_BYTES = socket.CMSG_LEN(_DESCRIPTOR_BYTES) if IS_POSSIBLE else 0


def send_packet(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message, and descriptors that stay the caller's. Raises OSError where the other end is gone."""
    if not descriptors:
        connection.send(message.SerializeToString())
        return
    rights = array.array("i", descriptors)
    connection.sendmsg([message.SerializeToString()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def receive_packet(
    connection: socket.socket, flags: int = 0, *, takes_descriptor: bool = False
) -> tuple[bytes, int | None]:
    """The bytes of the next packet, none at the end, and the descriptor with it, which is the caller's to close.

    Descriptors that aren't taken the kernel drops, without telling the file systems that they are of: one of a peer's
    own would have whoever closes them wait for it, and no signal would end that. `flags` are for recvmsg(2). Raises
    InvalidParameter for a packet that is too long or has several descriptors, OutOfMemory where this process has no
    room for a descriptor, OSError where the other end is gone or too slow.
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
