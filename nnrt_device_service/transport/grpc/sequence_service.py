"""gRPC service Sequences: converts messages and calls the device."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from nnrt_device_service.device import Device
from nnrt_device_service.runs.loops import Looping
from nnrt_device_service.runs.sequence_requests import new_values, read_loop, reply_of
from nnrt_device_service.sessions.sequences import Sequence
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_device_service.transport.grpc.admission import at_end_of_call, session_of
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter, too_much
from nnrt_hdi.sequences import MAX_READ
from nnrt_hdi.tensor import TensorSpec
from nnrt_hdi.v2 import sequence_pb2, sequence_pb2_grpc
from nnrt_hdi.wire.values import ArrivingValues, value_messages, whole_arrays


class SequencesServicer(sequence_pb2_grpc.SequencesServicer):
    def __init__(self, device: Device, settings: Settings) -> None:
        self._device = device
        self._settings = settings

    def Write(self, requests: Iterator[sequence_pb2.SequenceWrite], context: Any) -> sequence_pb2.SequenceWritten:
        session, cancellation = session_of(self._device, context), _cancellation(context)
        first: sequence_pb2.SequenceWrite | None = None
        with ExitStack() as reserved:
            arriving = ArrivingValues(partial(self._reserve, session, reserved))
            for request in requests:
                if first is None:
                    first = sequence_pb2.SequenceWrite(
                        sequence_id=request.sequence_id, operation=request.operation, copy_of=request.copy_of
                    )
                arriving.take(request.values)
            if first is None:
                raise InvalidParameter("the call has no message; send one")
            values = new_values(arriving.arrays())
            with _operation(session, first, cancellation) as sequence:
                session.sequences.keep(sequence, values)
        return sequence_pb2.SequenceWritten()

    def _reserve(self, session: Session, reserved: ExitStack, spec: TensorSpec) -> None:
        """Count a value that arrives in the session's budget until `reserved` is closed."""
        if spec.byte_size > self._settings.tensor_bytes:
            raise too_much("the value", self._settings.tensor_bytes)
        reserved.enter_context(session.budget.reserved(spec.byte_size))

    def Read(self, request: sequence_pb2.SequenceRead, context: Any) -> Iterator[sequence_pb2.SequenceValue]:
        session, cancellation = session_of(self._device, context), _cancellation(context)
        if len(request.numbers) > MAX_READ:
            raise InvalidParameter(f"{len(request.numbers)} values are asked for; ask for at most {MAX_READ}")
        sequence = session.sequences.find(request.sequence_id)
        with ExitStack() as kept:
            with sequence.paused(cancellation):
                snapshot = session.sequences.snapshot(sequence)
                kept.callback(session.sequences.drop, snapshot)
            for number in request.numbers:
                if number not in snapshot:
                    raise InvalidParameter(f"sequence {sequence.id} has no value {number}")
                yield from value_messages(number, snapshot[number].on_host(), self._settings.message_bytes)

    def Loop(self, request: sequence_pb2.LoopRequest, context: Any) -> Iterator[sequence_pb2.LoopReply]:
        session, cancellation = session_of(self._device, context), _cancellation(context)
        loop, values = read_loop(session, request), new_values(whole_arrays(request.write.values))
        session.cancellations.add(cancellation)
        try:
            if not session.is_open:
                cancellation.cancel()
            with _operation(session, request.write, cancellation) as sequence:
                session.sequences.keep(sequence, values)
                looping = Looping(self._device.executing, session, sequence, loop, cancellation)
                ended = self._device.threads.submit(looping.run)
                try:
                    for results in looping.results():
                        yield reply_of(results)
                finally:
                    cancellation.cancel()
                    ended.result()
        finally:
            session.cancellations.discard(cancellation)

    def Stop(self, request: sequence_pb2.StopLoopRequest, context: Any) -> sequence_pb2.StopLoopReply:
        session = session_of(self._device, context)
        session.sequences.stop(request.sequence_id, request.operation)
        return sequence_pb2.StopLoopReply()

    def Release(self, request: sequence_pb2.ReleaseSequenceRequest, context: Any) -> sequence_pb2.ReleaseSequenceReply:
        session_of(self._device, context).sequences.release(request.sequence_id)
        return sequence_pb2.ReleaseSequenceReply()


def _cancellation(context: Any) -> Cancellation:
    """Return a cancellation with the deadline of the call, which the end of the call cancels."""
    remaining = context.time_remaining()
    cancellation = Cancellation(None if remaining is None else time.monotonic() + remaining)
    at_end_of_call(context, cancellation.cancel)
    return cancellation


def _operation(
    session: Session, write: sequence_pb2.SequenceWrite, cancellation: Cancellation
) -> AbstractContextManager[Sequence]:
    """Return a context manager for an operation of the sequence that a message names, see `Sequences.operation`."""
    return session.sequences.operation(write.sequence_id, write.operation, write.copy_of, cancellation)
