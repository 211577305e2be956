"""Messages of the local socket: requests of clients other than runs."""

import os
import socket
from contextlib import suppress

from google.protobuf.message import DecodeError

from nnrt_device_service.runs.failures import report_error
from nnrt_device_service.sessions.session import Session
from nnrt_hdi import wire
from nnrt_hdi.errors import InvalidParameter, OperationForbidden
from nnrt_hdi.v2.local_socket_pb2 import LocalReply, LocalRequest, ShareBuffer
from nnrt_hdi.wire.packets import send_packet

# Stands for a method name in errors and log entries.
PLACE = "the local socket"


def answer_message(session: Session, connection: socket.socket, request: LocalRequest, fd: int | None) -> None:
    """Answer a message and the descriptor that came with it, if any, which the caller closes. Raises OSError."""
    for buffer_id in request.released_buffers:
        session.release_buffer(buffer_id)
    reply, descriptors = LocalReply(), list[int]()
    try:
        match request.WhichOneof("request"):
            case "share":
                if fd is None:
                    raise InvalidParameter(
                        "no descriptor came with it; send one, where no frame has come", place="ShareBuffer"
                    )
                reply.buffer_id = _adopt(session, fd, request.share)
            case "map":
                mapped, reply.length = session.buffers.descriptor(request.map.buffer_id)
                descriptors.append(mapped)
            case "attach":
                raise OperationForbidden("the connection is attached already")
            case _:
                if not request.released_buffers:
                    raise InvalidParameter("the packet has no request that is known; send one")
                reply.done = True
    except Exception as error:
        error_sent = report_error(error, PLACE, session)
        session.usage.count_error(error_sent)
        reply = LocalReply(error=wire.error_detail(error_sent))
    try:
        send_packet(connection, reply, descriptors)
    except OSError:
        if not request.share.buffer_id:  # The client never learns the id, and shares the memory again.
            session.release_buffer(reply.buffer_id)
        raise
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _adopt(session: Session, fd: int, share: ShareBuffer) -> int:
    if not share.is_file:
        return session.buffers.adopt(fd, share.length, share.buffer_id)
    assert session.local_peer is not None
    return session.files.adopt(fd, share.buffer_id, session.local_peer.user_id)


def end_connection(connection: socket.socket) -> None:
    """End a connection. Any thread may call this."""
    with suppress(OSError):  # It may have ended already.
        connection.shutdown(socket.SHUT_RDWR)


def undecodable(error: DecodeError) -> InvalidParameter:
    return InvalidParameter(f"the packet can't be decoded: {error}")


def refuse(connection: socket.socket, error: Exception, session: Session | None = None) -> None:
    """Send the reason why a connection ends, without waiting: a client that doesn't read must not block the thread."""
    error_sent = report_error(error, PLACE, session)
    with suppress(OSError):
        connection.setblocking(False)
        send_packet(connection, LocalReply(error=wire.error_detail(error_sent)))
