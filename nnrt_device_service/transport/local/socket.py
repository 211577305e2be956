"""Local socket: runs and shared memory for clients on this host (protos/nnrt_hdi/v2/local_socket.proto)."""

import logging
import secrets
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from functools import partial

from google.protobuf.message import DecodeError

from nnrt_device_service.device import Device
from nnrt_device_service.host.peer import peer_of
from nnrt_device_service.host.threads import start_thread
from nnrt_device_service.runs.replies import Replies
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.local.batchers import LocalBatchers
from nnrt_device_service.transport.local.connection import LocalConnection
from nnrt_device_service.transport.local.messages import PLACE, end_connection, refuse, undecodable
from nnrt_device_service.transport.local.reactor import Reactor
from nnrt_hdi.access.identity import Role
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, OutOfMemory
from nnrt_hdi.shared_memory import has_few_descriptors
from nnrt_hdi.v2 import local_socket_pb2
from nnrt_hdi.wire.packets import receive_packet, send_packet

_log = logging.getLogger(__name__)

# Seconds that a new connection gets to send Attach.
_ATTACH_S = 2.0
# SO_SNDTIMEO: two seconds that a client gets to read earlier replies if there is no room for the next one.
_SEND = struct.pack("@ll", 2, 0)
# Most connections that have not sent Attach yet.
_UNATTACHED = 64
# Seconds between attempts to accept while the process has no descriptor left.
_PAUSE_S = 0.1


class LocalSocket:
    """Listener for clients on this host; a reactor serves their connections."""

    def __init__(self, device: Device, replies: Replies) -> None:
        """Bind the socket to a new abstract name; raise OSError if the host has no such sockets."""
        self._device = device
        self._replies = replies
        self._batchers = LocalBatchers(device)
        self._reactor = Reactor("local-socket")
        self._stopped = threading.Event()
        self._unattached = threading.Semaphore(_UNATTACHED)
        self.name = b"nnrt-" + secrets.token_hex(16).encode()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(b"\0" + self.name)

    def start(self) -> None:
        self._reactor.start()
        self._listener.listen()
        start_thread(self._accept, "local-socket")

    def stop(self) -> None:
        """Accept no more connections; existing ones end with their sessions."""
        self._stopped.set()
        self._reactor.stop()
        with suppress(OSError):  # The socket may not have been started.
            self._listener.shutdown(socket.SHUT_RDWR)  # `close` would not wake the thread in `accept`.

    def _accept(self) -> None:
        is_refusing = False
        with self._listener:
            while not self._stopped.is_set():
                try:
                    connection, _ = self._listener.accept()
                except OSError as error:
                    if not self._stopped.wait(_PAUSE_S) and not is_refusing:  # Log it once, as the loop tries again.
                        _log.warning("the local socket takes no connection: %s", error.strerror)
                        is_refusing = True
                    continue
                is_refusing = False
                if has_few_descriptors(connection.fileno()) or not self._unattached.acquire(blocking=False):
                    connection.close()
                    continue
                try:
                    self._device.threads.run(partial(self._attach, connection))
                except OutOfMemory as error:
                    self._unattached.release()
                    connection.close()
                    _log.warning("the local socket takes no connection: %s", error)
                    self._stopped.wait(_PAUSE_S)

    def _attach(self, connection: socket.socket) -> None:
        """Let the reactor serve a new connection, if it attaches itself to a session."""
        with ExitStack() as resources:
            resources.enter_context(connection)
            try:
                try:
                    session = self._read_attach(connection)
                finally:
                    self._unattached.release()
                if session is not None:
                    resources.enter_context(session.calls.count_local_connection(partial(end_connection, connection)))
                    send_packet(connection, local_socket_pb2.LocalReply(done=True))
                    taken = resources.pop_all()
                    self._reactor.add(
                        LocalConnection(
                            self._device, self._replies, self._reactor, self._batchers, session, connection, taken
                        )
                    )
            except OSError:
                pass  # The client is gone.
            except Exception as error:
                refuse(connection, error)

    def _read_attach(self, connection: socket.socket) -> Session | None:
        """Return the session that a new connection attaches itself to, or None if it sends nothing."""
        connection.settimeout(_ATTACH_S)
        data, _ = receive_packet(connection)
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND)
        if not data:
            return None
        try:
            request = local_socket_pb2.LocalRequest.FromString(data)
        except DecodeError as error:
            raise undecodable(error) from error
        if request.WhichOneof("request") != "attach":
            raise InvalidParameter("the first request on the local socket must be Attach")
        session = self._device.sessions.find(request.attach.session_id)
        try:
            session.identity.require(Role.RUN, PLACE)
            session.attach(peer_of(connection))
        except OperationForbidden as error:
            session.usage.count_error(error)
            who = session.identity
            self._device.refusals.audit(str(who), who, session=session.label, method=PLACE, cause=str(error))
            raise
        return session
