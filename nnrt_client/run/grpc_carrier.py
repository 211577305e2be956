"""Runs over gRPC: each stream is a long-lived call, PreparedModel.RunStream.

A stream costs half of a unary call per run (docs/adr/0001-carrier-of-a-run.md). One run at a time on each keeps what a
unary call would give: ending the call ends that run and no other.
"""

import logging
import queue
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np

from nnrt_client.run.carrier import Lane, OneRun
from nnrt_client.run.chunked_reply import ChunkedReply
from nnrt_client.run.packet import PlannedPacket
from nnrt_client.run.plan import Plan
from nnrt_client.run.run import Run, told
from nnrt_client.session.broken_call import BrokenCall, CutOff
from nnrt_client.session.session import Session
from nnrt_client.tensors.device_buffer import DeviceBuffer, Stored
from nnrt_hdi.chunks import beyond_inline, pieces
from nnrt_hdi.compression import INLINE_BYTES
from nnrt_hdi.errors import NnrtError, OperationFailed
from nnrt_hdi.wire import times_told
from nnrt_hdi.wire.run_codec import request_chunk

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

    def pack(self, run: Run) -> tuple[Plan | PlannedPacket, bytes] | None:
        """What reads the reply of a run that has a plan, and its only message. Other messages are made when gRPC asks
        for them, in a thread of its own."""
        plan = run.signature.plans.of(run)
        if plan is None or plan.is_local or self._session.compressor is not None:
            return None
        if plan.is_inline:
            return plan, plan.message_prefix + plan.packed(run)
        packet = PlannedPacket(None, plan, run)
        return packet, plan.message_prefix + plan.packed(run, packet.regions)

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
        # Runs with their messages, where those are made.
        self._outbox: queue.SimpleQueue[tuple[Run, bytes | None] | None] = queue.SimpleQueue()
        # What reads a planned reply.
        self._plan: Plan | PlannedPacket | None = None
        self._call = session.start("PreparedModel.RunStream", self._requests())
        reader = threading.Thread(target=self._read, name=f"nnrt-stream {session.address}", daemon=True)
        readers.add(reader)
        try:
            reader.start()
        except BaseException:
            readers.discard(reader)
            self.shut_down()
            raise

    def send(self, run: Run, packed: tuple[Plan | PlannedPacket, bytes] | None) -> None:
        if run.tensors is not None:
            run.tensors.begin()
        self._plan, message = packed or (None, None)
        self._outbox.put((run, message))

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

    def _requests(self) -> Iterator[Any]:
        """Yield what is sent, in a thread of gRPC's."""
        while (sent := self._outbox.get()) is not None:
            run, planned = sent
            try:
                if planned is not None:
                    run.stamps.sent_ns = time.perf_counter_ns()
                for message in _messages(run, self._session) if planned is None else (planned,):
                    if self.run is not run:
                        break  # It has ended; the daemon waits for no more of it.
                    yield message
                    del message
            except Exception as error:  # No memory, perhaps.
                _log.exception("%s: a run could not be sent", self._session.place)
                self._runs.could_not_read(self, run, error)
            del sent, run  # An idle stream keeps no tensors alive.

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
        replies: Iterator[Any] = self._call
        for incoming in replies:
            run = self.run
            if type(incoming) is bytes:
                if not self._took_planned(run, incoming):
                    return _ended(OperationFailed(_ANSWERS_NONE, place=self._session.place))
                del run, incoming
                continue
            if run is None or incoming.message.run_id not in (0, run.id):
                return _ended(OperationFailed(_ANSWERS_NONE, place=self._session.place))
            run.stamps.answered_ns = time.perf_counter_ns()
            reply = ChunkedReply(run, incoming, replies, self._session.compressor)
            if reply.is_read:  # First of all: who waits for the run goes on with the next one.
                try:
                    self._runs.answered(self, run)
                    run.finish(reply.unpacked, times_told(incoming.message), incoming.message)
                except BaseException as error:  # The stream doesn't carry the run any more: nobody else would end it.
                    self._runs.could_not_read(self, run, error)
            else:
                run.finish(reply.unpacked, times_told(incoming.message), incoming.message)
                if not reply.is_read:
                    return _ended(OperationFailed("its reply was not read to the end"))
                self._runs.answered(self, run)
            del run, reply, incoming  # An idle stream keeps no tensors alive.
        return _ended(OperationFailed("the daemon ended the run stream", place=self._session.place))

    def _took_planned(self, run: Run | None, reply: bytes) -> bool:
        """End a run with its planned reply; false where that is not its."""
        plan = self._plan
        told = None if plan is None else plan.told(reply)
        if run is None or plan is None or told is None or told[0] != run.id:
            return False
        run.stamps.answered_ns = time.perf_counter_ns()
        try:
            self._runs.answered(self, run)
            run.finish(partial(plan.outputs, reply), told[1])
        except BaseException as error:  # The stream doesn't carry the run any more: nobody else would end it.
            self._runs.could_not_read(self, run, error)
        return True


def _ended(error: NnrtError) -> BrokenCall:
    return BrokenCall(error.message, error, is_told=True)


def _messages(run: Run, session: Session) -> Iterator[Any]:
    """Yield the RunRequest of a run, and the chunks of inputs that are too long for it or are to be compressed."""
    signature, inputs, compressor = run.signature, run.inputs, session.compressor
    if run.ended.is_set:
        return
    message_bytes = session.welcome.limits.message_bytes
    sizes = (0 if isinstance(given, Stored) else given.nbytes for given in inputs)
    inline_bytes = message_bytes if compressor is None else min(INLINE_BYTES, message_bytes)
    chunked = beyond_inline(sizes, inline_bytes)
    targets = None if run.tensors is None else run.tensors.targets
    fields: dict[str, Any] = {"run_id": run.id, "timeout_ms": run.remaining_ms, "takes_chunks": True, **run.fields}
    if compressor is None:
        fields["plan"] = signature.plans.announced(run)
    # What is not contiguous is copied once, and for its chunks only when their turn comes.
    if run.unwanted:
        fields["unwanted_outputs"] = run.unwanted
    request = signature.request(inputs, targets, chunked, **fields)
    run.stamps.sent_ns = time.perf_counter_ns()
    yield request
    del request
    arrays = (np.ascontiguousarray(inputs[index]) for index in sorted(chunked))
    chunk = request_chunk if compressor is None else compressor.request_chunk
    yield from map(chunk, pieces(arrays, message_bytes))
