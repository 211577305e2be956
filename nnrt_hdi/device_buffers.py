"""Memory of a device, of which the host has a handle and no address."""

from abc import ABC, abstractmethod

import numpy as np

from nnrt_hdi.tensor import Array, TensorSpec, flat_bytes


class DeviceBuffer(ABC):
    """So many bytes of the device, which a client has asked for.

    Any thread may call `read` and `write`, also while a run uses the buffer: who does that gets old bytes or new ones,
    and nothing worse. The one that calls `on_end` of a run may be asked to, where the run gives an array for what is to
    lie here. What they raise is a fault of the device, unless it is an NnrtError.
    """

    size_bytes: int
    # Regions that runs get begin at multiples of it, and at least at those of an element; of others they get copies.
    alignment = 8

    @abstractmethod
    def read(self, offset: int, target: memoryview) -> None:
        """Copy as many bytes from `offset` on as the target has, of format B, into it."""

    @abstractmethod
    def write(self, offset: int, data: memoryview) -> None:
        """Copy these bytes, of format B, to `offset`. All are there for the runs and the reads that come after."""

    @abstractmethod
    def close(self) -> None:
        """Free it. Called once, when nothing reads, writes or runs with it any more, by any thread."""


class DeviceRegion:
    """A tensor that lies in a DeviceBuffer: its elements, C-contiguous, from `offset` on."""

    __slots__ = ("buffer", "dtype", "nbytes", "offset", "shape", "spec")

    def __init__(self, buffer: DeviceBuffer, offset: int, spec: TensorSpec) -> None:
        """All dimensions of `spec` are known."""
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
        """Tell whether a byte belongs to both."""
        ends_behind = other.offset < self.offset + self.nbytes and self.offset < other.offset + other.nbytes
        return ends_behind and self.buffer is other.buffer

    def copy(self) -> Array:
        """The elements, in an array of the host."""
        array: Array = np.empty(self.shape, self.dtype)
        self.buffer.read(self.offset, flat_bytes(array))
        return array

    def write(self, array: Array) -> None:
        """Replace the elements by those of an array of as many bytes."""
        self.buffer.write(self.offset, flat_bytes(np.ascontiguousarray(array)))
