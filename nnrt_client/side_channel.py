"""The side channel to a daemon on this host: short packets, and shared memory (side_channel.proto)."""

import array
import logging
import os
import queue
import socket
import struct
import sys
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from nnrt_client.connection import Connection
from nnrt_client.endpoint import Endpoint
from nnrt_client.fork import LockOwner
from nnrt_client.region import Region
from nnrt_hdi import wire
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OutOfMemory
from nnrt_hdi.limits import MAX_BUFFER_BYTES, SIDE_PACKET_BYTES
from nnrt_hdi.tensor import Array, Shape
from nnrt_hdi.v2 import side_channel_pb2

_log = logging.getLogger(__name__)

# Memory for arrays on their way comes in powers of two, from this one on.
_LEAST_STAGED_BYTES = 1 << 16
# What of it may lie idle.
_MOST_IDLE_BYTES = 256 << 20
_MOST_IDLE = 32
# Results that stay in such memory, which makes it the application's as long as it keeps them; others are copied.
_MOST_LENT = 32
# A wait for a reply begins anew after half a second, for a signal (Ctrl-C) that comes just before it doesn't end it.
_WAIT = struct.pack("@ll", 0, 500_000)


class SideConnection:
    """One connection. One request at a time; `end` is for any thread. Who asks waits no longer than for a verdict."""

    def __init__(self, connection: Connection) -> None:
        """Raises ConnectionFailed where nobody listens or knows the session, OutOfMemory for one more than allowed."""
        self._place = f"side channel of the {connection.place}"
        self._patience_s = connection.settings.verdict_timeout_s
        self._socket = _new_socket(self._place)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _WAIT)
            self._socket.settimeout(self._patience_s)
            self._socket.connect(b"\0" + connection.welcome.side_channel)
            self.ask(side_channel_pb2.SideRequest(attach={"session_id": connection.welcome.session_id}))
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError | NnrtError) and not isinstance(error, OutOfMemory):
                raise ConnectionFailed(f"it can't be reached: {error}", place=self._place) from error
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: Any, descriptors: Sequence[int] = ()) -> None:
        """Raises OSError where the daemon is gone."""
        data = request.SerializeToString()
        if descriptors:
            rights = array.array("i", descriptors)
            self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        else:
            self._socket.send(data)

    def receive(self) -> Any:
        """The reply, None at the end of the connection. Raises OSError where it was reset."""
        while True:
            try:
                return self.receive_ready(0)
            except BlockingIOError:
                continue

    def receive_ready(self, how: int = socket.MSG_DONTWAIT) -> Any:
        """The same, of what is there: raises BlockingIOError where nothing is. `how` has flags for recv(2)."""
        data = self._socket.recv(SIDE_PACKET_BYTES, how)
        return self._decoded(data) if data else None

    def ask(self, request: Any, descriptors: Sequence[int] = (), expected: int = 0) -> tuple[Any, list[int]]:
        """Send and receive: the reply, and the descriptors expected with it, the caller's to close.

        Raises what the daemon refuses with, ConnectionFailed at the end of the connection, or where no reply comes.
        """
        try:
            self._socket.settimeout(self._patience_s)
            self.send(request, descriptors)
            data, received, _, _ = socket.recv_fds(self._socket, SIDE_PACKET_BYTES, expected, socket.MSG_CMSG_CLOEXEC)
            self._socket.settimeout(None)  # Runs may take as long as they like.
        except OSError as error:
            raise ConnectionFailed(f"the connection broke: {error}", place=self._place) from error
        except BaseException:  # Such as KeyboardInterrupt. The reply still to come must not answer the next request.
            self.end()
            raise
        try:
            return self._accepted(data), received
        except BaseException:
            for descriptor in received:
                os.close(descriptor)
            raise

    def _accepted(self, data: bytes) -> Any:
        if not data:
            raise ConnectionFailed("the connection has ended", place=self._place)
        reply = self._decoded(data)
        if reply.HasField("error"):
            raise wire.error_from_detail(reply.error)
        return reply

    def end(self) -> None:
        """End the connection; who waits for a reply wakes up."""
        with suppress(OSError):  # It has ended.
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _decoded(self, data: bytes) -> Any:
        try:
            return side_channel_pb2.SideReply.FromString(data)
        except DecodeError as error:
            raise ConnectionFailed(f"a reply can't be decoded: {error}", place=self._place) from error


def _new_socket(place: str) -> socket.socket:
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:  # Such as no descriptors left.
        raise ConnectionFailed(f"it can't be reached: {error}", place=place) from error


class SideChannel(LockOwner):
    """What a session shares with a daemon on this host."""

    def __init__(self, connection: Connection) -> None:
        """Raises ConnectionFailed where the daemon is not here after all."""
        self._connection = connection
        self._buffers: weakref.WeakKeyDictionary[Region, int] = weakref.WeakKeyDictionary()
        self._unused: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._releaser: threading.Thread | None = None
        self.staging = Staging()
        self._control: SideConnection | None = None
        super().__init__()
        self._control = SideConnection(connection)
        connection.on_death(self._close)

    @classmethod
    def of(cls, connection: Connection) -> "SideChannel | None":
        """The side channel of a session, if it has one that can be reached from here."""
        if not connection.settings.share_memory or not connection.welcome.side_channel or sys.platform != "linux":
            return None
        if not Endpoint(connection.address).is_local:
            return None
        try:
            return cls(connection)
        except NnrtError as error:  # Such as a container that has the address, but not the host's sockets.
            _log.info("%s; tensors travel over gRPC", error)
            return None

    def make_locks(self) -> None:
        self._lock = threading.Lock()

    def opened(self) -> SideConnection:
        """A further connection, for runs."""
        return SideConnection(self._connection)

    def buffer_of(self, region: Region) -> int:
        """The session's buffer that is the memory of a region. Raises what the daemon refuses with."""
        buffer_id = self._buffers.get(region)
        if buffer_id is None:
            buffer_id = self._shared(region)
        return buffer_id

    def _shared(self, region: Region) -> int:
        with self._turn():
            if (buffer_id := self._buffers.get(region)) is not None:  # Another thread was first.
                return buffer_id
            request = side_channel_pb2.SideRequest(share={"length": region.size_bytes})
            reply, _ = self._asked(request, (region.fd,))
            buffer_id = int(reply.buffer_id)
            self._buffers[region] = buffer_id
            weakref.finalize(region, self._unused.put, buffer_id).atexit = False
            if self._releaser is None:
                releaser = threading.Thread(target=self._release, name="nnrt-release", daemon=True)
                releaser.start()
                self._releaser = releaser  # One that could not be started is tried again.
        return buffer_id

    def mapped(self, buffer_id: int, size_bytes: int) -> Region | None:
        """The memory of a buffer that the daemon has allocated; None where it is not to be had, or smaller."""
        request = side_channel_pb2.SideRequest(map={"buffer_id": buffer_id})
        try:
            with self._turn():
                _, descriptors = self._asked(request, expected=1)
            (fd,) = descriptors
            region = Region(fd, size_bytes)
        except (NnrtError, OSError, ValueError) as error:  # Such as a session with more buffers than it may share.
            _log.info("memory of the device is not mapped: %s", error)
            return None
        return region if region.is_sealed else None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Be the only one who asks. Raises ConnectionFailed where others wait for their answers too long."""
        if not self._lock.acquire(timeout=self._connection.settings.verdict_timeout_s):
            raise ConnectionFailed("the side channel stands still", place=self._connection.place)
        try:
            yield
        finally:
            self._lock.release()

    def _asked(self, request: Any, descriptors: Sequence[int] = (), expected: int = 0) -> tuple[Any, list[int]]:
        """Ask on the connection that is for this; on a new one where it ended with the session's line."""
        if self._control is not None:
            try:
                return self._control.ask(request, descriptors, expected)
            except ConnectionFailed:
                self._control.close()
                self._control = None
        self._connection.require_alive()
        control = self._control = SideConnection(self._connection)
        self._connection.require_alive()  # Or `_close` has seen no connection that it could end.
        return control.ask(request, descriptors, expected)

    def _release(self) -> None:
        """Let the daemon forget the buffers of regions that are gone. In a thread of its own: regions go anywhere."""
        while (buffer_id := self._unused.get()) is not None:
            request = side_channel_pb2.SideRequest(released_buffers=[buffer_id])
            while not self._unused.empty():
                if (buffer_id := self._unused.get()) is None:
                    return
                request.released_buffers.append(buffer_id)
            try:
                with self._turn():
                    self._asked(request)
            except NnrtError as error:
                _log.debug("buffers may be held to the end of the session: %s", error)

    def _close(self, reason: NnrtError) -> None:
        self._unused.put(None)
        self.staging.close()
        if (control := self._control) is not None:
            control.end()  # Who asks on it holds the lock.
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None


class _Lent(np.ndarray[Any, Any]):
    """Elements in staged memory. It is given back when the last array over it is gone."""


class _Loan(weakref.ref[_Lent]):
    """Watches over lent memory."""

    region: Region


class Staging:
    """Shared memory that arrays pass through, used again and again."""

    def __init__(self) -> None:
        self._idle: defaultdict[int, deque[Region]] = defaultdict(deque)
        self._keeps_idle = True
        # Of all threads, and so only about right.
        self._idle_count = self._idle_bytes = 0
        # By their identities: a reference has the hash of what it refers to, and arrays have none.
        self._loans: dict[int, _Loan] = {}

    def take(self, size_bytes: int) -> Region:
        """Memory of at least that size. Raises OutOfMemory."""
        if size_bytes > MAX_BUFFER_BYTES:
            raise OutOfMemory(f"{size_bytes} bytes are more than a buffer can have")
        staged_bytes = max(1 << (size_bytes - 1).bit_length(), _LEAST_STAGED_BYTES)
        try:
            region = self._idle[staged_bytes].pop()
        except IndexError:
            return Region.allocate(staged_bytes, "nnrt-staged")
        self._idle_count -= 1
        self._idle_bytes -= staged_bytes
        return region

    def give_back(self, region: Region) -> None:
        """The memory has no user any more, here or in the daemon."""
        if (
            self._keeps_idle
            and self._idle_count < _MOST_IDLE
            and self._idle_bytes + region.size_bytes <= _MOST_IDLE_BYTES
        ):
            self._idle_count += 1
            self._idle_bytes += region.size_bytes
            self._idle[region.size_bytes].append(region)

    def close(self) -> None:
        """Free the memory that lies idle, and from now on what is given back."""
        self._keeps_idle = False
        self._idle.clear()

    def result(self, region: Region, dtype: np.dtype[np.generic], shape: Shape) -> Array:
        """The first elements of the memory, read-only; it is given back when nobody has them any more."""
        if len(self._loans) >= _MOST_LENT:
            copy: Array = region.array(dtype, shape).copy()
            self.give_back(region)
            copy.flags.writeable = False
            return copy
        lent = _Lent(shape, dtype, region.view)
        lent.flags.writeable = False
        loan = _Loan(lent, self._returned)
        loan.region = region
        self._loans[id(loan)] = loan
        plain: Array = lent.view(np.ndarray)
        return plain

    def _returned(self, loan: "weakref.ref[_Lent]") -> None:
        self.give_back(self._loans.pop(id(loan)).region)
