"""Memory of a session in its daemon, which runs read and write there."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nnrt_client.connection import Connection
from nnrt_client.region import Region
from nnrt_client.side_channel import SideChannel
from nnrt_hdi import wire
from nnrt_hdi.chunks import CHUNK_BYTES
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.tensor import Array, Shape, TensorSpec
from nnrt_hdi.v2 import device_pb2, model_pb2


class Buffer:
    """So many bytes in a daemon. They are gone with the session."""

    def __init__(self, connection: Connection, room_bytes: int, channel: SideChannel | None = None) -> None:
        """With a side channel they are mapped here when they are first written or read, and don't travel.

        Raises OutOfMemory where the session has no room for them, UnavailableDevice where it is over.
        """
        self.connection = connection
        self._channel = channel
        self.room_bytes = room_bytes
        # Whether its bytes are those of a run that succeeded, or written here.
        self.is_written = False
        reply = self._call(
            connection.device.AllocateBuffer,
            device_pb2.AllocateBufferRequest(length=max(room_bytes, 1)),
            "NnrtDevice.AllocateBuffer",
        )
        self.place = model_pb2.BufferRegion(buffer_id=reply.buffer.region.buffer_id, data_size=room_bytes)

    @cached_property
    def _mapped(self) -> Region | None:
        return None if self._channel is None else self._channel.mapped(self.place.buffer_id, max(self.room_bytes, 1))

    def write(self, data: memoryview) -> None:
        """Put bytes at its beginning."""
        self.is_written = False
        self.connection.require_alive()
        if self._mapped is not None:
            self._mapped.view[: data.nbytes] = data
        else:
            self._call(self.connection.device.WriteBuffer, self._chunks(data), "NnrtDevice.WriteBuffer")
        self.is_written = True

    def read(self, size_bytes: int) -> bytearray:
        """A copy of so many bytes from its beginning."""
        self.connection.require_alive()
        if self._mapped is not None:
            return bytearray(self._mapped.view[:size_bytes])
        data, end = bytearray(size_bytes), 0
        region = model_pb2.BufferRegion(buffer_id=self.place.buffer_id, data_size=size_bytes)
        connection = self.connection
        timeout_s = connection.settings.request_timeout_s
        for chunk in connection.stream(connection.device.ReadBuffer, region, timeout_s, "NnrtDevice.ReadBuffer"):
            begin, end = end, end + len(chunk.data)
            if chunk.offset != begin or end > size_bytes:
                break
            data[begin:end] = chunk.data
        if end != size_bytes:
            raise OperationFailed(f"it gave {end} bytes of a buffer, not {size_bytes}", place=connection.place)
        return data

    def require_written(self) -> None:
        """Raise OperationFailed where there is nothing, or why the daemon is gone."""
        self.connection.require_alive()
        if not self.is_written:
            raise OperationFailed("nothing has been written there, or the run that was to do so failed; write it first")

    def release(self) -> None:
        """Give it back, if the daemon is there."""
        request = device_pb2.ReleaseBufferRequest(buffer_id=self.place.buffer_id)
        self.connection.tell(self.connection.device.ReleaseBuffer, request)

    def _chunks(self, data: memoryview) -> Iterator[Any]:
        chunk_bytes = min(CHUNK_BYTES, self.connection.welcome.limits.message_bytes or CHUNK_BYTES)
        for start in range(0, data.nbytes, chunk_bytes):
            piece = bytes(data[start : start + chunk_bytes])
            yield device_pb2.BufferChunk(buffer_id=self.place.buffer_id, offset=start, data=piece)

    def _call(self, method: Any, request: Any, what: str) -> Any:
        return self.connection.call(method, request, self.connection.settings.request_timeout_s, what)


class Stored(NamedTuple):
    """What a run reads in a buffer, or has left there."""

    dtype: np.dtype[np.generic]
    shape: Shape
    nbytes: int
    place: "model_pb2.BufferRegion"


# Of an input or output.
Elements = Array | Stored


def sent_fields(spec: TensorSpec, given: Elements) -> dict[str, Any]:
    """An input as a RunRequest takes it."""
    if isinstance(given, Stored):
        return wire.io_region_fields(spec, given.shape, given.nbytes, given.place)
    return wire.io_tensor_fields(spec, given)


def received(spec: TensorSpec, output: Any) -> Elements:
    """An output as a RunReply gives it."""
    if output.data.HasField("region"):
        return Stored(spec.numpy_dtype, spec.shape, spec.byte_size, output.data.region)
    return wire.array_from_bytes(output.data.inline, spec)
