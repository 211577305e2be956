"""Sessions' buffers in the device's memory, which stay allocated while they are read or written."""

import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from nnrt_device_service.memory.freeing import Freeing
from nnrt_hdi.chunks import cut_sizes
from nnrt_hdi.device_buffers import DeviceBuffer, DeviceRegion
from nnrt_hdi.errors import OutOfMemory, UnavailableDevice, UnknownHandle
from nnrt_hdi.tensor import Array, TensorForm


class DeviceHeap:
    """Allocator of the device's memory for all sessions."""

    def __init__(self, allocate: Callable[[int], DeviceBuffer | None], freeing: Freeing, device_name: str) -> None:
        """Make a heap that allocates with the backend's function `allocate`."""
        self._allocate = allocate
        self._freeing = freeing
        self._device_name = device_name

    def allocate(self, size_bytes: int, on_freed: Callable[[], object]) -> "DeviceMemory | None":
        """Allocate zeroed memory, or return None if the backend leaves buffers to the host.

        `on_freed` is called after the memory has been freed. Raises OutOfMemory, and UnavailableDevice if the device
        fails.
        """
        try:
            with self._freeing.calling_backend("allocate a buffer"):
                handle = self._allocate(size_bytes)
        except MemoryError as error:
            raise OutOfMemory(f"the device has no {size_bytes} bytes left; release buffers, or ask for less") from error
        if handle is None:
            return None
        if not isinstance(handle, DeviceBuffer):
            raise UnavailableDevice(
                f"the device {self._device_name!r} gave an object of type {type(handle).__name__} for"
                f" {size_bytes} bytes of memory; it must be a DeviceBuffer, or None"
            )
        return DeviceMemory(handle, size_bytes, self._freeing, on_freed)


class DeviceMemory(DeviceBuffer):
    """Buffer of the backend, freed after its session has closed it and nothing uses it any more.

    As a context manager it keeps the buffer during the block; blocks may overlap.
    """

    def __init__(self, handle: DeviceBuffer, size_bytes: int, freeing: Freeing, on_freed: Callable[[], object]) -> None:
        self.handle = handle
        self.size_bytes = size_bytes
        self._freeing = freeing
        self._on_freed = on_freed
        self._lock = threading.Lock()
        # The session is the first user.
        self._users = 1
        freeing.expect()

    def __enter__(self) -> None:
        """Keep the buffer until the end of the block; raise UnknownHandle if it is freed or about to be."""
        with self._lock:
            if not self._users:
                raise UnknownHandle("the buffer has been released")
            self._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End one use of the buffer; the last one lets another thread free it."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._freeing.free("free a buffer", self.handle.close, self._on_freed)

    def read(self, offset: int, target: memoryview) -> None:
        """Copy bytes from `offset` on to `target`.

        Raises UnavailableDevice if the device fails, and UnknownHandle if the buffer is freed or about to be.
        """
        if target.nbytes:
            with self, self._freeing.calling_backend("read a buffer"):
                self.handle.read(offset, target)

    def write(self, offset: int, data: memoryview) -> None:
        """Copy bytes to `offset`; raise what `read` raises."""
        if data.nbytes:
            with self, self._freeing.calling_backend("write a buffer"):
                self.handle.write(offset, data)


class DeviceRange:
    """Range of bytes in a buffer of the device, where a tensor may lie."""

    __slots__ = ("memory", "nbytes", "offset")

    def __init__(self, memory: DeviceMemory, offset: int, nbytes: int) -> None:
        self.memory = memory
        self.offset = offset
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self.nbytes

    def __bytes__(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces())

    def pieces(self, most_bytes: int = 0) -> Iterator[tuple[int, bytearray]]:
        """Yield copies of the bytes piece by piece, each with its offset; `cut_sizes` says how large pieces are."""
        for begin, size_bytes in cut_sizes(self.nbytes, most_bytes):
            piece = bytearray(size_bytes)
            self.memory.read(self.offset + begin, memoryview(piece))
            yield begin, piece

    def write(self, data: memoryview) -> None:
        """Write data to the beginning of the range."""
        self.memory.write(self.offset, data)

    def as_run_tensor(self, form: TensorForm) -> Array | None:
        """Return the range as a tensor for the backend to access, or None if its alignment or size forbids that.

        The tensor is a DeviceRegion, which stands for an array that only the backend can read.
        """
        item_bytes = form.dtype.itemsize if form.dtype is not None else 0
        if not form.size_bytes or self.offset % max(self.memory.handle.alignment, item_bytes):
            return None
        return DeviceRegion(self.memory.handle, self.offset, form.spec)  # type: ignore[return-value]

    def as_copyable(self, form: TensorForm) -> Array:
        """Return the range as a tensor whose `copy` method reads it to the host."""
        return DeviceRegion(self.memory, self.offset, form.spec)  # type: ignore[return-value]
