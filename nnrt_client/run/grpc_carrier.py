"""Runs over gRPC: each stream is a long-lived call, PreparedModel.RunStream.

A stream costs half of a unary call per run (docs/adr/0001-carrier-of-a-run.md). One run at a time on each keeps what a
unary call would give: ending the call ends that run and no other.
"""

import logging
import queue
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np

from nnrt_client.run.carrier import Lane, OneRun
from nnrt_client.run.chunked_reply import ChunkedReply
from nnrt_client.run.packet import Packet
from nnrt_client.run.reply import Reply
from nnrt_client.run.run import Run, told
from nnrt_client.session.broken_call import BrokenCall, CutOff
from nnrt_client.session.session import Session
from nnrt_client.tensors.device_buffer import DeviceBuffer
from nnrt_hdi.chunks import pieces
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.wire.run_messages import Chunk, chunk_message, frames_message

if TYPE_CHECKING:
    from nnrt_client.run.queue import RunQueue

_log = logging.getLogger(__name__)

_ANSWERS_NONE = "the daemon sent a reply that answers no run"


class GrpcCarrier:
    """Opens run streams. See `Carrier`."""

    # It waits in gRPC's locks, which the main thread must not enter; so a thread of each stream does it.
    is_read_by_callers = False

    def __init__(self, session: Session, runs: "RunQueue") -> None:
        self._session = session
        self._runs = runs
        self._readers: set[threading.Thread] = set()

    def pack(self, run: Run) -> Packet:
        """What reads the reply. The messages are made when gRPC asks for them, in a thread of its own."""
        return Packet(run.signature.descriptions.remote.of(run), run)

    def opened(self, lane: Lane) -> "GrpcStream":
        return GrpcStream(self._session, self._runs, lane, self._readers)

    def end(self) -> None:
        """The calls end with the session's channel, and their readers with them."""

    def wait_ended(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        for reader in list(self._readers - {threading.current_thread()}):
            if reader.is_alive():  # Else it is just being started, for a stream that ends at once.
                reader.join(max(until - time.monotonic(), 0.0))


class GrpcStream(OneRun):
    """One RunStream call, and the thread that reads it. See `Stream`."""

    def __init__(self, session: Session, runs: "RunQueue", lane: Lane, readers: set[threading.Thread]) -> None:
        self.lane = lane
        self.run: Run | None = None
        self.answered = 0
        self.attachment = session.attachment
        self.is_over = False
        self._session = session
        self._runs = runs
        self._readers = readers
        # Runs that are to be sent.
        self._outbox: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._call = session.start("PreparedModel.RunStream", self._requests())
        reader = threading.Thread(target=self._read, name=f"nnrt-stream {session.address}", daemon=True)
        readers.add(reader)
        try:
            reader.start()
        except BaseException:
            readers.discard(reader)
            self.shut_down()
            raise

    def send(self, run: Run, packet: Packet) -> None:
        run.packet = packet
        self._outbox.put(run)

    def read_here(self, run: Run) -> None:
        raise NotImplementedError("gRPC's replies are read by the stream's own thread")

    def read_elsewhere(self) -> None:
        """Do nothing: the stream's own thread always reads."""

    def stop(self, run: Run, reason: NnrtError) -> None:
        if run.tensors is not None and any(isinstance(target, DeviceBuffer) for target in run.tensors.targets or ()):
            return
        if self._runs.withdraw(self, run):
            self.shut_down()
        run.fail(reason)

    def shut_down(self) -> None:
        self._call.cancel()
        self._outbox.put(None)

    def close(self) -> None:
        """End the thread of gRPC's that sends; the call ends with its requests."""
        self._outbox.put(None)

    def _requests(self) -> Iterator[bytes]:
        """Yield what is sent, in a thread of gRPC's."""
        while (run := self._outbox.get()) is not None:
            try:
                for message in _messages(run, self._session):
                    if self.run is not run:
                        break  # It has ended; the daemon waits for no more of it.
                    yield message
                    del message
            except Exception as error:  # No memory, perhaps.
                if not run.ended.is_set:
                    _log.exception("%s: a run could not be sent", self._session.place)
                self._runs.could_not_read(self, run, error)
            del run  # An idle stream keeps no tensors alive.

    def _read(self) -> None:
        """Hand out replies to the end of the call, in the stream's reader thread."""
        try:
            broken = self._replies_handed_out()
        except grpc.RpcError as error:
            broken = BrokenCall.of(error)
        except CutOff as cut_off:
            broken = cut_off.broken
        except BaseException as error:
            broken = BrokenCall("", told(error, "a reply could not be read"), is_told=True)
        try:
            try:
                self.shut_down()
            finally:
                self._runs.lost(self, broken)
        finally:
            self._readers.discard(threading.current_thread())

    def _replies_handed_out(self) -> BrokenCall:
        messages: Iterator[Any] = self._call
        for message in messages:
            run = self.run
            try:
                reply = None if isinstance(message, Chunk) else Reply(message)
            except InvalidParameter as error:
                return _ended(OperationFailed(error.message, place=self._session.place))
            if run is None or reply is None or reply.run_id != run.id:
                return _ended(OperationFailed(_ANSWERS_NONE, place=self._session.place))
            if reply.outcome is not None and reply.outcome.is_unknown:
                run.packet.forget_description()
                self._outbox.put(run)
                del run, reply, message
                continue
            run.stamps.answered_ns = time.perf_counter_ns()
            chunked = ChunkedReply(run, reply, messages, self._session.compressor)
            if chunked.is_read:  # First of all: who waits for the run goes on with the next one.
                try:
                    self._runs.answered(self, run)
                    chunked.finish()
                except BaseException as error:  # The stream doesn't carry the run any more: nobody else would end it.
                    self._runs.could_not_read(self, run, error)
            else:
                chunked.finish()
                if not chunked.is_read:
                    return _ended(OperationFailed("its reply was not read to the end"))
                self._runs.answered(self, run)
            del run, reply, chunked, message  # An idle stream keeps no tensors alive.
        return _ended(OperationFailed("the daemon ended the run stream", place=self._session.place))


def _ended(error: NnrtError) -> BrokenCall:
    return BrokenCall(error.message, error, is_told=True)


def _messages(run: Run, session: Session) -> Iterator[bytes]:
    """Yield the frame of a run, and the chunks of inputs that are too long for it or are to be compressed."""
    inputs, packet, compressor = run.inputs, run.packet, session.compressor
    if packet is None:  # It has ended.
        return
    frame = packet.frame(run)
    run.stamps.sent_ns = time.perf_counter_ns()
    yield frames_message(frame)
    del frame
    if packet.description.chunked_inputs:
        # What is not contiguous is copied only when its turn comes.
        arrays = (np.ascontiguousarray(inputs[index]) for index in packet.description.chunked_inputs)
        make = chunk_message if compressor is None else compressor.chunk_message
        yield from map(make, pieces(arrays, session.welcome.limits.message_bytes))
