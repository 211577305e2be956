"""Links: connections that carry runs to the daemon. Each belongs to one waiting thread, or to the loop."""

import logging
import queue
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol

import grpc
import numpy as np

from nnrt_client.run.chunked_reply import ChunkedReply
from nnrt_client.run.failures import nnrt_error_of
from nnrt_client.run.reply import Reply, replies_in
from nnrt_client.run.run import Run
from nnrt_client.run.session_runs import SessionRuns
from nnrt_client.session.broken_call import BrokenCall, CutOff
from nnrt_client.session.local_socket import LocalConnection
from nnrt_client.session.session import Session
from nnrt_client.tensors.device_buffer import DeviceBuffer
from nnrt_hdi.chunks import pieces
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.signals import raised_by_handler, suppressed
from nnrt_hdi.wire.run_messages import Chunk, chunk_message, frames_message

_log = logging.getLogger(__name__)

# A plain number: operations on the enum's flags take microseconds.
_AT_ONCE = int(getattr(socket, "MSG_DONTWAIT", 0))
# Interval, in seconds, at which a thread that waits for a reply checks whether the run is late.
TICK_S = 0.5

_BROKEN = BrokenCall("the local socket broke off")
_BROKEN_STREAM = BrokenCall("the run stream broke off")
_ANSWERS_NONE = "a reply answers no run that is under way"


class LinkOwner(Protocol):
    """Owner of links, which links call in any thread."""

    def freed(self, link: "Link") -> None:
        """Make a link of the loop available again: all its replies have been read."""

    def leave(self, link: "Link") -> None:
        """Take over a link whose thread stops waiting while a run is under way on it."""

    def lost(self, link: "Link", broken: BrokenCall) -> None:
        """Handle that a link broke: fetch the replies of its runs by other calls."""


class Link(ABC):
    """Connection that carries one run of the thread that owns it, or several runs of the loop.

    The thread that reads a reply ends its run. Exactly one thread reads a link at any moment: the owner, the loop, or
    the link's own thread.
    """

    def __init__(self, links: LinkOwner, runs: SessionRuns, attachment: int) -> None:
        self.links = links
        self.runs = runs
        # The session's attachment when the link was opened. The daemon closes links of earlier attachments.
        self.attachment = attachment
        # The runs whose replies will come here, by id. A run that has ended meanwhile stays until its reply comes.
        self.under_way: dict[int, Run] = {}
        # `answered`: ids of the latest packet's runs whose replies have come; the next packet acknowledges them.
        # `former`: ids of the packet before, which the latest packet has acknowledged if it arrived.
        self.answered: list[int] = []
        self.former: list[int] = []
        # Whether the link must carry no further runs.
        self.is_over = False
        # Whether the reader has found that the connection ended.
        self.is_lost = False
        # Whether the link belongs to the loop: from the start, or since its thread left a run on it.
        self.is_loops = False
        # Whether a thread has left a run here. The link is closed when the reply has come.
        self.was_left = False
        # When the latest packet was sent (time.monotonic()).
        self.sent_at = 0.0

    @abstractmethod
    def send(self, runs: Sequence[Run]) -> None:
        """Send packed runs. Raise OSError if the daemon got none of them."""

    @abstractmethod
    def wait(self, run: Run) -> None:
        """Wait until the only run under way has ended. The thread that owns the link calls this."""

    @abstractmethod
    def stop(self, run: Run, reason: NnrtError) -> None:
        """End a cancelled run, unless the daemon may still write into memory of the application."""

    @abstractmethod
    def end(self) -> None:
        """End the connection, from any thread. Its reader still gets the replies that have arrived."""

    @abstractmethod
    def close(self) -> None:
        """Free the connection, which no thread reads any more."""

    def put_on(self, run: Run) -> None:
        """Add a run that is about to be sent. From now on the link is busy."""
        if not self.under_way:
            self.former, self.answered = self.answered, []
        self.under_way[run.id] = run
        run.link = self

    def carries(self, run: Run) -> bool:
        """Return whether the reply of a run will come here."""
        return self.under_way.get(run.id) is run

    def take_off(self) -> list[Run]:
        """Remove all runs and return them."""
        runs, self.under_way = list(self.under_way.values()), {}
        return runs

    def _forget(self, run: Run) -> None:
        """Remove a run whose reply has come, to acknowledge it with the next packet."""
        self.answered.append(run.id)
        self.under_way.pop(run.id, None)


class LocalLink(Link):
    """Link over a connection of the local socket."""

    def __init__(self, links: LinkOwner, runs: SessionRuns, session: Session) -> None:
        """Connect to the daemon. Raise the errors of LocalConnection."""
        super().__init__(links, runs, session.attachment)
        self._waits_s = TICK_S
        # Packet that the loop has received but not processed yet.
        self._unread: bytes | None = None
        self._connection = LocalConnection(session)  # Last, so that a failure above leaves nothing open.

    def fileno(self) -> int:
        """Return the descriptor, for the loop."""
        return self._connection.fileno()

    def send(self, runs: Sequence[Run]) -> None:
        packet = runs[0].packet.frame(runs[0]) if len(runs) == 1 else b"".join([run.packet.frame(run) for run in runs])
        now = perf_counter_ns()
        for run in runs:
            run.stamps.sent_ns = now
        self._connection.send(packet)

    def wait(self, run: Run) -> None:
        receive = self._connection.receive
        left_s = run.deadline - time.monotonic()
        if left_s < TICK_S or self._waits_s < TICK_S:
            self._wait_at_most(left_s)
        while run.id in self.under_way and not (self.is_lost or self.is_loops or run.ended.is_set):
            try:
                packet = receive(LOCAL_PACKET_BYTES)
            except OSError as error:
                if raised_by_handler(error):
                    raise
                if isinstance(error, BlockingIOError):
                    left_s = run.deadline - time.monotonic()
                    if left_s <= 0:
                        self.runs.expire(run)
                    self._wait_at_most(left_s if left_s > 0 else TICK_S)
                    continue
                packet = b""
            self.take(packet)
        if not run.ended.is_set:  # Its reply is being fetched.
            run.ended.wait()
        if self.under_way and not self.is_lost:
            self.links.leave(self)

    def _wait_at_most(self, seconds: float) -> None:
        """Limit the time that a receive blocks, so that the thread checks the run again."""
        self._waits_s = seconds = min(max(seconds, 1e-3), TICK_S)
        with suppressed(OSError):  # The loop may have closed it; the next receive raises then.
            self._connection.wait_at_most(seconds)

    def read_ready(self) -> None:
        """Read a packet that has arrived. The loop calls this, and repeats it after a MemoryError."""
        packet = self._unread
        try:
            packet = self._connection.receive(LOCAL_PACKET_BYTES, _AT_ONCE) if packet is None else packet
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        self._unread = packet
        self.take(packet)
        self._unread = None

    def take(self, packet: bytes) -> None:
        """End the runs whose replies are in the packet. An empty packet means that the connection ended."""
        try:
            replies = replies_in(packet)
        except InvalidParameter:  # The connection has ended, or the daemon sent an invalid packet.
            self.links.lost(self, _BROKEN)
            return
        for reply in replies:
            run = self.under_way.get(reply.run_id)
            if run is None:
                _log.debug(_ANSWERS_NONE)
                continue
            try:
                self._answer(run, reply)
            except Exception as error:  # Such as MemoryError. The other replies must be read nevertheless.
                if raised_by_handler(error):
                    raise
                self._forget(run)
                run.fail(nnrt_error_of(error, "the reply could not be read"))
        if self.is_loops and not self.under_way:
            self.links.freed(self)

    def _answer(self, run: Run, reply: Reply) -> None:
        outcome, packet = reply.outcome, run.packet
        if outcome is not None and outcome.is_unknown and packet is not None:
            packet.forget_description()
            try:
                self._connection.send(packet.frame(run))
            except OSError as error:
                if raised_by_handler(error):
                    raise
                self.links.lost(self, _BROKEN)
            return
        run.stamps.answered_ns = perf_counter_ns()
        if outcome is not None and outcome.kept:  # The daemon keeps the reply until it is fetched.
            self.runs.fetch(run, self.attachment)
            self.under_way.pop(run.id, None)
            return
        self._forget(run)
        if packet is not None:
            run.finish(partial(packet.outputs, run, reply), reply)

    def stop(self, run: Run, reason: NnrtError) -> None:
        if not run.is_written_by_daemon:
            run.fail(reason)  # Before the reader sees the end of the connection and fetches the reply.
            if not self.is_loops:
                self.end()  # Wakes the thread, which may be waiting for the reply.

    def end(self) -> None:
        self._connection.end()

    def close(self) -> None:
        self._connection.close()


class RemoteLink(Link):
    """Link over a RunStream call, with a thread that reads it.

    A run on a stream takes half the time of a unary call (docs/adr/0001-carrier-of-a-run.md). A stream carries one run
    at a time, so that canceling the call ends no other run.
    """

    def __init__(self, links: LinkOwner, runs: SessionRuns, session: Session) -> None:
        """Start the call. Raise UnavailableDevice, ConnectionFailed, or RuntimeError if no thread can be started."""
        super().__init__(links, runs, session.attachment)
        self._session = session
        # Runs to send.
        self._outbox: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._call = session.start("PreparedModel.RunStream", self._messages())
        self.reader = threading.Thread(target=self._read, name=f"nnrt-stream {session.address}", daemon=True)
        try:
            self.reader.start()
        except BaseException:
            self.end()
            raise

    def send(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._outbox.put(run)

    def wait(self, run: Run) -> None:
        while not run.ended.wait(min(max(run.deadline - time.monotonic(), 0.0), TICK_S)):
            if time.monotonic() >= run.deadline:
                self.runs.expire(run)
                run.ended.wait()

    def stop(self, run: Run, reason: NnrtError) -> None:
        if run.tensors is None or not any(isinstance(target, DeviceBuffer) for target in run.tensors.targets or ()):
            self.is_over = True
            self._call.cancel()
            run.fail(reason)

    def end(self) -> None:
        self._call.cancel()
        self._outbox.put(None)

    def close(self) -> None:
        """End gRPC's sending thread. The call ends when there are no more requests."""
        self._outbox.put(None)

    def _messages(self) -> Iterator[bytes]:
        """Yield the messages to send; gRPC calls this in a thread of its own."""
        while (run := self._outbox.get()) is not None:
            try:
                for message in _messages_of(run, self._session):
                    if run.id not in self.under_way:
                        break  # The run has ended, and the daemon doesn't need the remaining chunks.
                    yield message
                    del message
            except Exception as error:  # Such as MemoryError.
                self._give_up_run(run, error)
            del run  # So that an idle link keeps no tensors alive.

    def _read(self) -> None:
        """Process replies until the call ends, in the link's own thread."""
        broken = _BROKEN_STREAM
        try:
            broken = self._read_to_end()
        except BaseException as error:
            broken = BrokenCall("", nnrt_error_of(error, "a reply could not be read"), is_specific=True)
        finally:
            try:
                self.end()
            finally:
                try:
                    self.links.lost(self, broken)
                except MemoryError:  # Try once more, because nothing else would end the link's runs.
                    self.links.lost(self, broken)

    def _read_to_end(self) -> BrokenCall:
        try:
            return self._process_replies()
        except grpc.RpcError as error:
            return BrokenCall.from_rpc_error(error)
        except CutOff as cut_off:
            return cut_off.broken

    def _process_replies(self) -> BrokenCall:
        messages: Iterator[Any] = self._call
        for message in messages:
            try:
                reply = None if isinstance(message, Chunk) else Reply(message)
            except InvalidParameter as error:
                return _ended(OperationFailed(error.message, place=self._session.place))
            run = None if reply is None else self.under_way.get(reply.run_id)
            if run is None or reply is None:
                return _ended(OperationFailed(_ANSWERS_NONE, place=self._session.place))
            if reply.outcome is not None and reply.outcome.is_unknown:
                run.packet.forget_description()
                self._outbox.put(run)
                continue
            run.stamps.answered_ns = perf_counter_ns()
            chunked = ChunkedReply(run, reply, messages, self._session.compressor)
            if chunked.is_read:  # Free the link first: the waiting thread may send its next run at once.
                is_free = False
                try:
                    self._free(run)
                    is_free = True
                    chunked.finish()
                except BaseException as error:  # The run is no longer on the link, so nothing else would end it.
                    run.fail(nnrt_error_of(error, "the reply could not be read"))
                    if not is_free:
                        raise
            else:
                chunked.finish()
                if not chunked.is_read:
                    return _ended(OperationFailed("its reply was not read to the end"))
                self._free(run)
            del run, reply, chunked, message  # So that an idle link keeps no tensors alive.
        return _ended(OperationFailed("the daemon ended the run stream", place=self._session.place))

    def _free(self, run: Run) -> None:
        self._forget(run)
        if self.is_loops:
            self.links.freed(self)

    def _give_up_run(self, run: Run, error: BaseException) -> None:
        """Fail a run that was sent only in part, and end the link."""
        if run.id in self.under_way:
            if not run.ended.is_set:
                run.fail(nnrt_error_of(error, "the run could not be sent"))
            self.is_over = True
            self._call.cancel()


def _ended(error: NnrtError) -> BrokenCall:
    return BrokenCall(error.message, error, is_specific=True)


def _messages_of(run: Run, session: Session) -> Iterator[bytes]:
    """Yield the frame of a run, then the chunks of inputs that are too long for the frame or are compressed."""
    inputs, packet, compressor = run.inputs, run.packet, session.compressor
    if packet is None:  # The run has ended.
        return
    frame = packet.frame(run)
    run.stamps.sent_ns = perf_counter_ns()
    yield frames_message(frame)
    del frame
    if packet.description.chunked_inputs:
        # A generator: each non-contiguous array is copied only when its chunks are sent.
        arrays = (np.ascontiguousarray(inputs[index]) for index in packet.description.chunked_inputs)
        make = chunk_message if compressor is None else compressor.chunk_message
        yield from map(make, pieces(arrays, session.welcome.limits.message_bytes))
