"""The side channel: runs and shared memory for clients on this host (protos/nnrt_hdi/v2/side_channel.proto)."""

import array
import logging
import os
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from google.protobuf.message import DecodeError

from nnrt_device_service import shared_memory
from nnrt_device_service.crew import Crew
from nnrt_device_service.device import Device
from nnrt_device_service.interceptor import as_nnrt_error
from nnrt_device_service.run_requests import Answer, RunRequests, Said
from nnrt_device_service.runs import Run
from nnrt_device_service.session import Peer, Session
from nnrt_device_service.settings import Settings
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, OutOfMemory
from nnrt_hdi.limits import SIDE_PACKET_BYTES
from nnrt_hdi.v2 import prepared_model_pb2, side_channel_pb2

_log = logging.getLogger(__name__)

IS_POSSIBLE = sys.platform == "linux"

_DESCRIPTOR_BYTES = array.array("i").itemsize
# Exactly one descriptor fits. The kernel closes any others that come with it.
_ANCILLARY_BYTES = socket.CMSG_LEN(_DESCRIPTOR_BYTES) if IS_POSSIBLE else 0
_CREDENTIALS = struct.Struct("3i")
# Numbers, for operations on flags of the enum take microseconds.
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC) if IS_POSSIBLE else 0
_AT_ONCE = int(socket.MSG_DONTWAIT) if IS_POSSIBLE else 0
_CUT_SHORT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
# What a connection gets to say whose it is.
_ATTACH_S = 2.0
# Connections that have not yet said so.
_STRANGERS = 64
# Outputs that a packet has room for, besides what describes them.
_INLINE_BYTES = SIDE_PACKET_BYTES - 16 * 1024
# Between attempts to accept when the process has no descriptor left.
_PAUSE_S = 0.1


class SideChannel:
    """Listens for clients on this host, and has a crew serve their connections."""

    def __init__(self, device: Device, settings: Settings) -> None:
        """Raises OSError where the host has no such sockets."""
        self._device = device
        self._requests = RunRequests(device, settings.message_bytes)
        self._crew = Crew("side")
        self._stopped = threading.Event()
        self._strangers = threading.Semaphore(_STRANGERS)
        self.name = b"nnrt-" + secrets.token_hex(16).encode()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(b"\0" + self.name)

    def start(self) -> None:
        self._crew.start()
        self._listener.listen()
        threading.Thread(target=self._accept, name="side-channel", daemon=True).start()

    def stop(self) -> None:
        """Take no more connections. Those that there are end with their sessions."""
        self._stopped.set()
        self._crew.stop()
        with suppress(OSError):  # It was not started.
            self._listener.shutdown(socket.SHUT_RDWR)  # Closing it would not wake the thread that waits.

    def _accept(self) -> None:
        is_refusing = False
        with self._listener:
            while not self._stopped.is_set():
                try:
                    connection, _ = self._listener.accept()
                except OSError as error:
                    if not self._stopped.wait(_PAUSE_S) and not is_refusing:  # Once, for it is tried again and again.
                        _log.warning("the side channel takes no connection: %s", error.strerror)
                        is_refusing = True
                    continue
                is_refusing = False
                if shared_memory.has_few_left(connection.fileno()) or not self._strangers.acquire(blocking=False):
                    connection.close()
                    continue
                try:
                    threading.Thread(target=self._admit, args=(connection,), name="side", daemon=True).start()
                except RuntimeError as error:  # The process has no thread left.
                    self._strangers.release()
                    connection.close()
                    _log.warning("the side channel takes no connection: %s", error)
                    self._stopped.wait(_PAUSE_S)

    def _admit(self, connection: socket.socket) -> None:
        """Have a new connection served if it says whose it is."""
        with ExitStack() as held:
            packets = _Packets(held.enter_context(connection))
            try:
                try:
                    session = self._attached(packets)
                finally:
                    self._strangers.release()
                if session is not None:
                    held.enter_context(session.side_connection(packets.end))
                    packets.send(side_channel_pb2.SideReply(done=True))
                    self._crew.add(_Conversation(self._device, self._requests, session, packets, held.pop_all()))
            except OSError:
                pass  # The client is gone.
            except Exception as error:
                packets.refuse(error)

    def _attached(self, packets: "_Packets") -> Session | None:
        """The session that a new connection says it belongs to; None if it says nothing."""
        packets.wait_at_most(_ATTACH_S)
        received = packets.receive()
        packets.wait_at_most(None)
        if received is None:
            return None
        request, fd = received
        _close(fd)
        if request.WhichOneof("request") != "attach":
            raise InvalidParameter("the first request on the side channel must be Attach")
        session = self._device.sessions.of(request.attach.session_id)
        session.attach(packets.peer)
        return session


class _Packets:
    """A connection as requests and replies."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user_id, _ = _CREDENTIALS.unpack(credentials)
        self.peer = Peer(pid, user_id)

    def fileno(self) -> int:
        return self._connection.fileno()

    def wait_at_most(self, timeout_s: float | None) -> None:
        """How long `receive` and `send` may take from now on."""
        self._connection.settimeout(timeout_s)

    def receive(self, how: int = 0) -> tuple[Any, int | None] | None:
        """The next request and the descriptor with it, which is the caller's to close; None at the end. `how` has flags
        for recvmsg(2).

        Raises InvalidParameter for what is no request, OSError where the client is gone or too slow.
        """
        data, ancillary, flags, _ = self._connection.recvmsg(SIDE_PACKET_BYTES, _ANCILLARY_BYTES, _CLOSE_ON_EXEC | how)
        fd = array.array("i", ancillary[0][2][:_DESCRIPTOR_BYTES])[0] if ancillary else None
        try:
            if flags & _CUT_SHORT:
                if flags & socket.MSG_CTRUNC and fd is None:
                    raise OutOfMemory("a descriptor came, and there is no room for it; the daemon has too many open")
                raise InvalidParameter(
                    f"a packet has over {SIDE_PACKET_BYTES} bytes or more than one descriptor; send less"
                )
            if not data:
                _close(fd)
                return None
            request = side_channel_pb2.SideRequest.FromString(data)
        except DecodeError as error:
            _close(fd)
            raise InvalidParameter(f"the packet can't be decoded: {error}") from error
        except BaseException:
            _close(fd)
            raise
        return request, fd

    def send(self, reply: Any, descriptors: Sequence[int] = ()) -> None:
        """Raises OSError where the client is gone."""
        data = reply.SerializeToString()
        if descriptors:
            rights = array.array("i", descriptors)
            self._connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        else:
            self._connection.send(data)

    def refuse(self, error: Exception) -> None:
        """Say why the connection ends, if anybody listens: nobody ends the wait for one who doesn't."""
        with suppress(OSError):
            self._connection.setblocking(False)
            self.send(side_channel_pb2.SideReply(error=_detail(error)))

    def end(self) -> None:
        """End the connection, from any thread."""
        with suppress(OSError):  # It has ended.
            self._connection.shutdown(socket.SHUT_RDWR)


class _Conversation:
    """What a session's client asks on one connection."""

    def __init__(
        self, device: Device, requests: RunRequests, session: Session, packets: _Packets, held: ExitStack
    ) -> None:
        """`held` is closed with it."""
        self.user: Hashable = session.account.user
        self.session = session
        self._device = device
        self._requests = requests
        self._packets = packets
        self._held = held
        # The latest run: known until the next request, which says that its reply has come.
        self._run: Run | None = None

    def fileno(self) -> int:
        return self._packets.fileno()

    def serve(self, hand_over: Callable[[], None]) -> bool:
        """Answer one request. See `Served`."""
        try:
            received = self._packets.receive(_AT_ONCE)
            if received is None:
                return False
            request, fd = received
            try:
                self._answer(request, fd, hand_over)
            finally:
                _close(fd)
        except BlockingIOError:
            return True  # It was ready for somebody else.
        except OSError:
            return False  # The client is gone.
        except Exception as error:
            self._packets.refuse(error)
            return False
        return True

    def close(self) -> None:
        with self._held:
            if self._run is not None:
                self.session.runs.keep(self._run)

    def _answer(self, request: Any, fd: int | None, hand_over: Callable[[], None]) -> None:
        if self._run is not None:
            self.session.runs.forget(self._run)
            self._run = None
        for buffer_id in request.released_buffers:
            self.session.buffers.release(buffer_id)
        if request.HasField("run"):
            if not self._device.expects_quick(self.session, request.run.model_id):
                hand_over()
            self._answer_run(request.run)
            return
        reply, descriptors = side_channel_pb2.SideReply(), []
        try:
            match request.WhichOneof("request"):
                case "share":
                    if fd is None:
                        raise InvalidParameter("no descriptor came with it; send one", place="ShareBuffer")
                    reply.buffer_id = self.session.buffers.adopt(fd, request.share.length)
                case "map":
                    mapped, reply.length = self.session.buffers.descriptor(request.map.buffer_id)
                    descriptors.append(mapped)
                case "attach":
                    raise OperationForbidden("the connection is attached already")
                case _:
                    if not request.released_buffers:
                        raise InvalidParameter("the packet has no request that is known; send one")
                    reply.done = True
        except Exception as error:
            reply = side_channel_pb2.SideReply(error=_detail(error))
        try:
            self._packets.send(reply, descriptors)
        except OSError:
            self.session.buffers.release(reply.buffer_id)  # The client never learns of it, and shares it again.
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _answer_run(self, request: Any) -> None:
        side_reply = side_channel_pb2.SideReply()
        reply, runs = side_reply.run, self.session.runs
        timeout_ms = request.timeout_ms
        cancellation = Cancellation(time.monotonic() + timeout_ms / 1000 if timeout_ms else None)
        gate = self._device.gate
        try:
            if not request.run_id:
                raise InvalidParameter("a run on the side channel needs a run_id")
            run = self._run = runs.begin(request.run_id, cancellation)
            gate.enter()
        except Exception as error:
            reply.error.CopyFrom(_detail(error))
            if self._run is not None:
                runs.finish(self._run, Said(reply))
            self._packets.send(side_reply)
            return
        try:
            try:
                answer = self._requests.answer(self.session, request, cancellation)
                if answer.size_bytes <= _INLINE_BYTES:
                    answer.fill(reply)
                if answer.size_bytes > _INLINE_BYTES or side_reply.ByteSize() > SIDE_PACKET_BYTES:
                    side_reply = self._kept(run, answer, request.takes_chunks)
            except Exception as error:
                reply.Clear()
                reply.error.CopyFrom(_detail(error))
            if self._run is run:
                runs.finish(run, Said(reply))
            self._packets.send(side_reply)
        finally:
            gate.leave()

    def _kept(self, run: Run, answer: Answer, in_chunks: bool) -> Any:
        """Keep a reply that is too long for AwaitRun to fetch; what is said instead. Raises OutOfMemory."""
        answer.fit(in_chunks=in_chunks)
        self.session.runs.finish(run, answer)
        self.session.runs.keep(run)
        self._run = None
        if run.held_bytes is None:
            raise OutOfMemory(
                f"the outputs have {answer.size_bytes} bytes, which the session has no room to keep; have them"
                " written to a buffer"
            )
        return side_channel_pb2.SideReply(run=prepared_model_pb2.RunReply(kept=True))


def _detail(error: Exception) -> Any:
    return wire.error_detail(as_nnrt_error(error, "the side channel"))


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
