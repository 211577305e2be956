"""A connection of the local socket: how its packets are answered."""

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from time import perf_counter_ns
from typing import TypeVar, cast

from google.protobuf.message import DecodeError

from nnrt_device_service.core.batches import BatchedRun, batches_of
from nnrt_device_service.core.device import Device
from nnrt_device_service.scheduling.joinable import Bucket
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.run_registry import Run
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.failures import error_to_tell
from nnrt_device_service.transport.later_runs import LaterRun
from nnrt_device_service.transport.plans import PlannedReply, PlannedRequest
from nnrt_device_service.transport.reactor import HandOver, Joint, Reactor, Served
from nnrt_device_service.transport.run_requests import RunRequests, keep_reply, run_error_to_tell
from nnrt_device_service.transport.run_result import Reply, RunResult, error_reply
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, OutOfMemory
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.v2 import local_socket_pb2, prepared_model_pb2
from nnrt_hdi.wire.bundles import HEAD_BYTES, LENGTH_BYTES, REPLIES_MARK, REQUESTS_MARK, bundled, parts_of
from nnrt_hdi.wire.packets import AT_ONCE, PEEK, receive_packet, send_packet

_log = logging.getLogger(__name__)

# Outputs that a packet has room for, besides what describes them.
_INLINE_BYTES = LOCAL_PACKET_BYTES - 16 * 1024
# With what a bundle begins, and no other packet.
_BUNDLE = bytes((0, REQUESTS_MARK >> 8))
# Where a run of a bundle had to wait for the device so long, those behind it wait there as well, not for each other.
_LONG_NS = 1_000_000
# So many of them at a time, for each takes a thread.
_APART = 8
# What stands for a method in errors and lines of the log.
PLACE = "the local socket"

RequestT = TypeVar("RequestT", prepared_model_pb2.RunRequest, PlannedRequest)


class _BegunRun:
    """A planned run that is known, and has no reply yet: one of a bundle, one that is computed with those of other
    connections, or one for which no thread waits."""

    __slots__ = (
        "batched",
        "cancellation",
        "error",
        "is_inside",
        "later",
        "received_at_ns",
        "request",
        "room_bytes",
        "run",
    )

    def __init__(self, request: PlannedRequest, received_at_ns: int, room_bytes: int) -> None:
        """An ordinary reply may have outputs of so many bytes."""
        timeout_ms = request.timeout_ms
        self.request = request
        self.received_at_ns = received_at_ns
        self.room_bytes = room_bytes
        self.cancellation = Cancellation(time.monotonic() + timeout_ms / 1000 if timeout_ms else None)
        self.run: Run | None = None
        # Whether the drain gate counts it.
        self.is_inside = False
        # It, where it may be computed with others.
        self.batched: BatchedRun | None = None
        # It, where no thread waits for it.
        self.later: LaterRun | None = None
        # Why it could not begin.
        self.error: Exception | None = None

    @property
    def is_settled(self) -> bool:
        """True where it could not begin, or has been computed with others, or is to run alone."""
        return self.batched is None or self.batched.is_settled


class LocalBatch:
    """Answers the runs of one bucket together that have come on several connections. See `Joint`."""

    def __init__(self, device: Device, bucket: Bucket) -> None:
        self._device = device
        self._bucket = bucket

    def answer(self, connections: Sequence[Served], hand_over: HandOver) -> Collection[Served]:
        waiting: dict[BatchedRun, LocalConnection] = {}
        ours = cast("Sequence[LocalConnection]", connections)
        for connection in ours:
            waiting.update(dict.fromkeys(connection.begin_joined(), connection))
        ended = dict.fromkeys([connection for connection in ours if not connection.end_joined()])
        for batch in batches_of(list(waiting), self._bucket.batching.max_size):
            hand_over(self._usual_ns(batch))
            self._device.run_together(batch)
            # Those first that have been computed: the others are now, one after another.
            for connection in dict.fromkeys(waiting[run] for run in sorted(batch, key=BatchedRun.is_to_run_alone)):
                if not connection.end_joined():
                    ended[connection] = None
        return ended

    def _usual_ns(self, runs: Sequence[BatchedRun]) -> int | None:
        """Give each run's share of the time that all usually take; None where they may have to wait."""
        usual_ns = runs[0].model.usual_ns
        may_wait = runs[0].bucket.batching.max_delay_us or not self._device.scheduler.has_free_slot
        return None if may_wait or usual_ns is None else usual_ns // len(runs)


class LocalConnection:
    """One connection of a session's client, and the runs on it, one after another but for those of a bundle."""

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
        self._resources = [resources]
        # The latest run: known until the next request, which says that its reply has come.
        self._latest: Run | None = None
        # Those of the latest bundle likewise.
        self._bundled: dict[Run, None] = {}
        # What is to be answered together with what other connections have received.
        self._joined: list[_BegunRun] = []
        # Runs that others end. The socket stays open until their replies have been sent, also where it is served no
        # more: its descriptor would become another client's.
        self._unsent: set[_BegunRun] = set()
        self._is_over = False
        # Whether descriptors may come, for which each request is looked at first. That takes time, so none may on a
        # connection that has had a planned request.
        self._may_share = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def serve(self, hand_over: HandOver) -> bool | Joint:
        """Answer one request. See `Served`."""
        fd = request = None
        try:
            try:
                if self._may_share:
                    request = self._peeked()
                is_share = request is not None and request.HasField("share")
                if is_share:  # Who looks at a descriptor, or closes it, may wait for a file system of the client's own.
                    hand_over(None)
                data, fd = receive_packet(self._socket, AT_ONCE, takes_descriptor=is_share)
            except BlockingIOError:
                return True  # It was ready for somebody else.
            received_at_ns = perf_counter_ns()
            if not data:
                return False
            if data[0] == 0:  # With which no message of protobuf begins.
                if data[:2] == _BUNDLE:
                    return self._serve_bundle(data, received_at_ns, hand_over)
                planned = PlannedRequest(self.session, data)
                plan = planned.plan
                if plan is not None and plan.is_startable:
                    self._start_all([_BegunRun(planned, received_at_ns, _INLINE_BYTES)], hand_over)
                    return True
                bucket = plan.bucket if plan is not None else None
                if bucket is not None and (bucket.batching.max_delay_us or not self._reactor.has_found_one):
                    return self._to_join([_BegunRun(planned, received_at_ns, _INLINE_BYTES)], bucket)
                model = plan.model if plan is not None else None
                self._answer_run(planned, model, self._requests.planned.run, received_at_ns, hand_over)
                return True
            request = request or local_socket_pb2.LocalRequest.FromString(data)
            if request.WhichOneof("request") == "run" and not request.released_buffers:
                self._answer_message(request.run, received_at_ns, hand_over)
            else:
                self._answer(request, received_at_ns, fd, hand_over)
        except OSError:
            return False  # The client is gone, or reads no replies.
        except DecodeError as error:
            refuse(self._socket, undecodable(error), self.session)
            return False
        except Exception as error:
            refuse(self._socket, error, self.session)
            return False
        finally:
            if fd is not None:
                with suppress(OSError):  # Of its file system, which may be gone. It is closed all the same.
                    os.close(fd)
        return True

    def _peeked(self) -> local_socket_pb2.LocalRequest | None:
        """The next request, which is still to be received, if it is a message. Raises OSError."""
        data = self._socket.recv(LOCAL_PACKET_BYTES, PEEK)
        self._may_share = data[:1] != b"\0"
        try:
            return local_socket_pb2.LocalRequest.FromString(data)
        except DecodeError:
            return None

    def close(self) -> None:
        try:
            for begun in self._joined:
                if begun.is_inside:  # Something went so wrong that nobody ended it.
                    self._device.gate.leave()
            for run in (*self._bundled, *filter(None, (self._latest,))):
                keep_reply(self.session, run)
        finally:
            self._is_over = True
            self._close_socket()

    def _close_socket(self) -> None:
        """Close the socket if the connection is over and all is sent. Who serves and who sends may both find that."""
        if self._unsent or not self._is_over:
            return
        try:
            resources = self._resources.pop()
        except IndexError:  # Another thread was first.
            return
        resources.close()

    def _answer(
        self, request: local_socket_pb2.LocalRequest, received_at_ns: int, fd: int | None, hand_over: HandOver
    ) -> None:
        """Answer any request."""
        for buffer_id in request.released_buffers:
            self.session.release_buffer(buffer_id)
        if request.HasField("run"):
            self._answer_message(request.run, received_at_ns, hand_over)
            return
        self._forget_latest()
        reply, descriptors = local_socket_pb2.LocalReply(), list[int]()
        try:
            match request.WhichOneof("request"):
                case "share":
                    if fd is None:
                        raise InvalidParameter(
                            "no descriptor came with it; send one, where no planned request has come",
                            place="ShareBuffer",
                        )
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
            told = error_to_tell(error, PLACE, self.session)
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
        if self._bundled:
            self._forget_latest()
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
                    reply, packet = self._message(run, result, request.takes_chunks, _INLINE_BYTES)
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
        reply = error_reply(request.run_id, run_error_to_tell(error, PLACE, self.session, request, cancellation))
        return reply, local_socket_pb2.LocalReply(run=reply).SerializeToString()

    def _forget_latest(self) -> None:
        """The client has the replies of the runs before."""
        known, self._bundled = self._bundled, {}
        if self._latest is not None:
            known[self._latest] = None
            self._latest = None
        for run in known:
            self.session.runs.forget(run)

    def _serve_bundle(self, packet: bytes, received_at_ns: int, hand_over: HandOver) -> bool | Joint:
        """Answer the runs of a bundle, or have them joined. Raises InvalidParameter for what is no bundle of them."""
        requests = [PlannedRequest(self.session, part) for part in parts_of(REQUESTS_MARK, packet)]
        plans = [request.plan for request in requests if request.plan is not None]
        reply_bytes = sum(LENGTH_BYTES + plan.layout.reply_bytes for plan in plans)
        if HEAD_BYTES + reply_bytes > LOCAL_PACKET_BYTES:
            raise InvalidParameter(
                f"the replies of a bundle have {reply_bytes} bytes; send runs whose replies have {LOCAL_PACKET_BYTES}"
            )
        runs = [_BegunRun(request, received_at_ns, _INLINE_BYTES // len(requests)) for request in requests]
        bucket = plans[0].bucket if len(plans) == len(requests) else None
        if bucket is not None and all(plan.bucket is bucket for plan in plans):
            return self._to_join(runs, bucket)
        if len(plans) == len(requests) and all(plan.is_startable for plan in plans):
            self._start_all(runs, hand_over)
            return True
        usual_ns = [plan.model.usual_ns for plan in plans]
        are_quick = self._device.scheduler.has_free_slot and None not in usual_ns
        hand_over(sum(filter(None, usual_ns)) if are_quick else None)
        self._forget_latest()
        try:
            for begun in runs:
                self._begin(begun)
            self._answer_bundle(runs, hand_over)
        finally:
            for begun in runs:
                if begun.is_inside:
                    self._device.gate.leave()
        return True

    def _answer_bundle(self, runs: Sequence[_BegunRun], hand_over: HandOver) -> None:
        """Make runs one after another and send their replies together, but for those behind one that had to wait long:
        they wait each by itself."""
        scheduler, replies = self._device.scheduler, list[bytes]()
        for at, begun in enumerate(runs, 1):
            had_free_slot, asked_ns = scheduler.has_free_slot, perf_counter_ns()
            replies.append(self._ended(begun))
            if not had_free_slot and at < len(runs) and perf_counter_ns() - asked_ns >= _LONG_NS:
                hand_over(None)
                try:
                    self._send_replies(replies)
                finally:  # Where the client is gone it fetches them.
                    self._do_apart(self._answer_begun, runs[at:])
                return
        self._send_replies(replies)

    def _answer_begun(self, begun: _BegunRun) -> None:
        """Make a run that has begun, and send its reply."""
        with suppress(OSError):  # The client is gone, as the next look at the connection will find.
            self._send_replies([self._ended(begun)])

    def _do_apart(self, do: Callable[[_BegunRun], None], runs: Sequence[_BegunRun]) -> None:
        """Do what waits for the device with some runs at a time, each in a thread of its own, and wait for all."""
        left, ended = deque(runs), threading.Semaphore(0)

        def work() -> None:
            while left:
                try:
                    begun = left.popleft()
                except IndexError:  # Another thread was first.
                    return
                try:
                    do(begun)
                except BaseException:
                    _log.exception("a run could not be answered")
                finally:
                    ended.release()

        with suppress(OutOfMemory):  # No more threads are left: those that there are do it.
            for _ in runs[1:_APART]:
                self._device.threads.run(work)
        work()
        for _ in runs:
            ended.acquire()

    def _begin(self, begun: _BegunRun) -> None:
        """Have a run be known, and stopped with its session."""
        try:
            run = begun.run = self.session.runs.begin(begun.request.run_id, begun.cancellation)
            self._bundled[run] = None
            self._device.gate.enter()
            begun.is_inside = True
        except Exception as error:
            begun.error = error

    def _start_all(self, runs: Sequence[_BegunRun], hand_over: HandOver) -> None:
        """Have runs be made for which no thread waits once they are on the device. The connection isn't served until
        all have ended."""
        self._forget_latest()
        self._unsent.update(runs)
        for begun in runs:
            self._begin(begun)
            self._reactor.set_aside(self)
        for at, begun in enumerate(runs):
            if not self._device.scheduler.has_free_slot:
                hand_over(None)
                self._do_apart(self._start, runs[at:])
                return
            self._start(begun)

    def _start(self, begun: _BegunRun) -> None:
        """Start a run that has begun, as soon as a slot is free."""
        if begun.error is None:
            try:
                later = LaterRun(self.session, begun.request, begun.cancellation, begun.received_at_ns)
            except Exception as error:
                begun.error = error
            else:
                begun.later, begun.is_inside = later, False  # From now on its end is what leaves the gate.
                later.start(self._device, partial(self._end_started, begun))
                return
        try:
            self._end_started(begun)
        finally:
            if begun.is_inside:
                self._device.gate.leave()

    def _end_started(self, begun: _BegunRun) -> None:
        """Answer a run, in whatever thread it has ended, and have the connection be served again."""
        packet = self._ended(begun)
        self._reactor.take_back(self)
        try:
            self._socket.send(packet, AT_ONCE)
        except OSError:  # The client is gone, or reads no replies: the device's thread doesn't wait for it.
            end_connection(self._socket)
        self._unsent.discard(begun)
        self._close_socket()

    def _ended(self, begun: _BegunRun) -> bytes:
        """Make a run that has begun, unless that has been done: the packet that has its reply."""
        request, planned = begun.request, self._requests.planned
        reply: Reply
        try:
            if begun.error is not None:
                raise begun.error
            if begun.later is not None:
                reply = result = begun.later.reply(planned)
            elif begun.batched is not None:
                reply = result = planned.joined(request, begun.batched, begun.received_at_ns)
            else:
                reply = result = planned.run(self.session, request, begun.cancellation, begun.received_at_ns)
            if isinstance(result, PlannedReply):
                packet = result.packet
            else:
                assert begun.run is not None
                reply, packet = self._message(begun.run, result, request.takes_chunks, begun.room_bytes)
        except Exception as error:
            reply, packet = self._failed(request, begun.cancellation, error)
        if begun.run in self._bundled:  # Else it is kept, with what its reply doesn't say.
            self.session.runs.finish(begun.run, reply)
        return packet

    def _send_replies(self, replies: Sequence[bytes], flags: int = 0) -> None:
        """Send the replies of a bundle, in as few packets as have room for them. Raises OSError."""
        first = 0
        while first < len(replies):
            last, size = first + 1, HEAD_BYTES + LENGTH_BYTES + len(replies[first])
            while last < len(replies) and (size := size + LENGTH_BYTES + len(replies[last])) <= LOCAL_PACKET_BYTES:
                last += 1
            together = replies[first:last]
            try:
                self._socket.send(together[0] if len(together) == 1 else bundled(REPLIES_MARK, together), flags)
            except OSError:
                end_connection(self._socket)  # Nobody is to wait for it once more.
                raise
            first = last

    def _to_join(self, runs: Sequence[_BegunRun], bucket: Bucket) -> Joint:
        """Leave runs until all connections that are ready have been asked."""
        self._joined = list(runs)
        if bucket.joint is None:
            bucket.joint = LocalBatch(self._device, bucket)
        joint: LocalBatch = bucket.joint
        return joint

    def begin_joined(self) -> list[BatchedRun]:
        """Take up what has been left: those of the runs that could begin. `end_joined` will tell of the others."""
        self._forget_latest()
        for begun in self._joined:
            self._begin(begun)
            if begun.error is None:
                try:
                    begun.batched = self._requests.planned.joinable(self.session, begun.request, begun.cancellation)
                except Exception as error:
                    begun.error = error
        return [begun.batched for begun in self._joined if begun.batched is not None]

    def end_joined(self) -> bool:
        """Answer those of the runs that have an outcome; whether the connection goes on."""
        ended = [begun for begun in self._joined if begun.is_settled]
        self._joined = [begun for begun in self._joined if begun not in ended]
        try:
            self._send_replies([self._ended(begun) for begun in ended], AT_ONCE)
        except OSError:
            return False  # The client is gone, or reads no replies: others, who wait for theirs, don't wait for it.
        finally:
            for begun in ended:
                if begun.is_inside:
                    self._device.gate.leave()
        return True

    def _message(
        self, run: Run, result: RunResult, in_chunks: bool, room_bytes: int
    ) -> tuple[prepared_model_pb2.RunReply, bytes]:
        """Count a result: the reply that has it, or says that it is kept, and its packet. Raises OutOfMemory."""
        reply = self._fitting(run, result, in_chunks, room_bytes)
        packet = reply.SerializeToString()
        result.count(self.session.usage)
        return reply.run, packet

    def _fitting(self, run: Run, result: RunResult, in_chunks: bool, room_bytes: int) -> local_socket_pb2.LocalReply:
        """The reply that has the result, if there is room for it, or says that it is kept. Raises OutOfMemory."""
        if result.inline_bytes <= room_bytes:
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
        if run is self._latest:
            self._latest = None
        else:
            del self._bundled[run]
        if run.held_bytes is None:
            raise OutOfMemory(
                f"the outputs have {result.inline_bytes} bytes, which the session has no room to keep; have them"
                " written to a buffer"
            )
        return local_socket_pb2.LocalReply(run=prepared_model_pb2.RunReply(run_id=run.id, kept=True))


def end_connection(connection: socket.socket) -> None:
    """End a connection, from any thread."""
    with suppress(OSError):  # It has ended.
        connection.shutdown(socket.SHUT_RDWR)


def undecodable(error: DecodeError) -> InvalidParameter:
    return InvalidParameter(f"the packet can't be decoded: {error}")


def refuse(connection: socket.socket, error: Exception, session: Session | None = None) -> None:
    """Say why a connection ends, if anybody listens: nobody ends the wait for one who doesn't."""
    told = error_to_tell(error, PLACE, session)
    with suppress(OSError):
        connection.setblocking(False)
        send_packet(connection, local_socket_pb2.LocalReply(error=wire.error_detail(told)))
