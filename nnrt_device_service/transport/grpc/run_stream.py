"""Server side of a RunStream call: answers its frames one after another."""

import threading
from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any

import grpc
import numpy as np

from nnrt_device_service.device import Device
from nnrt_device_service.runs.frames import read_runs
from nnrt_device_service.runs.replies import Replies, keep_reply, release_reply_bytes, reply_messages
from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.descriptions import CHUNKS
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.grpc.admission import at_end_of_call
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter
from nnrt_hdi.tensor import Array
from nnrt_hdi.wire.packet import Bytes
from nnrt_hdi.wire.run_messages import Chunk

# When a connection breaks, gRPC ends the requests first, and the call at most so many seconds later.
_END_S = 0.5
_METHOD = "PreparedModel/RunStream"
# Alignment of tensors that backends compute with.
_ALIGNMENT = 8


class RunStream:
    """RunStream call, whose frames are answered with frames and the chunks of outputs."""

    def __init__(
        self,
        device: Device,
        replies: Replies,
        message_bytes: int,
        session: Session,
        messages: Iterator[Bytes | Chunk],
        context: Any,
    ) -> None:
        self._executing = device.executing
        self._replies = replies
        self._message_bytes = message_bytes
        self._session = session
        self._messages = messages
        self._context = context
        # Frames that came where chunks were expected.
        self._early: Bytes | None = None
        # Whether to skip chunks: those of a run that has failed may still arrive.
        self._skips_chunks = False
        self._ended = threading.Event()
        at_end_of_call(context, self._ended.set)

    def messages(self) -> Iterator[bytes]:
        """Execute the runs of the call, and yield the messages of their replies.

        Raises InvalidParameter for a packet that can't be cut into frames, and for a chunk that belongs to no frame.
        """
        runs: Sequence[Run] = ()
        try:
            while (packet := self._next_frames()) is not None:
                release_reply_bytes(runs)
                former, runs = runs, read_runs(self._session, packet, perf_counter_ns(), takes_chunks=True)
                for run in runs:
                    self._executing.begin(run, former)
                    former = ()
                try:
                    for run in runs:
                        yield from self._answer(run)
                finally:
                    for run in runs:
                        self._executing.end(run)
                packet = None  # It must not stay in memory until the next packet arrives.
        finally:
            release_reply_bytes(runs)
            for run in runs:
                keep_reply(run)

    def _answer(self, run: Run) -> Iterator[bytes]:
        """Execute a run and yield the messages of its reply; an error becomes a reply and doesn't end the stream."""
        description = run.description
        if run.error is None and description is not None and description.has_chunks:
            try:
                self._receive(run)
            except Exception as error:
                run.error = error
        self._executing.execute(run)
        self._skips_chunks = run.error is not None
        frame, is_compressed = self._replies.frame(run, _METHOD), self._session.wants_compression
        yield from reply_messages(frame, run, self._message_bytes, is_compressed=is_compressed)

    def _receive(self, run: Run) -> None:
        """Receive the inputs of a run that follow in chunks; raise what `ChunkedInputs.receive` raises."""
        description = run.description
        assert description is not None
        specs = {index: tensor.form.spec for index, tensor in enumerate(description.inputs) if tensor.place == CHUNKS}
        arrived: dict[int, Array] = self._session.chunked_inputs.receive(
            specs, self._chunks(), run.cancellation, self._context.cancel
        )
        for index, array in arrived.items():
            run.inputs[index] = array
        run.received_at_ns = perf_counter_ns()

    def _next_frames(self) -> Bytes | None:
        """Return the next frames, or None at the end of the call."""
        early, self._early = self._early, None
        message = early or next(self._messages, None)
        while isinstance(message, Chunk):
            if not self._skips_chunks:
                raise InvalidParameter(
                    "a chunk came that belongs to no frame; describe a tensor with TENSOR_PLACE_CHUNKS", place=_METHOD
                )
            message = next(self._messages, None)
        # Frames of a client that leaves out the padding are copied.
        return message if message is None or _begins_aligned(message) else bytes(message)

    def _chunks(self) -> Iterator[Bytes]:
        """Yield the chunks that follow a frame.

        Raises InvalidParameter if other frames or no messages follow, and ConnectionFailed if the connection broke.
        """
        try:
            for message in self._messages:
                if not isinstance(message, Chunk):
                    self._early = message
                    raise InvalidParameter("other frames came before all chunks of this one's inputs")
                yield message.piece
        except grpc.RpcError:
            pass
        if not self._ended.wait(_END_S):
            raise InvalidParameter("the messages ended before all chunks of this frame's inputs had come")
        raise ConnectionFailed("the connection broke before all chunks of the run's inputs had come; run it again")


def _begins_aligned(frames: Bytes) -> bool:
    """Return whether frames are aligned in memory, so that tensors in them can be used without a copy."""
    address: int = np.frombuffer(frames, np.uint8).__array_interface__["data"][0]
    return address % _ALIGNMENT == 0
