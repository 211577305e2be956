"""Buffers in memory of a device, for which the host has a handle but no address."""

from abc import ABC, abstractmethod

import numpy as np

from nnrt_hdi.tensor import Array, TensorSpec, flat_bytes


class DeviceBuffer(ABC):
    """Buffer of a client on the device.

    Any thread may call `read` and `write`, also while a run uses the buffer: each byte is then an old or a new one.
    If a run returns an array for an output in this buffer, the thread that calls the run's `on_end` may call `write`.
    An exception other than an NnrtError is a fault of the device.
    """

    size_bytes: int
    # Regions that runs get start at multiples of this, and of the element size; runs get copies of other regions.
    alignment = 8

    @abstractmethod
    def read(self, offset: int, target: memoryview) -> None:
        """Copy bytes from `offset` on into the target, a view of format B, until it is full."""

    @abstractmethod
    def write(self, offset: int, data: memoryview) -> None:
        """Copy a view of format B to `offset`. Later runs and reads see all of it."""

    @abstractmethod
    def close(self) -> None:
        """Free the buffer. Called once, by any thread, when nothing uses it any more."""


class DeviceRegion:
    """Tensor in a DeviceBuffer: C-contiguous elements from `offset` on."""

    __slots__ = ("buffer", "dtype", "nbytes", "offset", "shape", "spec")

    def __init__(self, buffer: DeviceBuffer, offset: int, spec: TensorSpec) -> None:
        """Create a region; all dimensions of `spec` are known."""
        self.buffer = buffer
        self.offset = offset
        self.spec = spec
        # As an array has them.
        self.shape = spec.shape
        self.dtype = spec.numpy_dtype
        self.nbytes = spec.byte_size

    def __repr__(self) -> str:
        return f"<DeviceRegion {self.spec} at {self.offset}>"

    def overlaps(self, other: "DeviceRegion") -> bool:
        """Return whether both regions share a byte."""
        ends_behind = other.offset < self.offset + self.nbytes and self.offset < other.offset + other.nbytes
        return ends_behind and self.buffer is other.buffer

    def copy(self) -> Array:
        """Return a copy of the elements as an array of the host."""
        array: Array = np.empty(self.shape, self.dtype)
        self.buffer.read(self.offset, flat_bytes(array))
        return array

    def write(self, array: Array) -> None:
        """Overwrite the elements with an array of the same size."""
        self.buffer.write(self.offset, flat_bytes(np.ascontiguousarray(array)))
