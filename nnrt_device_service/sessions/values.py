"""Values of sequences: tensors that never change, shared by sequences, in memory of the host or of the device."""

import threading
from collections.abc import Callable
from functools import partial
from mmap import mmap
from typing import NamedTuple

import numpy as np

from nnrt_device_service.memory.device_memory import DeviceMemory
from nnrt_device_service.memory.freeing import device_faults
from nnrt_device_service.memory.memory_budget import LEAST_BYTES
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.tensor import Array

# Estimated size of a value without its elements. A budget counts no less.
_VALUE_BYTES = LEAST_BYTES
# Bases of arrays in memory that others write to, or that is larger: a view of shared memory has the mmap as its base.
_OF_OTHERS = bytes | bytearray | memoryview | mmap


class BatchedRows:
    """Values that are rows of one batch's outputs, and keep all of these in memory.

    What the values take in their budgets is given back when the last one is no longer in use, as in the next step of
    all, or when `compact` has given those that are left memory of their own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Value, None] = {}
        # Functions that give back the bytes of values that are no longer in use.
        self._releases: list[Callable[[], object]] = []

    def add(self, value: "Value") -> None:
        """Add a value."""
        with self._lock:
            self._values[value] = None

    def discard(self, value: "Value", release: Callable[[], object]) -> None:
        """Note that a value is no longer in use; `release` gives back what it takes in its budget."""
        with self._lock:
            self._values.pop(value, None)
            self._releases.append(release)
            releases = [] if self._values else self._take_releases()
        for each in releases:
            each()

    def compact(self) -> None:
        """Copy the values that are left if others are no longer in use."""
        with self._lock:
            if not self._releases:
                return
            for value in self._values:
                value.array = value.array.copy()
                value.rows = None
            self._values, releases = {}, self._take_releases()
        for each in releases:
            each()

    def _take_releases(self) -> list[Callable[[], object]]:
        releases, self._releases = self._releases, []
        return releases


class Value:
    """Tensor in a sequence, or in several. Its elements never change."""

    __slots__ = ("array", "memory", "rows", "size_bytes", "users")

    def __init__(self, array: Array, memory: DeviceMemory | None = None, rows: BatchedRows | None = None) -> None:
        """Make a value of one sequence. `array` is a DeviceRegion if it lies in `memory` of the device."""
        self.array = array
        self.memory = memory
        self.rows = rows
        # Memory of the device counts by itself, until it is freed.
        self.size_bytes = value_bytes(0 if memory is not None else array.nbytes)
        # Number of sequences and of steps under way that have the value. Guarded by the lock of `Sequences`.
        self.users = 1
        if rows is not None:
            rows.add(self)

    def on_host(self) -> Array:
        """Return the elements as an array of the host; raise UnavailableDevice if the device fails."""
        if self.memory is None:
            return self.array
        with self.memory, device_faults("read a value"):
            copy: Array = self.array.copy()
            return copy

    def free(self, release: Callable[[int], object]) -> None:
        """Free the value's memory, and give back its bytes of the budget with `release`, now or later."""
        if self.memory is not None:
            self.memory.close()
        if (rows := self.rows) is None:
            release(self.size_bytes)
        else:
            rows.discard(self, partial(release, self.size_bytes))


def value_bytes(size_bytes: int) -> int:
    """Return the bytes of the budget that a value with so many bytes of elements takes."""
    return size_bytes + _VALUE_BYTES


class NewValue(NamedTuple):
    """Value that an operation makes once its memory is reserved."""

    # Bytes of its elements.
    size_bytes: int
    make: Callable[[], Value]


def own(array: Array) -> Array:
    """Return an output as an array that keeps no memory but its own; copy one that is a part of something larger."""
    if isinstance(array, DeviceRegion):
        return array.copy()
    base = array.base
    if base is None:
        return array
    if isinstance(base, np.ndarray):
        is_own = base.nbytes <= array.nbytes and not isinstance(base.base, _OF_OTHERS)
    else:
        is_own = not isinstance(base, _OF_OTHERS)
    return array if is_own else array.copy()
