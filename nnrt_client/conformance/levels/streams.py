"""Streams of runs on which the kit controls every step: start, cancellation and end."""

import time
from collections.abc import Sequence
from itertools import count
from queue import SimpleQueue
from typing import Any

import grpc

from nnrt_client.conformance.target import Connection, Prepared
from nnrt_client.run.reply import Reply
from nnrt_client.session.broken_call import BrokenCall
from nnrt_hdi import wire
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError, OperationFailed
from nnrt_hdi.tensor import Array, TensorSpec, data_type_of
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.packet import FrameLayout
from nnrt_hdi.wire.run_messages import Chunk, frames_message

# Far from the IDs that executors use.
_run_ids = count(1 << 40)


def new_run_id() -> int:
    """Return a run ID that no other run has."""
    return next(_run_ids)


def run_request(prepared: Prepared, inputs: Sequence[Array], **fields: Any) -> Any:
    """Return a RunRequest without the client's own checks."""
    tensors = [wire.io_tensor_message(TensorSpec(data_type_of(each.dtype), each.shape), each) for each in inputs]
    return prepared_model_pb2.RunRequest(model_id=prepared.handle.model_id, inputs=tensors, **fields)


def run_frame(prepared: Prepared, inputs: Sequence[Array], run_id: int = 0, timeout_ms: int = 0) -> bytes:
    """Return the frame of a run with these inputs, whose outputs come in the reply."""
    description = prepared_model_pb2.RunDescription(model_id=prepared.handle.model_id)
    for each in inputs:
        description.inputs.add(data_type=wire.number(data_type_of(each.dtype)), dimensions=each.shape)
    for _ in prepared.outputs:
        description.outputs.add(is_open=True)
    layout = FrameLayout([each.nbytes for each in inputs], (), 0)
    return layout.request(0, run_id or new_run_id(), timeout_ms, (), inputs, description.SerializeToString())


class Stream(Closable):
    """Run stream over gRPC, in which each frame gets one reply, in order."""

    def __init__(self, connection: Connection) -> None:
        self._session = connection.session
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._replies = self._session.start("PreparedModel.RunStream", iter(self._requests.get, None))

    def send(self, frame: bytes) -> None:
        """Send the frame of a run."""
        self._requests.put(frames_message(frame))

    def await_reply(self) -> None:
        """Wait for the next reply. Raises the error of the run or of the stream."""
        try:
            while isinstance(message := next(self._replies), Chunk):
                pass  # A chunk belongs to the previous reply.
        except StopIteration as error:
            raise OperationFailed("the daemon ended a run stream before its last reply") from error
        except grpc.RpcError as error:
            raise self._session.verdict(BrokenCall.from_rpc_error(error), "PreparedModel.RunStream") from error
        outcome = Reply(message).outcome
        if outcome is not None and outcome.HasField("error"):
            raise wire.error_from_detail(outcome.error)

    def outcome(self) -> tuple[NnrtError | None, float]:
        """Wait for the next reply; return the run's error (None for outputs) and time.monotonic() at its arrival."""
        try:
            self.await_reply()
        except NnrtError as error:
            return error, time.monotonic()
        return None, time.monotonic()

    def close(self) -> None:
        self._requests.put(None)
        self._replies.cancel()


def cancel(connection: Connection, *run_ids: int) -> Sequence[int]:
    """Ask the daemon to stop runs, and return the IDs of those that were under way."""
    request = prepared_model_pb2.CancelRunsRequest(run_ids=run_ids)
    stopping: Sequence[int] = connection.call("PreparedModel.CancelRuns", request).stopping_run_ids
    return stopping
