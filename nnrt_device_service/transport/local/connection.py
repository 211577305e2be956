"""Connection of the local socket, and how its packets are answered."""

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from time import perf_counter_ns

from google.protobuf.message import DecodeError

from nnrt_device_service.device import Device
from nnrt_device_service.runs.frames import read_runs
from nnrt_device_service.runs.replies import Replies, keep_reply
from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.local.batchers import LocalBatchers
from nnrt_device_service.transport.local.messages import PLACE, answer_message, end_connection, refuse, undecodable
from nnrt_device_service.transport.local.reactor import Reactor
from nnrt_device_service.transport.local.served import QUICK_NS, Batcher, HandOver
from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.v2 import local_socket_pb2
from nnrt_hdi.wire.packet import FIRST_BYTE
from nnrt_hdi.wire.packets import AT_ONCE, PEEK, receive_packet

_log = logging.getLogger(__name__)

# If a run of a packet had to wait so long for the device, the runs after it wait in threads of their own.
_LONG_NS = 1_000_000
# Most runs of a packet that wait in threads of their own.
_MOST_WAITING_THREADS = 8


class LocalConnection:
    """Connection of a session's client. See `ServedConnection`."""

    def __init__(
        self,
        device: Device,
        replies: Replies,
        reactor: Reactor,
        batchers: LocalBatchers,
        session: Session,
        connection: socket.socket,
        resources: ExitStack,
    ) -> None:
        """Make a connection; `resources` has the socket and is closed with the connection."""
        # The user that the kernel names.
        self.user: Hashable = session.local_peer.user_id if session.local_peer else None
        self.session = session
        self._device = device
        self._executing = device.executing
        self._replies = replies
        self._reactor = reactor
        self._batchers = batchers
        self._socket = connection
        self._resources = [resources]
        # Runs of the latest packet. The registry has them until the next packet shows that their replies arrived.
        self._latest: Sequence[Run] = ()
        # Those of the latest runs that a batcher answers together with runs of other connections.
        self._joined: Sequence[Run] = ()
        # Started runs whose replies have not been sent. Until then the socket stays open, even after the connection has
        # ended: else a reply could go to another client that got the same descriptor.
        self._unsent: set[Run] = set()
        self._is_over = False
        # Whether descriptors may come. For these each packet is peeked at first, which takes time, so a connection that
        # has received a frame accepts none.
        self._may_share = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def serve(self, hand_over: HandOver) -> bool | Batcher:
        """Answer one packet. See `ServedConnection`."""
        try:
            if self._may_share:
                begin = self._socket.recv(LOCAL_PACKET_BYTES, PEEK)
                self._may_share = begin[:1] != b"\0"
                if self._may_share:
                    return self._serve_message(begin, hand_over)
            packet = self._socket.recv(LOCAL_PACKET_BYTES + 1, AT_ONCE)
            received_at_ns = perf_counter_ns()
            if not packet:
                return False
            if len(packet) > LOCAL_PACKET_BYTES:
                raise InvalidParameter(f"a packet has over {LOCAL_PACKET_BYTES} bytes; send less")
            if packet[0] == FIRST_BYTE:
                runs = read_runs(self.session, packet, received_at_ns)
                former, self._latest = self._latest, runs
                return self._serve_runs(runs, former, hand_over)
            self._answer_message(local_socket_pb2.LocalRequest.FromString(packet), None)
        except BlockingIOError:
            return True  # Another thread has taken the packet.
        except OSError:
            return False  # The client is gone, or reads no replies.
        except DecodeError as error:
            refuse(self._socket, undecodable(error), self.session)
            return False
        except Exception as error:
            refuse(self._socket, error, self.session)
            return False
        return True

    def close(self) -> None:
        try:
            for run in self._joined:  # The batcher raised an exception before it ended them.
                self._executing.end(run)
            for run in self._latest:
                keep_reply(run)
        finally:
            self._is_over = True
            self._close_socket()

    def _close_socket(self) -> None:
        """Close the socket if the connection has ended and all replies are sent.

        The thread that serves and a thread that sends may both call this at the same time.
        """
        if self._unsent or not self._is_over:
            return
        try:
            resources = self._resources.pop()
        except IndexError:  # Another thread has closed it.
            return
        resources.close()

    # ---- messages

    def _serve_message(self, data: bytes, hand_over: HandOver) -> bool:
        """Receive a message that was only peeked at, perhaps with a descriptor, and answer it.

        Raises OSError and DecodeError.
        """
        fd = None
        try:
            request = local_socket_pb2.LocalRequest.FromString(data)
        except DecodeError:
            request = None  # It may be longer than what was peeked at.
        is_share = request is not None and request.HasField("share")
        if is_share:  # Access to the descriptor, and closing it, may block on a file system of the client's own.
            hand_over(None)
        try:
            data, fd = receive_packet(self._socket, AT_ONCE, takes_descriptor=is_share)
            if data:
                self._answer_message(request or local_socket_pb2.LocalRequest.FromString(data), fd)
            return bool(data)
        finally:
            if fd is not None:
                with suppress(OSError):  # Its file system may be gone; the descriptor is closed in any case.
                    os.close(fd)

    def _answer_message(self, request: local_socket_pb2.LocalRequest, fd: int | None) -> None:
        latest, self._latest = self._latest, ()
        for run in latest:
            self.session.runs.forget(run)
        answer_message(self.session, self._socket, request, fd)

    # ---- runs

    def _serve_runs(self, runs: Sequence[Run], former: Sequence[Run], hand_over: HandOver) -> bool | Batcher:
        """Answer or start the runs of a packet, and return True; or return the batcher that is to answer them.

        Calls `hand_over` before work that may take long. Forgets `former` runs, whose replies the client has.
        """
        scheduler, description = self._device.scheduler, runs[0].description
        bucket = description.bucket if description is not None else None
        are_startable, are_quick, usual_ns = True, scheduler.has_free_slot, 0
        for run in runs:
            if (description := run.description) is None:
                bucket, are_startable = None, False
                continue
            bucket = bucket if description.bucket is bucket else None
            are_startable = are_startable and description.is_startable
            run_ns = description.model.usual_ns
            are_quick, usual_ns = are_quick and run_ns is not None, usual_ns + (run_ns or 0)
        if bucket is not None and (len(runs) > 1 or bucket.batching.max_delay_us or not self._reactor.has_found_one):
            self._joined = runs
            self._forget(former)
            return self._batchers.find(bucket)
        if are_startable:
            self._start_all(runs, former, hand_over)
            return True
        if not are_quick or usual_ns >= QUICK_NS:
            hand_over(usual_ns if are_quick else None)
        executing, frames = self._executing, list[bytes]()
        for run in runs:
            executing.begin(run, former)
            former = ()
        try:
            for at, run in enumerate(runs, 1):
                had_free_slot, asked_ns = scheduler.has_free_slot, perf_counter_ns()
                executing.execute(run)
                frames.append(self._replies.frame(run, PLACE, LOCAL_PACKET_BYTES))
                if not had_free_slot and at < len(runs) and perf_counter_ns() - asked_ns >= _LONG_NS:
                    hand_over(None)
                    self._answer_in_threads(frames, runs[at:])
                    return True
            if len(frames) == 1:
                self._socket.send(frames[0])
            else:
                self._send(frames)
        finally:
            for run in runs:
                executing.end(run)
        return True

    def _forget(self, former: Sequence[Run]) -> None:
        """Forget runs whose replies the client has."""
        for run in former:
            self.session.runs.forget(run)

    def _answer_in_threads(self, frames: Sequence[bytes], runs: Sequence[Run]) -> None:
        """Send replies, then execute the remaining runs in a few threads."""
        try:
            self._send(frames)
        finally:  # Even if the client is gone: it may fetch the replies with AwaitRun.
            self._call_in_threads(self._answer, runs)

    def _answer(self, run: Run) -> None:
        """Execute a run that has begun, and send its reply."""
        self._executing.execute(run)
        with suppress(OSError):  # The client is gone, which the reactor will find.
            self._send([self._replies.frame(run, PLACE, LOCAL_PACKET_BYTES)])

    def _call_in_threads(self, do: Callable[[Run], None], runs: Sequence[Run]) -> None:
        """Call `do`, which may wait for the device, for each run in a few threads, and wait for all calls."""
        left, ended = deque(runs), threading.Semaphore(0)

        def work() -> None:
            while left:
                try:
                    run = left.popleft()
                except IndexError:  # Another thread took the last one.
                    return
                try:
                    do(run)
                except BaseException:
                    _log.exception("a run could not be answered")
                finally:
                    ended.release()

        with suppress(OutOfMemory):  # No threads are left: those that were started do the rest.
            for _ in runs[1:_MOST_WAITING_THREADS]:
                self._device.threads.run(work)
        work()
        for _ in runs:
            ended.acquire()

    def _start_all(self, runs: Sequence[Run], former: Sequence[Run], hand_over: HandOver) -> None:
        """Start runs for which no thread waits on the device; the connection isn't served until all have ended."""
        self._unsent.update(runs)
        for run in runs:
            self._executing.begin(run, former)
            former = ()
            self._reactor.set_aside(self)
        for at, run in enumerate(runs):
            if not self._device.scheduler.has_free_slot:
                hand_over(None)
                self._call_in_threads(self._start, runs[at:])
                return
            self._start(run)

    def _start(self, run: Run) -> None:
        self._executing.start(run, partial(self._end_started, run))

    def _end_started(self, run: Run) -> None:
        """Answer a started run, in the thread that ended it, and let the reactor serve the connection again."""
        packet = self._replies.frame(run, PLACE, LOCAL_PACKET_BYTES)
        self._reactor.take_back(self)
        try:
            self._send_started(run, packet, AT_ONCE)
        except BlockingIOError:  # The device's thread must not wait until the client has read other replies.
            try:
                self._device.threads.run(partial(self._send_started, run, packet))
            except OutOfMemory:
                end_connection(self._socket)
                self._forget_unsent(run)

    def _send_started(self, run: Run, packet: bytes, flags: int = 0) -> None:
        """Send the reply of a started run.

        Raises BlockingIOError if the flags forbid waiting and there is no room for the reply.
        """
        try:
            self._socket.send(packet, flags)
        except OSError as error:  # The client is gone, or reads no replies.
            if flags and isinstance(error, BlockingIOError):
                raise
            end_connection(self._socket)
        self._forget_unsent(run)

    def _forget_unsent(self, run: Run) -> None:
        self._unsent.discard(run)
        self._close_socket()

    def _send(self, frames: Sequence[bytes], flags: int = 0) -> None:
        """Send replies in as few packets as possible; raise OSError."""
        first = 0
        while first < len(frames):
            last, size = first + 1, len(frames[first])
            while last < len(frames) and (size := size + len(frames[last])) <= LOCAL_PACKET_BYTES:
                last += 1
            try:
                self._socket.send(b"".join(frames[first:last]), flags)
            except OSError:
                end_connection(self._socket)  # So that no other thread waits for this client.
                raise
            first = last

    def begin_joined(self) -> Sequence[Run]:
        """Begin the runs that are to join a batch, and return those without an error.

        `end_joined` answers the others.
        """
        for run in self._joined:
            self._executing.begin(run)
        return [run for run in self._joined if run.error is None]

    def end_joined(self, tried: Collection[Run] = ()) -> bool:
        """Answer the runs in `tried`, which a batch has tried, and those that failed to begin.

        Runs whose batch failed are computed alone here. Returns whether the connection goes on.
        """
        ended = [run for run in self._joined if run.error is not None or run in tried]
        self._joined = [run for run in self._joined if run not in ended]
        frames = []
        try:
            for run in ended:
                self._executing.execute(run, alone=True)
                frames.append(self._replies.frame(run, PLACE, LOCAL_PACKET_BYTES))
            self._send(frames, AT_ONCE)
        except OSError:
            return False  # The client is gone, or reads no replies: the other clients must not wait for it.
        finally:
            for run in ended:
                self._executing.end(run)
        return True
