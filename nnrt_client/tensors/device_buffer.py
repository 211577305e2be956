"""Buffers in a daemon, which runs read and write."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from contextvars import copy_context
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nnrt_client.session.errands import call_in_worker
from nnrt_client.session.release import release_buffer
from nnrt_client.session.session import Session
from nnrt_hdi.chunks import cut
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Array, Shape
from nnrt_hdi.v2 import device_pb2, model_pb2


class DeviceBuffer:
    """Buffer in a session's daemon. The daemon frees it when the session ends."""

    def __init__(self, session: Session, room_bytes: int) -> None:
        """Allocate a buffer in the daemon.

        If the session has a local socket and the device has no memory of its own, the client maps the buffer at its
        first write or read.

        Raises:
            OutOfMemory: The session's limit is reached.
            UnavailableDevice: The session has ended.
        """
        self.session = session
        self.room_bytes = room_bytes
        # Whether the contents are defined: a successful run or `write` was the last to change them.
        self.is_written = False
        # 0 before the daemon has answered.
        self.id = 0
        self._is_wanted = True
        try:
            call_in_worker(copy_context().run, self._allocate)
        except BaseException:
            self._is_wanted = False  # If the other thread is still allocating, it checks this afterwards.
            if self.id:
                self.release()
            raise

    def _allocate(self) -> None:
        length = max(self.room_bytes, 1)
        reply = self._call("NnrtDevice.AllocateBuffer", device_pb2.AllocateBufferRequest(length=length))
        self._is_on_device: bool = reply.is_on_device
        self.region = model_pb2.BufferRegion(buffer_id=reply.buffer.region.buffer_id, data_size=self.room_bytes)
        self.id = self.region.buffer_id
        if not self._is_wanted:
            self.release()

    @cached_property
    def _mapped(self) -> SharedMemory | None:
        local = None if self._is_on_device else self.session.local_socket
        return None if local is None else local.map_buffer(self.id, max(self.room_bytes, 1))

    def write(self, data: memoryview) -> None:
        """Write bytes at the start of the buffer."""
        self.is_written = False
        self.session.require_alive()
        if self._mapped is not None:
            self._mapped.view[: data.nbytes] = data
        else:
            self._call("NnrtDevice.WriteBuffer", self._chunks(data))
        self.is_written = True

    def read(self, size_bytes: int) -> bytearray:
        """Return a copy of the first `size_bytes` bytes."""
        self.session.require_alive()
        if self._mapped is not None:
            return bytearray(self._mapped.view[:size_bytes])
        return call_in_worker(self._fetched, size_bytes)

    def _fetched(self, size_bytes: int) -> bytearray:
        region = model_pb2.BufferRegion(buffer_id=self.id, data_size=size_bytes)
        session = self.session
        with closing(session.stream("NnrtDevice.ReadBuffer", region, session.settings.request_timeout_s)) as chunks:
            return joined(chunks, region, session.place)

    def require_written(self) -> None:
        """Raise OperationFailed if the contents are undefined, or the session's error if the daemon has died."""
        self.session.require_alive()
        if not self.is_written:
            raise OperationFailed("nothing has been written there, or the run that was to do so failed; write it first")

    def release(self) -> None:
        """Ask the daemon to free the buffer. A daemon that has died has freed it already."""
        release_buffer(self.session, self.id)

    def _chunks(self, data: memoryview) -> Iterator[Any]:
        for offset, piece in cut(data, self.session.welcome.limits.message_bytes):
            yield device_pb2.BufferChunk(buffer_id=self.id, offset=offset, data=bytes(piece))

    def _call(self, name: str, request: Any) -> Any:
        return self.session.call(name, request, self.session.settings.request_timeout_s)


def joined(chunks: Iterable[Any], region: Any, place: str) -> bytearray:
    """Join the chunks of a region.

    Memory is allocated as chunks arrive, because the announced size can't be trusted.

    Raises:
        OperationFailed: The chunks don't fit the region.
    """
    data = bytearray()
    for chunk in chunks:
        if chunk.offset != region.offset + len(data) or len(data) + len(chunk.data) > region.data_size:
            break
        data += chunk.data
    if len(data) != region.data_size:
        raise OperationFailed(f"it sent other bytes than the {region.data_size} of the buffer", place=place)
    return data


class Stored(NamedTuple):
    """Elements of an input or output in a device buffer."""

    dtype: np.dtype[np.generic]
    shape: Shape
    nbytes: int
    region: "model_pb2.BufferRegion"


class Kept(NamedTuple):
    """Elements of an input that is a value of the run's sequence; only the device knows its shape."""

    dtype: np.dtype[np.generic]
    # Number of the value.
    value: int
    shape: Shape = ()
    nbytes: int = 0


# Elements of an input or output.
Elements = Array | Stored | Kept
