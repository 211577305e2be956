"""One RunStream call: the runs on it, one after another."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc

from nnrt_device_service.core.device import Device
from nnrt_device_service.sessions.run_registry import Run
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.plans import PlannedReply, PlannedRequest
from nnrt_device_service.transport.requests import COUNTED_BYTES
from nnrt_device_service.transport.run_requests import RunRequests, keep_reply, run_error_to_tell
from nnrt_device_service.transport.run_result import RunResult, error_reply
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.run_codec import Incoming

# Where a connection breaks, gRPC has the requests end first, and the call so much later at most.
_END_S = 0.5


class RunStream:
    """Answers the requests of a call, each with a reply and the chunks of its outputs."""

    def __init__(
        self,
        device: Device,
        run_requests: RunRequests,
        session: Session,
        requests: Iterator[Incoming | bytes],
        context: Any,
    ) -> None:
        self._device = device
        self._run_requests = run_requests
        self._session = session
        self._requests = requests
        self._context = context
        # One that came where chunks were to come.
        self._early: Incoming | bytes | None = None
        # Whether chunks may still be on their way to a run that has failed.
        self._skips_chunks = False
        self._dying_with_call = Cancellation()
        context.add_callback(lambda: self._dying_with_call.cancel())
        self._ended = threading.Event()
        if not context.add_callback(self._ended.set):
            self._ended.set()

    def replies(self) -> Iterator[prepared_model_pb2.RunReply | bytes]:
        session, runs, gate = self._session, self._session.runs, self._device.gate
        run: Run | None = None
        counted_bytes = 0
        try:
            while (request := self._next_request()) is not None:
                result = None  # Its outputs may lie in the memory that the next inputs need.
                if counted_bytes:
                    session.budget.release(counted_bytes)
                    counted_bytes = 0
                asked = PlannedRequest(session, request) if isinstance(request, bytes) else request.message
                former, run = run, None
                timeout_ms, run_id = asked.timeout_ms, asked.run_id
                cancellation = Cancellation(time.monotonic() + timeout_ms / 1000 if timeout_ms else None)
                is_inside = False
                # The stream outlives a run that fails, so this error is a reply, not a status.
                try:
                    if run_id:
                        run = runs.begin(run_id, cancellation, former)
                    else:
                        if former is not None:
                            runs.forget(former)
                        self._dying_with_call = cancellation
                        if not self._context.is_active():
                            return
                    gate.enter()
                    is_inside = True
                    result = self._result(request, asked, cancellation)
                    if isinstance(result, RunResult):
                        result.fit(in_chunks=asked.takes_chunks, compressed=session.wants_compression)
                        if result.inline_bytes >= COUNTED_BYTES:
                            session.budget.reserve(result.inline_bytes)
                            counted_bytes = result.inline_bytes
                        result.count(session.usage)
                    if run is not None:
                        runs.finish(run, result)
                    if isinstance(result, RunResult):
                        yield from result.messages()
                    else:
                        yield result.plan.reply_prefix + result.packet
                    self._skips_chunks = False
                except Exception as error:
                    self._skips_chunks = True
                    told = run_error_to_tell(error, "PreparedModel/RunStream", session, asked, cancellation)
                    failed = error_reply(run_id, told)
                    if run is not None:
                        runs.finish(run, failed)
                    yield failed
                finally:
                    if is_inside:
                        gate.leave()
        finally:
            if counted_bytes:
                session.budget.release(counted_bytes)
            if run is not None:
                keep_reply(session, run)

    def _result(
        self,
        request: Incoming | bytes,
        asked: prepared_model_pb2.RunRequest | PlannedRequest,
        cancellation: Cancellation,
    ) -> RunResult | PlannedReply:
        if isinstance(asked, PlannedRequest):
            return self._run_requests.planned.run(self._session, asked, cancellation)
        assert isinstance(request, Incoming)
        if request.chunk:
            raise InvalidParameter("a chunk came that belongs to no request; announce it in an input, as `chunked`")
        hang_up = self._context.cancel
        arrived = self._run_requests.arrived(self._session, request, self._chunks(), cancellation, hang_up)
        return self._run_requests.run(self._session, asked, cancellation, arrived=arrived)

    def _next_request(self) -> Incoming | bytes | None:
        request, self._early = self._early, None
        request = request or next(self._requests, None)
        while self._skips_chunks and isinstance(request, Incoming) and request.is_chunk:
            request = next(self._requests, None)
        return request

    def _chunks(self) -> Iterator[memoryview | bytes]:
        """Those that follow a request. Raises InvalidParameter where something else does, or nothing, and
        ConnectionFailed where the call broke."""
        try:
            for request in self._requests:
                if isinstance(request, bytes) or not request.is_chunk:
                    self._early = request
                    raise InvalidParameter("another request came before all chunks of this one's inputs")
                yield request.piece
        except grpc.RpcError:
            pass
        if not self._ended.wait(_END_S):
            raise InvalidParameter("the requests ended before all chunks of this one's inputs had come")
        raise ConnectionFailed("the connection broke before all chunks of the run's inputs had come; run it again")
