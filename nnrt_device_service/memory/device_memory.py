"""Memory of the device that a session has, and how it is read and written while nobody frees it."""

import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from nnrt_device_service.memory.freeing import Freeing
from nnrt_hdi.chunks import cut_sizes
from nnrt_hdi.device_buffers import DeviceBuffer, DeviceRegion
from nnrt_hdi.errors import OutOfMemory, UnavailableDevice, UnknownHandle
from nnrt_hdi.tensor import Array, TensorForm


class DeviceHeap:
    """The memory of the device that all sessions have."""

    def __init__(self, allocate: Callable[[int], DeviceBuffer | None], freeing: Freeing, device_name: str) -> None:
        """`allocate` is the backend's."""
        self._allocate = allocate
        self._freeing = freeing
        self._device_name = device_name

    def allocate(self, size_bytes: int, on_freed: Callable[[], object]) -> "DeviceMemory | None":
        """So many zero bytes, None where the backend leaves them to the host. `on_freed` is called in the end.

        Raises OutOfMemory, or UnavailableDevice where the device fails.
        """
        try:
            with self._freeing.asking("allocate a buffer"):
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
    """A buffer of the backend's. Freed when it has been closed, and nothing uses it any more.

    A context manager that keeps it for a block, any number of them at a time.
    """

    def __init__(self, handle: DeviceBuffer, size_bytes: int, freeing: Freeing, on_freed: Callable[[], object]) -> None:
        self.handle = handle
        self.size_bytes = size_bytes
        self._freeing = freeing
        self._on_freed = on_freed
        self._lock = threading.Lock()
        # The session is the first.
        self._users = 1
        freeing.expect()

    def __enter__(self) -> None:
        """Raises UnknownHandle once it has been freed."""
        with self._lock:
            if not self._users:
                raise UnknownHandle("the buffer has been released")
            self._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up one use, the session's at last; if nothing else uses it, it is freed soon."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._freeing.free("free a buffer", self.handle.close, self._on_freed)

    def read(self, offset: int, target: memoryview) -> None:
        """Raises UnavailableDevice where the device fails, UnknownHandle once it has been freed."""
        if target.nbytes:
            with self, self._freeing.asking("read a buffer"):
                self.handle.read(offset, target)

    def write(self, offset: int, data: memoryview) -> None:
        """Raises as `read`."""
        if data.nbytes:
            with self, self._freeing.asking("write a buffer"):
                self.handle.write(offset, data)


class DevicePlace:
    """So many bytes of the device's memory, where a tensor may lie."""

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
        """Copies of the bytes, of so many at a time, or as `cut` makes them, each with where it begins."""
        for begin, size_bytes in cut_sizes(self.nbytes, most_bytes):
            piece = bytearray(size_bytes)
            self.memory.read(self.offset + begin, memoryview(piece))
            yield begin, piece

    def write(self, data: memoryview) -> None:
        """Replace the first bytes."""
        self.memory.write(self.offset, data)

    def to_run(self, form: TensorForm) -> Array | None:
        """The tensor as the backend may be told to read or write it there; None where it can't.

        A DeviceRegion: to the daemon an array that only the backend looks into.
        """
        item_bytes = form.dtype.itemsize if form.dtype is not None else 0
        if not form.size_bytes or self.offset % max(self.memory.handle.alignment, item_bytes):
            return None
        return DeviceRegion(self.memory.handle, self.offset, form.spec)  # type: ignore[return-value]

    def to_copy(self, form: TensorForm) -> Array:
        """The tensor as something that the daemon makes copies of."""
        return DeviceRegion(self.memory, self.offset, form.spec)  # type: ignore[return-value]
