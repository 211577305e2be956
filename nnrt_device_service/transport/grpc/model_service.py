"""gRPC service PreparedModel: converts messages and calls the device."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from nnrt_device_service.device import Device
from nnrt_device_service.host.log_context import add_log_fields
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.runs.replies import COUNTED_BYTES, Replies, reply_messages
from nnrt_device_service.runs.requests import read_run
from nnrt_device_service.settings import Settings
from nnrt_device_service.transport.grpc.admission import at_end_of_call, session_of
from nnrt_device_service.transport.grpc.builds import require_request_id
from nnrt_device_service.transport.grpc.run_stream import RunStream
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import MAX_RUN_IDS
from nnrt_hdi.v2 import (
    model_pb2,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
)
from nnrt_hdi.wire.packet import Bytes
from nnrt_hdi.wire.run_messages import Chunk


class PreparedModelServicer(prepared_model_pb2_grpc.PreparedModelServicer):
    def __init__(self, device: Device, settings: Settings, replies: Replies) -> None:
        self._device = device
        self._replies = replies
        self._settings = settings

    def Run(self, request: prepared_model_pb2.RunRequest, context: Any) -> prepared_model_pb2.RunReply:
        received_at_ns = time.perf_counter_ns()
        session = session_of(self._device, context)
        add_log_fields({"model": request.model_id})
        remaining = context.time_remaining()
        cancellation = Cancellation(None if remaining is None else time.monotonic() + remaining)
        context.add_callback(cancellation.cancel)
        run = read_run(session, request, cancellation, received_at_ns)
        add_log_fields(run.served_fields)
        self._device.executing.execute(run)
        reply, inline_bytes = self._replies.message(run)
        if inline_bytes >= COUNTED_BYTES:
            session.budget.reserve(inline_bytes)
            at_end_of_call(context, partial(session.budget.release, inline_bytes))
        return reply

    def RunStream(self, requests: Iterator[Bytes | Chunk], context: Any) -> Iterator[bytes]:
        session = session_of(self._device, context)
        message_bytes = self._settings.message_bytes
        yield from RunStream(self._device, self._replies, message_bytes, session, requests, context).messages()

    def AwaitRun(self, request: prepared_model_pb2.AwaitRunRequest, context: Any) -> Iterator[bytes]:
        session = session_of(self._device, context)
        context.add_callback(session.runs.wake)
        run = session.runs.reply_of(request.run_id, context.is_active)
        message_bytes = self._settings.message_bytes
        is_compressed = session.wants_compression and not run.was_too_long
        yield from reply_messages(run.reply or b"", run, message_bytes, is_compressed=is_compressed)

    def CancelRuns(
        self, request: prepared_model_pb2.CancelRunsRequest, context: Any
    ) -> prepared_model_pb2.CancelRunsReply:
        if len(request.run_ids) > MAX_RUN_IDS:
            raise InvalidParameter(f"{len(request.run_ids)} run_ids were given; give at most {MAX_RUN_IDS} at a time")
        stopping = session_of(self._device, context).runs.cancel(request.run_ids)
        return prepared_model_pb2.CancelRunsReply(stopping_run_ids=stopping)

    def ExportModelCache(
        self, request: prepared_model_pb2.ExportModelCacheRequest, context: Any
    ) -> prepared_model_pb2.ExportModelCacheReply:
        session, progress = session_of(self._device, context), Progress()
        add_log_fields({"model": request.model_id})
        context.add_callback(progress.cancellation.cancel)
        reply = prepared_model_pb2.ExportModelCacheReply()
        for buffer_id, size_bytes in self._device.models.export(session, request.model_id, progress):
            reply.buffers.add(region=model_pb2.BufferRegion(buffer_id=buffer_id, data_size=size_bytes))
        return reply

    def GetInputDimRanges(
        self, request: prepared_model_pb2.GetInputDimRangesRequest, context: Any
    ) -> prepared_model_pb2.GetInputDimRangesReply:
        add_log_fields({"model": request.model_id})
        cancellation = Cancellation()
        at_end_of_call(context, cancellation.cancel)
        with session_of(self._device, context).model(request.model_id).used(cancellation) as model:
            return wire.dim_ranges_message(model.shared.prepared.input_ranges())

    def Release(self, request: prepared_model_pb2.ReleaseRequest, context: Any) -> prepared_model_pb2.ReleaseReply:
        session = session_of(self._device, context)
        if request.request_id:
            require_request_id(request.request_id)
            session.give_up(request.request_id)
        else:
            with self._device.freeing.await_own():
                session.release_model(request.model_id)
        return prepared_model_pb2.ReleaseReply()
