"""gRPC service NnrtDevice: converts messages and calls the device."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from nnrt_device_service.device import Device
from nnrt_device_service.memory.device_memory import DeviceRange
from nnrt_device_service.memory.shared_files import FileRegion
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Program
from nnrt_device_service.runs.requests import inline_bytes
from nnrt_device_service.runs.tensors import put
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_device_service.transport.grpc.admission import session_of
from nnrt_device_service.transport.grpc.builds import Builds
from nnrt_hdi import wire
from nnrt_hdi.chunks import cut
from nnrt_hdi.compression import expanded
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.files.compiled import MAX_PARTS
from nnrt_hdi.graph import Constant
from nnrt_hdi.v2 import (
    device_pb2,
    device_pb2_grpc,
    model_pb2,
)

_MAX_REASON_BYTES = 512

PartT = TypeVar("PartT")


class NnrtDeviceServicer(device_pb2_grpc.NnrtDeviceServicer):
    def __init__(self, device: Device, settings: Settings) -> None:
        self._device = device
        self._models = device.models
        self._settings = settings
        self._builds = Builds(device, settings)

    def GetDeviceStatus(
        self, request: device_pb2.GetDeviceStatusRequest, context: Any
    ) -> device_pb2.GetDeviceStatusReply:
        session_of(self._device, context)
        canary = self._device.canary
        return wire.device_status_message(self._device.status, canary.state if canary is not None else None)

    def GetCounters(self, request: device_pb2.GetCountersRequest, context: Any) -> device_pb2.GetCountersReply:
        return wire.counters_message(self._device.counters(session_of(self._device, context)))

    def GetSupportedOperation(
        self, request: device_pb2.GetSupportedOperationRequest, context: Any
    ) -> device_pb2.GetSupportedOperationReply:
        session, progress = session_of(self._device, context), Progress()
        context.add_callback(progress.cancellation.cancel)
        answers = self._models.supported(session, wire.graph(request.model), progress)
        return device_pb2.GetSupportedOperationReply(
            nodes=[
                device_pb2.NodeSupport(
                    supported=answer.supported,
                    reason=wire.shortened(answer.reason, _MAX_REASON_BYTES),
                    note=wire.shortened(answer.note, _MAX_REASON_BYTES),
                )
                for answer in answers
            ]
        )

    def PrepareModel(
        self, request: device_pb2.PrepareModelRequest, context: Any
    ) -> Iterator[device_pb2.PrepareModelReply]:
        session = session_of(self._device, context)
        yield from self._builds.build(
            session, context, request, partial(self._models.prepare, wire.SentModel(request.model))
        )

    def PrepareModelFromModelCache(
        self, request: device_pb2.PrepareFromBuffersRequest, context: Any
    ) -> Iterator[device_pb2.PrepareModelReply]:
        session = session_of(self._device, context)
        buffers = _parts(request, partial(_part, session))
        yield from self._builds.build(session, context, request, partial(self._models.restore, buffers))

    def PrepareOfflineModel(
        self, request: device_pb2.PrepareFromBuffersRequest, context: Any
    ) -> Iterator[device_pb2.PrepareModelReply]:
        if not request.program_format:
            # A vendor's model file is the same to a backend as a cache that it exported itself.
            yield from self.PrepareModelFromModelCache(request, context)
            return
        session = session_of(self._device, context)
        program = Program(request.program_format, _parts(request, _program_part))
        yield from self._builds.build(session, context, request, partial(self._models.load_program, program))

    def UploadConstants(
        self, requests: Iterator[device_pb2.ConstantChunk], context: Any
    ) -> device_pb2.UploadConstantsReply:
        session = session_of(self._device, context)
        completed, sha256, size_bytes = 0, b"", 0
        unfinished: set[bytes] = set()
        try:
            for chunk in (chunk for message in requests for chunk in (message, *message.more)):
                sha256, size_bytes = (chunk.sha256, chunk.size_bytes) if chunk.sha256 else (sha256, size_bytes)
                unfinished.add(sha256)
                for offset, data in _read_chunk(session, chunk):
                    if session.constants.write(sha256, size_bytes, offset, data):
                        unfinished.discard(sha256)
                        completed += 1
        finally:
            session.constants.pause(unfinished)
        return device_pb2.UploadConstantsReply(completed=completed)

    def AllocateBuffer(self, request: device_pb2.AllocateBufferRequest, context: Any) -> device_pb2.AllocateBufferReply:
        session = session_of(self._device, context)
        to_share = session.local_peer is not None
        buffer_id = session.buffers.allocate(request.length, to_share=to_share, heap=self._device.heap)
        region = model_pb2.BufferRegion(buffer_id=buffer_id, data_size=request.length)
        return device_pb2.AllocateBufferReply(
            buffer=model_pb2.SharedBuffer(region=region), is_on_device=session.buffers.is_on_device(buffer_id)
        )

    def ReleaseBuffer(self, request: device_pb2.ReleaseBufferRequest, context: Any) -> device_pb2.ReleaseBufferReply:
        session = session_of(self._device, context)
        with self._device.freeing.await_own():
            session.release_buffer(request.buffer_id)
        return device_pb2.ReleaseBufferReply()

    def WriteBuffer(self, requests: Iterator[device_pb2.BufferChunk], context: Any) -> device_pb2.WriteBufferReply:
        session = session_of(self._device, context)
        written = buffer_id = 0
        for chunk in requests:
            buffer_id = chunk.buffer_id or buffer_id
            put(session.buffers.writable_region(buffer_id, chunk.offset, len(chunk.data)), memoryview(chunk.data))
            written += len(chunk.data)
        return device_pb2.WriteBufferReply(written_bytes=written)

    def ReadBuffer(self, request: model_pb2.BufferRegion, context: Any) -> Iterator[device_pb2.BufferChunk]:
        session = session_of(self._device, context)
        region = session.buffers.region(request.buffer_id, request.offset, request.data_size)
        most_bytes = self._settings.message_bytes
        pieces = region.pieces(most_bytes) if isinstance(region, DeviceRange) else cut(region, most_bytes)
        for start, piece in pieces:
            yield device_pb2.BufferChunk(offset=request.offset + start, data=bytes(piece))


def _parts(
    request: device_pb2.PrepareFromBuffersRequest, part: Callable[[model_pb2.SharedBuffer], PartT]
) -> list[PartT]:
    if len(request.buffers) > MAX_PARTS:
        raise InvalidParameter(f"there are {len(request.buffers)} buffers; use at most {MAX_PARTS}")
    return [wire.at_place(f"buffer {index}", partial(part, buffer)) for index, buffer in enumerate(request.buffers)]


def _part(session: Session, buffer: model_pb2.SharedBuffer) -> Constant | bytes | memoryview | DeviceRange:
    if buffer.HasField("constant"):
        return wire.named_constant(buffer.constant)
    if buffer.HasField("region"):
        region = buffer.region
        return session.buffers.region(region.buffer_id, region.offset, region.data_size)
    return inline_bytes(buffer)


def _read_chunk(
    session: Session, chunk: device_pb2.ConstantChunk
) -> Iterator[tuple[int, bytes | memoryview | FileRegion]]:
    """Yield the bytes of a chunk, each piece with its offset in the constant.

    Bytes in the device's memory come as copied pieces; other bytes are one piece, not copied.
    """
    if not chunk.HasField("region"):
        yield chunk.offset, expanded(chunk.data, chunk.expanded_bytes)
        return
    region = chunk.region
    regions = session.files if region.buffer_id in session.files else session.buffers
    data = regions.region(region.buffer_id, region.offset, region.data_size)
    if not isinstance(data, DeviceRange):
        yield chunk.offset, data
        return
    for start, piece in data.pieces():
        yield chunk.offset + start, memoryview(piece)


def _program_part(buffer: model_pb2.SharedBuffer) -> Constant | bytes:
    """Return a part of a program, which must be immutable so that its digest stays right; raise InvalidParameter."""
    if buffer.HasField("constant"):
        return wire.named_constant(buffer.constant)
    if buffer.HasField("inline"):
        return buffer.inline
    raise InvalidParameter("a part of a program is sent inline, or named by its digest")
