"""The local socket to a daemon on this host: short packets, and shared memory (local_socket.proto)."""

import array
import logging
import os
import queue
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from google.protobuf.message import DecodeError

from nnrt_client.session.address import Address
from nnrt_client.session.connection_state import ConnectionState
from nnrt_client.session.errands import elsewhere
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.io_loop import io_loop
from nnrt_client.session.staging_pool import StagingPool
from nnrt_hdi import wire
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OutOfMemory
from nnrt_hdi.files.file_part import OpenFile
from nnrt_hdi.limits import FIRST_CLIENT_BUFFER_ID, LOCAL_PACKET_BYTES
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.v2 import local_socket_pb2

_log = logging.getLogger(__name__)

# A wait for a reply begins anew after half a second: a signal that comes just before it doesn't end it.
_WAIT_S = 0.5


# What a daemon on this host can have.
Shareable = SharedMemory | OpenFile


class _Shared(weakref.ref[Shareable]):
    """Watches over memory that the daemon may have. Python drops what a signal handler raises in a function that is
    called when an object goes, so what is called then is no Python code."""

    buffer_id: int
    # By which it is known.
    key: int


class LocalConnection:
    """One connection, on which one request at a time is under way; `end` is for any thread."""

    def __init__(self, session: ConnectionState) -> None:
        """Raises ConnectionFailed where nobody listens or knows the session, OutOfMemory for one more than allowed."""
        self._place = f"local socket of the {session.place}"
        self._patience_s = session.settings.verdict_timeout_s
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:  # Such as no descriptors left.
            raise ConnectionFailed(f"it can't be reached: {error}", place=self._place) from error
        try:
            self.wait_at_most(_WAIT_S)
            self._socket.settimeout(self._patience_s)
            self._socket.connect(b"\0" + session.welcome.local_socket)
            self.ask(local_socket_pb2.LocalRequest(attach={"session_id": session.welcome.session_id}))
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError | NnrtError) and not isinstance(error, OutOfMemory):
                raise ConnectionFailed(f"it can't be reached: {error}", place=self._place) from error
            raise

        # The socket's own methods, for every run comes here. `send` sends a packet; raises OSError where the daemon is
        # gone. `receive(LOCAL_PACKET_BYTES)` gives a packet, no bytes at the end of the connection; waits half a second
        # for it at most, with the flag MSG_DONTWAIT not at all. Raises BlockingIOError where there is none yet, OSError
        # where the connection is of no more use.
        self.send: Callable[[bytes], int] = self._socket.send
        self.receive: Callable[..., bytes] = self._socket.recv

    def fileno(self) -> int:
        return self._socket.fileno()

    def wait_at_most(self, seconds: float) -> None:
        """Have `receive` raise BlockingIOError after so long."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _wait(seconds))

    def ask(
        self, request: "local_socket_pb2.LocalRequest", descriptors: Sequence[int] = (), expected: int = 0
    ) -> "tuple[local_socket_pb2.LocalReply, list[int]]":
        """Send and receive: the reply, and the descriptors expected with it, the caller's to close.

        Raises what the daemon refuses with, ConnectionFailed at the end of the connection, or where no reply comes.
        """
        try:
            self._socket.settimeout(self._patience_s)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            self._socket.sendmsg([request.SerializeToString()], rights)
            data, received, _, _ = socket.recv_fds(self._socket, LOCAL_PACKET_BYTES, expected, socket.MSG_CMSG_CLOEXEC)
            self._socket.settimeout(None)  # Runs may take as long as they like.
        except OSError as error:
            self.end()
            raise ConnectionFailed(f"the connection broke: {error}", place=self._place) from error
        except BaseException:  # The reply still to come must not answer the next request.
            self.end()
            raise
        try:
            if not data:
                raise ConnectionFailed("the connection has ended", place=self._place)
            try:
                reply = local_socket_pb2.LocalReply.FromString(data)
            except DecodeError as error:
                raise ConnectionFailed(f"a reply can't be decoded: {error}", place=self._place) from error
            if reply.HasField("error"):
                raise wire.error_from_detail(reply.error)
        except BaseException:
            for descriptor in received:
                os.close(descriptor)
            raise
        return reply, received

    def end(self) -> None:
        """End the connection; who waits for a reply wakes up."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:  # It has ended.
            if raised_by_handler(error):
                raise

    def close(self) -> None:
        self._socket.close()


def _wait(seconds: float) -> bytes:
    """A time as the kernel has it, of a microsecond at least: none would be for ever."""
    whole = int(seconds)
    return struct.pack("@ll", whole, max(int((seconds - whole) * 1e6), not whole))


class WaitsForDaemon(Exception):
    """The loop would wait for an answer of the daemon. Another thread may."""


class LocalSocket(LockOwner):
    """Shares memory between a session and a daemon on this host."""

    def __init__(self, session: ConnectionState) -> None:
        """Raises ConnectionFailed where the daemon is not here after all."""
        self._session = session
        # What the daemon has, by the identity of each memory; and what it may have, by its number.
        self._known: dict[int, _Shared] = {}
        self._shared: dict[int, _Shared] = {}
        self._buffer_ids = count(FIRST_CLIENT_BUFFER_ID)
        self._unused: queue.SimpleQueue[weakref.ref[Shareable] | None] = queue.SimpleQueue()
        self._releaser: threading.Thread | None = None
        self.staging = StagingPool()
        self._control: LocalConnection | None = None
        super().__init__()
        self._control = LocalConnection(session)
        session.on_death(self._close)

    @classmethod
    def of(cls, session: ConnectionState) -> "LocalSocket | None":
        """Connect a session to its daemon's local socket; None where there is none that can be reached from here."""
        if not session.settings.share_memory or not session.welcome.local_socket or sys.platform != "linux":
            return None
        if not Address(session.address).is_local:
            return None
        try:
            return elsewhere(cls, session)
        except NnrtError as error:  # Such as a container that has the address, but not the host's sockets.
            _log.info("%s; tensors travel over gRPC", error)
            return None

    def _make_locks(self) -> None:
        # Of threads that get no signals: what it guards takes long.
        self._lock = threading.Lock()

    def buffer_of(self, memory: SharedMemory) -> int:
        """Give the id of the buffer that a shared memory is to the daemon, which is asked to map it the first time.
        Raises what the daemon refuses with, and WaitsForDaemon in the loop where it has to be asked."""
        shared = self._known.get(id(memory))
        if shared is not None and shared() is memory:
            return shared.buffer_id
        if io_loop().is_here:
            raise WaitsForDaemon
        return elsewhere(self._share, memory, memory.fd, {"length": memory.size_bytes})

    def buffer_of_file(self, file: OpenFile) -> int:
        """Give the id by which the daemon reads constants from a file. Raises what the daemon refuses with."""
        return elsewhere(self._share, file, file.descriptor, {"is_file": True})

    def _share(self, memory: Shareable, fd: int, about: Mapping[str, int]) -> int:
        with self._turn():
            known = self._known.get(id(memory))
            if known is not None and known() is memory:  # Another thread was first.
                return known.buffer_id
            shared = _Shared(memory, self._unused.put)
            shared.buffer_id = buffer_id = next(self._buffer_ids)
            shared.key = id(memory)
            # Before it is asked for: the daemon may have it though its reply is lost.
            self._shared[buffer_id] = shared
            if self._releaser is None:
                releaser = threading.Thread(target=self._release, name="nnrt-release", daemon=True)
                releaser.start()
                self._releaser = releaser  # One that could not be started is tried again.
            request = local_socket_pb2.LocalRequest(share={**about, "buffer_id": buffer_id})
            self._asked(request, (fd,))
            self._known[id(memory)] = shared
        return buffer_id

    def mapped(self, buffer_id: int, size_bytes: int) -> SharedMemory | None:
        """Map the memory of a buffer that the daemon has allocated; None where it is not to be had, or smaller."""
        return elsewhere(self._map, buffer_id, size_bytes)

    def _map(self, buffer_id: int, size_bytes: int) -> SharedMemory | None:
        request = local_socket_pb2.LocalRequest(map={"buffer_id": buffer_id})
        try:
            with self._turn():
                _, descriptors = self._asked(request, expected=1)
            (fd,) = descriptors
            memory = SharedMemory(fd, size_bytes)
        except (NnrtError, OSError, ValueError) as error:  # Such as a session with more buffers than it may share.
            _log.info("memory of the device is not mapped: %s", error)
            return None
        return memory if memory.is_sealed else None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one thread ask at a time. Raises ConnectionFailed where others wait for their answers too long."""
        if not self._lock.acquire(timeout=self._session.settings.verdict_timeout_s):
            raise ConnectionFailed("the local socket stands still", place=self._session.place)
        try:
            yield
        finally:
            self._lock.release()

    def _asked(
        self, request: "local_socket_pb2.LocalRequest", descriptors: Sequence[int] = (), expected: int = 0
    ) -> "tuple[local_socket_pb2.LocalReply, list[int]]":
        """Ask on the connection that is for this; on a new one where it ended with the session's channel."""
        if self._control is not None:
            try:
                return self._control.ask(request, descriptors, expected)
            except ConnectionFailed:
                self._control.close()
                self._control = None
        self._session.require_alive()
        control = self._control = LocalConnection(self._session)
        self._session.require_alive()  # Or `_close` has seen no connection that it could end.
        return control.ask(request, descriptors, expected)

    def _release(self) -> None:
        """Let the daemon forget the buffers of memory that is gone. In a thread of its own, for any thread frees
        memory."""
        while (gone := self._unused.get()) is not None:
            request = local_socket_pb2.LocalRequest(released_buffers=[self._forgotten(gone)])
            while not self._unused.empty():
                if (gone := self._unused.get()) is None:
                    return
                request.released_buffers.append(self._forgotten(gone))
            del gone
            try:
                with self._turn():
                    self._asked(request)
            except NnrtError as error:
                _log.debug("buffers may be held to the end of the session: %s", error)

    def _forgotten(self, gone: "weakref.ref[Shareable]") -> int:
        """Forget memory that is gone, and give the number that it had. Its identity may be another's by now."""
        assert isinstance(gone, _Shared)
        del self._shared[gone.buffer_id]
        if self._known.get(gone.key) is gone:
            del self._known[gone.key]
        return gone.buffer_id

    def _close(self, reason: NnrtError) -> None:
        self._unused.put(None)
        self.staging.close()
        if (control := self._control) is not None:
            control.end()  # Who asks on it holds the lock.
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
