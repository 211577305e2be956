"""The local socket: runs and shared memory for clients on this host (protos/nnrt_hdi/v2/local_socket.proto)."""

import logging
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from time import perf_counter_ns
from typing import TypeVar, cast

from google.protobuf.message import DecodeError

from nnrt_device_service.access.identity import Role
from nnrt_device_service.core.batches import BatchedRun, batches_of
from nnrt_device_service.core.device import Device
from nnrt_device_service.host.threads import start_thread
from nnrt_device_service.scheduling.joinable import Bucket
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.run_registry import Run
from nnrt_device_service.sessions.session import Peer, Session
from nnrt_device_service.transport.failures import error_to_tell
from nnrt_device_service.transport.plans import PlannedReply, PlannedRequest
from nnrt_device_service.transport.reactor import HandOver, Joint, Reactor, Served
from nnrt_device_service.transport.run_requests import RunRequests, keep_reply, run_error_to_tell
from nnrt_device_service.transport.run_result import Reply, RunResult, error_reply
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, OutOfMemory
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.shared_memory import has_few_left
from nnrt_hdi.v2 import local_socket_pb2, prepared_model_pb2
from nnrt_hdi.wire.packets import AT_ONCE, receive_packet, send_packet

_log = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("iII")
# What a connection gets to say whose it is.
_ATTACH_S = 2.0
# Connections that have not yet said so.
_UNATTACHED = 64
# Outputs that a packet has room for, besides what describes them.
_INLINE_BYTES = LOCAL_PACKET_BYTES - 16 * 1024
# What stands for a method in errors and lines of the log.
_PLACE = "the local socket"
# Between attempts to accept when the process has no descriptor left.
_PAUSE_S = 0.1


RequestT = TypeVar("RequestT", prepared_model_pb2.RunRequest, PlannedRequest)


class LocalSocket:
    """Listens for clients on this host, and has a reactor serve their connections."""

    def __init__(self, device: Device, run_requests: RunRequests) -> None:
        """Raises OSError where the host has no such sockets."""
        self._device = device
        self._requests = run_requests
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
        """Take no more connections. Those that there are end with their sessions."""
        self._stopped.set()
        self._reactor.stop()
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
                        _log.warning("the local socket takes no connection: %s", error.strerror)
                        is_refusing = True
                    continue
                is_refusing = False
                if has_few_left(connection.fileno()) or not self._unattached.acquire(blocking=False):
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
        """Have a new connection served if it says whose it is."""
        with ExitStack() as resources:
            resources.enter_context(connection)
            try:
                try:
                    session = self._attached(connection)
                finally:
                    self._unattached.release()
                if session is not None:
                    resources.enter_context(session.local_connection(partial(_end, connection)))
                    send_packet(connection, local_socket_pb2.LocalReply(done=True))
                    self._reactor.add(
                        LocalConnection(
                            self._device, self._requests, self._reactor, session, connection, resources.pop_all()
                        )
                    )
            except OSError:
                pass  # The client is gone.
            except Exception as error:
                _refuse(connection, error)

    def _attached(self, connection: socket.socket) -> Session | None:
        """The session that a new connection says it belongs to; None if it says nothing."""
        connection.settimeout(_ATTACH_S)
        data, fd = receive_packet(connection)
        connection.settimeout(None)
        if fd is not None:
            os.close(fd)
        if not data:
            return None
        try:
            request = local_socket_pb2.LocalRequest.FromString(data)
        except DecodeError as error:
            raise _undecodable(error) from error
        if request.WhichOneof("request") != "attach":
            raise InvalidParameter("the first request on the local socket must be Attach")
        session = self._device.sessions.of(request.attach.session_id)
        try:
            session.identity.require(Role.RUN, "the local socket")
            session.attach(_peer_of(connection))
        except OperationForbidden as error:
            session.usage.count_error(error)
            self._device.audit.write(
                "refused", session.identity, session=session.label, method="the local socket", cause=str(error)
            )
            raise
        return session


class _JoinedRequest:
    """A run that is left until others have come that it may be computed with."""

    __slots__ = ("cancellation", "error", "is_inside", "received_at_ns", "request", "run")

    def __init__(self, request: PlannedRequest, received_at_ns: int) -> None:
        self.request = request
        self.received_at_ns = received_at_ns
        # Settled when it is taken up: what stops it, and whether the drain gate counts it.
        self.cancellation = Cancellation()
        self.is_inside = False
        self.run: BatchedRun | None = None
        self.error: Exception | None = None


class LocalBatch:
    """Answers the runs of one bucket together that have come on several connections. See `Joint`."""

    def __init__(self, device: Device, bucket: Bucket) -> None:
        self._device = device
        self._bucket = bucket

    def answer(self, connections: Sequence[Served], hand_over: HandOver) -> Collection[Served]:
        ours = cast("Sequence[LocalConnection]", connections)
        begun = [(connection.begin_joined(), connection) for connection in ours]
        ended = [connection for run, connection in begun if run is None and not connection.end_joined()]
        waiting = {run: connection for run, connection in begun if run is not None}
        for batch in batches_of(list(waiting), self._bucket.batching.max_size):
            hand_over(self._usual_ns(batch))
            self._device.run_together(batch)
            # Those first that have been computed: the others are now, one after another.
            for run in sorted(batch, key=BatchedRun.is_to_run_alone):
                if not waiting[run].end_joined():
                    ended.append(waiting[run])
        return ended

    def _usual_ns(self, runs: Sequence[BatchedRun]) -> int | None:
        """What each run usually takes of the time in which all are computed; None where they may have to wait."""
        usual_ns = runs[0].model.usual_ns
        may_wait = runs[0].bucket.batching.max_delay_us or not self._device.scheduler.has_free_slot
        return None if may_wait or usual_ns is None else usual_ns // len(runs)


class LocalConnection:
    """One connection of a session's client, and the runs on it, one after another."""

    def __init__(
        self,
        device: Device,
        requests: RunRequests,
        reactor: Reactor,
        session: Session,
        connection: socket.socket,
        resources: ExitStack,
    ) -> None:
        """`resources`, which has the socket, is closed with it."""
        # That the kernel names: on this host no other word is needed.
        self.user: Hashable = session.local_peer.user_id if session.local_peer else None
        self.session = session
        self._device = device
        self._requests = requests
        self._reactor = reactor
        self._socket = connection
        self._resources = resources
        # The latest run: known until the next request, which says that its reply has come.
        self._latest: Run | None = None
        # What is to be answered together with what other connections have received.
        self._joined: _JoinedRequest | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def serve(self, hand_over: HandOver) -> bool | Joint:
        """Answer one request. See `Served`."""
        fd = None
        try:
            data, fd = receive_packet(self._socket, AT_ONCE)
            received_at_ns = perf_counter_ns()
            if not data:
                return False
            if data[0] == 0:  # With which no message of protobuf begins.
                planned = PlannedRequest(self.session, data)
                bucket = planned.plan.bucket if planned.plan is not None else None
                if bucket is not None and (bucket.batching.max_delay_us or not self._reactor.has_found_one):
                    return self._to_join(planned, bucket, received_at_ns)
                model = planned.plan.model if planned.plan is not None else None
                self._answer_run(planned, model, self._requests.planned.run, received_at_ns, hand_over)
                return True
            request = local_socket_pb2.LocalRequest.FromString(data)
            if request.WhichOneof("request") == "run" and not request.released_buffers:
                self._answer_message(request.run, received_at_ns, hand_over)
            else:
                self._answer(request, received_at_ns, fd, hand_over)
        except BlockingIOError:
            return True  # It was ready for somebody else.
        except OSError:
            return False  # The client is gone.
        except DecodeError as error:
            _refuse(self._socket, _undecodable(error), self.session)
            return False
        except Exception as error:
            _refuse(self._socket, error, self.session)
            return False
        finally:
            if fd is not None:
                os.close(fd)
        return True

    def close(self) -> None:
        with self._resources:
            if self._joined is not None and self._joined.is_inside:  # Something went so wrong that nobody ended it.
                self._device.gate.leave()
            if self._latest is not None:
                keep_reply(self.session, self._latest)

    def _answer(
        self, request: local_socket_pb2.LocalRequest, received_at_ns: int, fd: int | None, hand_over: HandOver
    ) -> None:
        """Answer any request."""
        for buffer_id in request.released_buffers:
            self.session.release_buffer(buffer_id)
        if request.HasField("run"):
            self._answer_message(request.run, received_at_ns, hand_over)
            return
        if self._latest is not None:
            self.session.runs.forget(self._latest)
            self._latest = None
        reply, descriptors = local_socket_pb2.LocalReply(), list[int]()
        try:
            match request.WhichOneof("request"):
                case "share":
                    if fd is None:
                        raise InvalidParameter("no descriptor came with it; send one", place="ShareBuffer")
                    reply.buffer_id = self._shared(fd, request.share)
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
            told = error_to_tell(error, _PLACE, self.session)
            self.session.usage.count_error(told)
            reply = local_socket_pb2.LocalReply(error=wire.error_detail(told))
        try:
            send_packet(self._socket, reply, descriptors)
        except OSError:
            if not request.share.buffer_id:  # The client never learns of it, and shares it again.
                self.session.release_buffer(reply.buffer_id)
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _shared(self, fd: int, share: local_socket_pb2.ShareBuffer) -> int:
        if not share.is_file:
            return self.session.buffers.adopt(fd, share.length, share.buffer_id)
        assert self.session.local_peer is not None
        return self.session.files.adopt(fd, share.buffer_id, self.session.local_peer.user_id)

    def _answer_message(self, request: prepared_model_pb2.RunRequest, received_at_ns: int, hand_over: HandOver) -> None:
        """Answer a run that a message asks for."""
        model = self.session.models.get(request.model_id)
        self._answer_run(request, model, self._requests.run, received_at_ns, hand_over)

    def _answer_run(
        self,
        request: RequestT,
        model: LoadedModel | None,
        make: Callable[[Session, RequestT, Cancellation, int], RunResult | PlannedReply],
        received_at_ns: int,
        hand_over: HandOver,
    ) -> None:
        session, gate, run_id, timeout_ms = self.session, self._device.gate, request.run_id, request.timeout_ms
        hand_over(model.usual_ns if model is not None and self._device.scheduler.has_free_slot else None)
        cancellation = Cancellation(time.monotonic() + timeout_ms / 1000 if timeout_ms else None)
        former, self._latest, is_inside = self._latest, None, False
        reply: Reply
        try:
            try:
                run = self._latest = session.runs.begin(run_id, cancellation, former)
                gate.enter()
                is_inside = True
                reply = result = make(session, request, cancellation, received_at_ns)
                if isinstance(result, PlannedReply):
                    packet = result.packet
                else:
                    local_reply = self._message(run, result, request.takes_chunks)
                    reply, packet = local_reply.run, local_reply.SerializeToString()
                    result.count(session.usage)
            except Exception as error:
                reply, packet = self._failed(request, cancellation, error)
            if self._latest is not None:  # `finish` without a call, for every small run comes here.
                self._latest.reply = reply
                if session.runs.awaiters:
                    session.runs.wake()
            self._socket.send(packet)
        finally:
            if is_inside:
                gate.leave()

    def _failed(
        self, request: RequestT, cancellation: Cancellation, error: Exception
    ) -> tuple[prepared_model_pb2.RunReply, bytes]:
        """The reply of a run that gave nothing, and its packet."""
        reply = error_reply(request.run_id, run_error_to_tell(error, _PLACE, self.session, request, cancellation))
        return reply, local_socket_pb2.LocalReply(run=reply).SerializeToString()

    def _to_join(self, request: PlannedRequest, bucket: Bucket, received_at_ns: int) -> Joint:
        """Leave a run until all connections that are ready have been asked."""
        self._joined = _JoinedRequest(request, received_at_ns)
        if bucket.joint is None:
            bucket.joint = LocalBatch(self._device, bucket)
        joint: LocalBatch = bucket.joint
        return joint

    def begin_joined(self) -> BatchedRun | None:
        """Take up what has been left; None where that can't be, which `end_joined` will tell."""
        assert self._joined is not None
        joined, session, request = self._joined, self.session, self._joined.request
        timeout_ms = request.timeout_ms
        joined.cancellation = Cancellation(time.monotonic() + timeout_ms / 1000 if timeout_ms else None)
        former, self._latest = self._latest, None
        try:
            self._latest = session.runs.begin(request.run_id, joined.cancellation, former)
            self._device.gate.enter()
            joined.is_inside = True
            joined.run = self._requests.planned.joinable(session, request, joined.cancellation)
        except Exception as error:
            joined.error = error
        return joined.run

    def end_joined(self) -> bool:
        """Answer it now that it has an outcome; whether the connection goes on."""
        assert self._joined is not None
        joined, self._joined = self._joined, None
        session, request = self.session, joined.request
        reply: Reply
        try:
            try:
                if joined.error is not None:
                    raise joined.error
                assert joined.run is not None
                reply = result = self._requests.planned.joined(request, joined.run, joined.received_at_ns)
                if isinstance(result, PlannedReply):
                    packet = result.packet
                else:
                    assert self._latest is not None
                    local_reply = self._message(self._latest, result, request.takes_chunks)
                    reply, packet = local_reply.run, local_reply.SerializeToString()
                    result.count(session.usage)
            except Exception as error:
                reply, packet = self._failed(request, joined.cancellation, error)
            if self._latest is not None:
                session.runs.finish(self._latest, reply)
            self._socket.send(packet, AT_ONCE)
        except OSError:
            return False  # The client is gone, or reads no replies: others, who wait for theirs, don't wait for it.
        finally:
            if joined.is_inside:
                self._device.gate.leave()
        return True

    def _message(self, run: Run, result: RunResult, in_chunks: bool) -> local_socket_pb2.LocalReply:
        """The reply that has the result, or says that it is kept. Raises OutOfMemory."""
        if result.inline_bytes <= _INLINE_BYTES:
            local_reply = local_socket_pb2.LocalReply()
            result.fill(local_reply.run)
            if local_reply.ByteSize() <= LOCAL_PACKET_BYTES:
                return local_reply
        return self._kept(run, result, in_chunks)

    def _kept(self, run: Run, result: RunResult, in_chunks: bool) -> local_socket_pb2.LocalReply:
        """Keep a reply that is too long for AwaitRun to fetch, and say so. Raises OutOfMemory."""
        result.fit(in_chunks=in_chunks)
        result.own_outputs()
        self.session.runs.finish(run, result)
        self.session.runs.keep(run, result.inline_bytes)
        self._latest = None
        if run.held_bytes is None:
            raise OutOfMemory(
                f"the outputs have {result.inline_bytes} bytes, which the session has no room to keep; have them"
                " written to a buffer"
            )
        return local_socket_pb2.LocalReply(run=prepared_model_pb2.RunReply(run_id=run.id, kept=True))


def _peer_of(connection: socket.socket) -> Peer:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user_id, _ = _CREDENTIALS.unpack(credentials)
    return Peer(pid, user_id)


def _undecodable(error: DecodeError) -> InvalidParameter:
    return InvalidParameter(f"the packet can't be decoded: {error}")


def _refuse(connection: socket.socket, error: Exception, session: Session | None = None) -> None:
    """Say why a connection ends, if anybody listens: nobody ends the wait for one who doesn't."""
    told = error_to_tell(error, _PLACE, session)
    with suppress(OSError):
        connection.setblocking(False)
        send_packet(connection, local_socket_pb2.LocalReply(error=wire.error_detail(told)))


def _end(connection: socket.socket) -> None:
    """End a connection, from any thread."""
    with suppress(OSError):  # It has ended.
        connection.shutdown(socket.SHUT_RDWR)
