"""Local socket to a daemon on this host, for short packets and shared memory (local_socket.proto)."""

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
from nnrt_client.session.errands import call_in_worker
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

# Limit of one wait for a reply. A signal that comes just before a wait doesn't interrupt it, so waits must be short.
_WAIT_S = 0.5


# Memory or file that a daemon on this host can map or read.
Shareable = SharedMemory | OpenFile


class _Shared(weakref.ref[Shareable]):
    """Weak reference to memory that the daemon may have mapped.

    Python drops exceptions that a signal handler raises in a weak reference's callback, so the callback is not Python
    code: it is the `put` of a SimpleQueue.
    """

    buffer_id: int
    # The key in `LocalSocket._known`.
    key: int


class LocalConnection:
    """Connection of the local socket, with one request under way at a time.

    Any thread may call `end`.
    """

    def __init__(self, session: ConnectionState) -> None:
        """Connect to the daemon's local socket.

        Raises ConnectionFailed if no daemon listens or the daemon doesn't know the session, OutOfMemory if the daemon
        allows no more connections.
        """
        self._place = f"local socket of the {session.place}"
        self._patience_s = session.settings.verdict_timeout_s
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:  # For example, no descriptor is left.
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

        # The socket's own methods, because every run calls them. `send` sends a packet, and raises OSError if the
        # daemon is gone. `receive(LOCAL_PACKET_BYTES)` returns a packet, or no bytes at the end of the connection. It
        # waits at most as long as `wait_at_most` sets, and not at all with the flag MSG_DONTWAIT. It raises
        # BlockingIOError if there is no packet yet, OSError if the connection can't be used any more.
        self.send: Callable[[bytes], int] = self._socket.send
        self.receive: Callable[..., bytes] = self._socket.recv

    def fileno(self) -> int:
        return self._socket.fileno()

    def wait_at_most(self, seconds: float) -> None:
        """Set the time after which `receive` raises BlockingIOError."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))

    def ask(
        self, request: "local_socket_pb2.LocalRequest", descriptors: Sequence[int] = (), expected: int = 0
    ) -> "tuple[local_socket_pb2.LocalReply, list[int]]":
        """Send a request and return the reply.

        Args:
            request: The request.
            descriptors: File descriptors to send with it.
            expected: Number of file descriptors that may come with the reply.

        Returns:
            The reply, and its file descriptors, which the caller must close.

        Raises:
            ConnectionFailed: The connection has ended, or no reply comes.
            NnrtError: The daemon replied with this error.
        """
        try:
            self._socket.settimeout(self._patience_s)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            self._socket.sendmsg([request.SerializeToString()], rights)
            data, received, _, _ = socket.recv_fds(self._socket, LOCAL_PACKET_BYTES, expected, socket.MSG_CMSG_CLOEXEC)
            self._socket.settimeout(None)  # Runs may take any time.
        except OSError as error:
            self.end()
            raise ConnectionFailed(f"the connection broke: {error}", place=self._place) from error
        except BaseException:  # End the connection, so that the outstanding reply doesn't answer the next request.
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
        """End the connection, which wakes a thread that waits for a reply."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:  # It has ended already.
            if raised_by_handler(error):
                raise

    def close(self) -> None:
        self._socket.close()


def _timeval(seconds: float) -> bytes:
    """Return a time as the kernel's struct timeval, at least one microsecond, because 0 means no limit."""
    whole = int(seconds)
    return struct.pack("@ll", whole, max(int((seconds - whole) * 1e6), not whole))


class WaitsForDaemon(Exception):
    """Error raised in the loop in place of a call that would wait for the daemon. Another thread must make the call."""


class LocalSocket(LockOwner):
    """Local socket of a session: it shares memory with a daemon on this host."""

    def __init__(self, session: ConnectionState) -> None:
        """Connect to the local socket. Raise ConnectionFailed if the daemon can't be reached there."""
        self._session = session
        # `_known`: memory that the daemon has mapped, by its `id()`. `_shared`: memory that it may have mapped, by
        # buffer id.
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
    def connect(cls, session: ConnectionState) -> "LocalSocket | None":
        """Connect a session to its daemon's local socket. Return None if there is none or it can't be reached."""
        if not session.settings.share_memory or not session.welcome.local_socket or sys.platform != "linux":
            return None
        if not Address(session.address).is_local:
            return None
        try:
            return call_in_worker(cls, session)
        except NnrtError as error:  # For example, this container has the host's address, but not its sockets.
            _log.info("%s; tensors travel over gRPC", error)
            return None

    def _make_locks(self) -> None:
        # Only threads that receive no signals take this lock, because it is locked for long.
        self._lock = threading.Lock()

    def buffer_of(self, memory: SharedMemory) -> int:
        """Return the daemon's buffer id of shared memory. The first call asks the daemon to map the memory.

        Raises the daemon's error, and WaitsForDaemon if the loop calls this and the daemon must be asked.
        """
        shared = self._known.get(id(memory))
        if shared is not None and shared() is memory:
            return shared.buffer_id
        if io_loop().is_here:
            raise WaitsForDaemon
        return call_in_worker(self._share, memory, memory.fd, {"length": memory.size_bytes})

    def share_file(self, file: OpenFile) -> int:
        """Pass a file to the daemon, and return the id by which it reads constants there. Raise the daemon's error."""
        return call_in_worker(self._share, file, file.descriptor, {"is_file": True})

    def _share(self, memory: Shareable, fd: int, about: Mapping[str, int]) -> int:
        with self._turn():
            known = self._known.get(id(memory))
            if known is not None and known() is memory:  # Another thread was first.
                return known.buffer_id
            shared = _Shared(memory, self._unused.put)
            shared.buffer_id = buffer_id = next(self._buffer_ids)
            shared.key = id(memory)
            # Set before the request, because the daemon may map the memory even if its reply is lost.
            self._shared[buffer_id] = shared
            if self._releaser is None:
                releaser = threading.Thread(target=self._release, name="nnrt-release", daemon=True)
                releaser.start()
                self._releaser = releaser  # Only now, so that the next call repeats a failed start.
            request = local_socket_pb2.LocalRequest(share={**about, "buffer_id": buffer_id})
            self._ask(request, (fd,))
            self._known[id(memory)] = shared
        return buffer_id

    def map_buffer(self, buffer_id: int, size_bytes: int) -> SharedMemory | None:
        """Map the memory of a buffer that the daemon has allocated. Return None if that fails or it is too small."""
        return call_in_worker(self._map, buffer_id, size_bytes)

    def _map(self, buffer_id: int, size_bytes: int) -> SharedMemory | None:
        request = local_socket_pb2.LocalRequest(map={"buffer_id": buffer_id})
        try:
            with self._turn():
                _, descriptors = self._ask(request, expected=1)
            (fd,) = descriptors
            memory = SharedMemory(fd, size_bytes)
        except (NnrtError, OSError, ValueError) as error:  # For example, the session may share no more buffers.
            _log.info("memory of the device is not mapped: %s", error)
            return None
        return memory if memory.is_sealed else None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one thread at a time make requests. Raise ConnectionFailed if this thread's turn doesn't come in time."""
        if not self._lock.acquire(timeout=self._session.settings.verdict_timeout_s):
            raise ConnectionFailed("the local socket stands still", place=self._session.place)
        try:
            yield
        finally:
            self._lock.release()

    def _ask(
        self, request: "local_socket_pb2.LocalRequest", descriptors: Sequence[int] = (), expected: int = 0
    ) -> "tuple[local_socket_pb2.LocalReply, list[int]]":
        """Make a request on the control connection, or on a new one if that has ended. See `LocalConnection.ask`.

        The daemon ends the control connection when the session's channel is lost.
        """
        if self._control is not None:
            try:
                return self._control.ask(request, descriptors, expected)
            except ConnectionFailed:
                self._control.close()
                self._control = None
        self._session.require_alive()
        control = self._control = LocalConnection(self._session)
        self._session.require_alive()  # Checked again: `_close` may have run when there was no connection to end.
        return control.ask(request, descriptors, expected)

    def _release(self) -> None:
        """Report freed memory to the daemon, in a thread of its own, because any thread may free memory."""
        while (gone := self._unused.get()) is not None:
            request = local_socket_pb2.LocalRequest(released_buffers=[self._forget(gone)])
            while not self._unused.empty():
                if (gone := self._unused.get()) is None:
                    return
                request.released_buffers.append(self._forget(gone))
            del gone
            try:
                with self._turn():
                    self._ask(request)
            except NnrtError as error:
                _log.debug("the daemon may keep buffers until the session ends: %s", error)

    def _forget(self, gone: "weakref.ref[Shareable]") -> int:
        """Forget memory that has been freed, and return its buffer id."""
        assert isinstance(gone, _Shared)
        del self._shared[gone.buffer_id]
        if self._known.get(gone.key) is gone:  # Else other memory has this `id()` now.
            del self._known[gone.key]
        return gone.buffer_id

    def _close(self, reason: NnrtError) -> None:
        self._unused.put(None)
        self.staging.close()
        if (control := self._control) is not None:
            control.end()  # Wakes a thread that waits for a reply, and has the lock.
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
