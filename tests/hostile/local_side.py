"""Client of the daemon's local socket that can send any bytes."""

import array
import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from raw_client import DEADLINE_S, RawClient

from nnrt_hdi import wire
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.v2 import local_socket_pb2


class Side:
    """Connection to the local socket, attached to a session if `session_id` is given."""

    def __init__(self, welcome: Any, session_id: bytes | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(b"\0" + welcome.local_socket)
        if session_id is not None:
            try:
                self.attach(session_id)
            except BaseException:
                self.close()
                raise

    def attach(self, session_id: bytes) -> Any:
        return self.ask(local_socket_pb2.LocalRequest(attach={"session_id": session_id}))

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self.socket.sendmsg([data], rights)

    def receive(self) -> Any:
        """Return the next reply, or None after the last. Raises the error in it."""
        return self.reply_of(self.receive_packet())

    def receive_packet(self) -> bytes:
        """Return the next packet, or b"" after the last."""
        return self.socket.recv(LOCAL_PACKET_BYTES)

    @staticmethod
    def reply_of(packet: bytes) -> Any:
        """Return the message in a packet, or None if the packet is empty. Raises the error in it."""
        if not packet:
            return None
        reply = local_socket_pb2.LocalReply.FromString(packet)
        if reply.HasField("error"):
            raise wire.error_from_detail(reply.error)
        return reply

    def ask(self, request: Any, descriptors: Sequence[int] = ()) -> Any:
        self.send(request.SerializeToString(), descriptors)
        return self.receive()

    def share(self, fd: int, length: int, buffer_id: int = 0) -> int:
        request = local_socket_pb2.LocalRequest(share={"length": length, "buffer_id": buffer_id})
        return int(self.ask(request, (fd,)).buffer_id)

    def close(self) -> None:
        self.socket.close()


@contextmanager
def side_of(client: RawClient) -> Iterator[Side]:
    side = Side(client.welcome, client.welcome.session_id)
    try:
        yield side
    finally:
        side.close()


@contextmanager
def memfd(size: int, seals: int = fcntl.F_SEAL_SHRINK) -> Iterator[int]:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        if seals:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        yield fd
    finally:
        os.close(fd)
