"""A model that a daemon holds for a client."""

import threading
from contextlib import closing, suppress
from typing import Any

from nnrt_client.build import Build, Origin
from nnrt_client.device import Link
from nnrt_client.fork import LockOwner
from nnrt_hdi import wire
from nnrt_hdi.compiled import MAX_PARTS
from nnrt_hdi.container import Part
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import (
    ConnectionFailed,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    TimedOut,
    UnavailableDevice,
)
from nnrt_hdi.tensor import TensorSpec
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2

# Nothing was decided by the device: what was asked may be asked again.
TRANSPORT_ERRORS = (UnavailableDevice, ConnectionFailed, TimedOut)

_ORIGINS = {
    device_pb2.PreparedModelInfo.RESTORED: Origin.RESTORED,
    device_pb2.PreparedModelInfo.STORED: Origin.STORED,
}


class PreparedHandle(LockOwner):
    """A model that a daemon holds for us. Released when the compilation and all its executors are closed."""

    def __init__(self, link: Link, info: Any, priority: Priority) -> None:
        self.link = link
        self.priority = priority
        self.model_id: int = info.model_id
        self.origin = _ORIGINS.get(info.origin, Origin.COMPILED)
        super().__init__()
        self._users = 1
        try:
            self.inputs: tuple[TensorSpec, ...] = tuple(wire.tensor_spec(tensor) for tensor in info.inputs)
            self.outputs: tuple[TensorSpec, ...] = tuple(wire.tensor_spec(tensor) for tensor in info.outputs)
        except NnrtError:
            self.release()
            raise

    def make_locks(self) -> None:
        self._lock = threading.Lock()

    def retain(self) -> "PreparedHandle":
        with self._lock:
            if not self._users:
                raise OperationForbidden("the compilation is closed; make a new one")
            self._users += 1
        return self

    def release(self) -> None:
        """Give up one use. A daemon that is gone has released everything already."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        connection = self.link.connection
        if connection.is_alive:
            with suppress(*TRANSPORT_ERRORS):  # The end of the session releases it too.
                connection.call(
                    connection.models.Release,
                    prepared_model_pb2.ReleaseRequest(model_id=self.model_id),
                    connection.settings.query_timeout_s,
                    "PreparedModel.Release",
                )

    def export(self, build: Build) -> list[Part]:
        """The compiled model in parts, as the device takes it back."""
        build.progress("storing", 0.0)
        reply = build.call(
            build.connection.models.ExportModelCache,
            prepared_model_pb2.ExportModelCacheRequest(model_id=self.model_id),
            build.remaining_s(),
            "PreparedModel.ExportModelCache",
        )
        buffers = list(reply.buffers)
        try:
            return self._read_all(build, buffers)
        finally:
            self._release_buffers({buffer.region.buffer_id for buffer in buffers if buffer.HasField("region")})

    def _read_all(self, build: Build, buffers: list[Any]) -> list[Part]:
        if not 1 <= len(buffers) <= MAX_PARTS:
            place = build.connection.place
            raise OperationFailed(f"it exports {len(buffers)} parts; a compiled model has 1..{MAX_PARTS}", place=place)
        parts = []
        for number, buffer in enumerate(buffers):
            parts.append(Part.of(_read(build, buffer.region) if buffer.HasField("region") else buffer.inline))
            # The last of it is writing the file.
            build.progress("storing", (number + 1) / (len(buffers) + 1))
        return parts

    def _release_buffers(self, buffer_ids: set[int]) -> None:
        connection = self.link.connection
        for buffer_id in buffer_ids:
            if not connection.is_alive:
                return
            with suppress(*TRANSPORT_ERRORS):  # As with the model.
                connection.call(
                    connection.device.ReleaseBuffer,
                    device_pb2.ReleaseBufferRequest(buffer_id=buffer_id),
                    connection.settings.query_timeout_s,
                    "NnrtDevice.ReleaseBuffer",
                )


def _read(build: Build, region: Any) -> bytearray:
    """The bytes of a region. Memory is taken as they come, for the size is what the daemon says."""
    data = bytearray()
    with closing(build.stream(build.device.ReadBuffer, region, "NnrtDevice.ReadBuffer")) as chunks:
        for chunk in chunks:
            if chunk.offset != region.offset + len(data):
                break
            data += chunk.data
            if len(data) > region.data_size:
                break
    if len(data) != region.data_size:
        raise OperationFailed(
            f"it sent other bytes than the {region.data_size} of the buffer", place=build.connection.place
        )
    return data
