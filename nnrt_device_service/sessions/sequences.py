"""Sequences of a session: values that stay on the device between runs."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from nnrt_device_service.memory.device_memory import DeviceMemory
from nnrt_device_service.memory.freeing import device_faults
from nnrt_device_service.memory.memory_budget import LEAST_BYTES, MemoryBudget
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, UnknownHandle
from nnrt_hdi.tensor import Array

# Estimated size of a sequence without its values, and of a value without its elements. A budget counts no less.
_SEQUENCE_BYTES = 4096
_VALUE_BYTES = LEAST_BYTES


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


class Sequence:
    """Values of one sequence, and the order of its operations."""

    def __init__(self, sequence_id: int) -> None:
        self.id = sequence_id
        # By number. Only `Sequences` changes them.
        self.values: dict[int, Value] = {}
        # Number of the next operation, and why it has failed before.
        self.operation = 0
        self._failure: BaseException | None = None
        self.is_open = True
        self._changed = threading.Condition(threading.Lock())
        self._is_busy = False
        # Whether the loop under way is to end after this step.
        self.is_stopping = False

    def begin(self, operation: int, cancellation: Cancellation) -> None:
        """Wait until no other operation is under way, and begin this one. Call `end` afterwards.

        Raises InvalidParameter for a number that has been, OperationFailed if the operation before has not been done,
        UnknownHandle if the sequence has ended, and what `cancellation.check` raises.
        """
        self._take_turn(cancellation)
        if operation != self.operation:
            error = self._misplaced(operation)
            self._pass_turn()
            raise error
        self.is_stopping = False

    @contextmanager
    def paused(self, cancellation: Cancellation) -> Iterator[None]:
        """Keep operations away during the block, once that under way has ended; raise as `begin`."""
        self._take_turn(cancellation)
        try:
            yield
        finally:
            self._pass_turn()

    def end(self, error: BaseException | None) -> None:
        """End the operation that has begun: it was done, or failed with an error."""
        if error is None:
            self.operation += 1
        self._failure = error
        self._pass_turn()

    def require_open(self) -> None:
        """Raise UnknownHandle if the sequence has ended."""
        if not self.is_open:
            raise UnknownHandle(f"sequence {self.id} has ended")

    def close(self) -> None:
        """End the sequence; raise nothing. Operations that wait fail."""
        self.is_open, self.is_stopping = False, True
        self._wake()

    def _take_turn(self, cancellation: Cancellation) -> None:
        with self._changed:
            is_free, self._is_busy = not self._is_busy, True
        if not is_free:
            self._await_turn(cancellation)
        if not self.is_open:
            self._pass_turn()
            self.require_open()

    def _await_turn(self, cancellation: Cancellation) -> None:
        cancellation.on_cancel(self._wake)
        while True:
            with self._changed:
                if not self._is_busy:
                    self._is_busy = True
                    return
                if self.is_open and not cancellation.is_cancelled:
                    self._changed.wait(cancellation.remaining)
            cancellation.check()
            self.require_open()

    def _pass_turn(self) -> None:
        with self._changed:
            self._is_busy = False
            self._changed.notify()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _misplaced(self, operation: int) -> NnrtError:
        place, following = f"sequence {self.id}", self.operation
        if operation < following:
            return InvalidParameter(f"operation {operation} has been done; the next one is {following}", place=place)
        why = "has not come" if self._failure is None else f"failed: {self._failure}"
        return OperationFailed(
            f"operation {following} {why}; operation {operation} comes after it, and was not done", place=place
        )


class Sequences:
    """Sequences of a session by the ids that its client chose, within its memory budget."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._sequences: dict[int, Sequence] = {}
        self._is_open = True
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes that all sequences take."""
        return self._held_bytes

    def find(self, sequence_id: int) -> Sequence:
        """Return a sequence; raise UnknownHandle if there is none."""
        found = self._sequences.get(sequence_id)
        if found is None:
            raise UnknownHandle(f"this session has no sequence {sequence_id}")
        return found

    @contextmanager
    def operation(
        self, sequence_id: int, operation: int, copy_of: int, cancellation: Cancellation
    ) -> Iterator[Sequence]:
        """Make the block an operation of a sequence; operation 0 opens it, with the values of `copy_of`, 0 for none.

        If the block raises an error, the operation has failed, and the sequence that it opened is released. Raises
        InvalidParameter for an id in use, UnknownHandle, OutOfMemory, and what `Sequence.begin` raises.
        """
        if operation:
            sequence = self.find(sequence_id)
        elif copy_of:
            parent = self.find(copy_of)
            with parent.paused(cancellation):
                sequence = self._open(sequence_id, parent)
        else:
            sequence = self._open(sequence_id, None)
        try:
            sequence.begin(operation, cancellation)
            try:
                yield sequence
            except BaseException as error:
                sequence.end(error)
                raise
            sequence.end(None)
        except BaseException:
            if not operation:
                self.release(sequence_id)
            raise

    def _open(self, sequence_id: int, parent: Sequence | None) -> Sequence:
        if not sequence_id:
            raise InvalidParameter("sequence_id is 0; choose another number, a new one for each sequence")
        self._reserve(_SEQUENCE_BYTES)
        sequence = Sequence(sequence_id)
        with self._lock:
            is_new = sequence_id not in self._sequences
            if is_new and self._is_open:
                self._sequences[sequence_id] = sequence
                sequence.values = dict(parent.values) if parent is not None else {}
                for value in sequence.values.values():
                    value.users += 1
                return sequence
        self._release(_SEQUENCE_BYTES)
        if is_new:
            raise UnknownHandle("the session has ended")
        raise InvalidParameter(f"sequence {sequence_id} is open already; use each id only once in a session")

    def keep(self, sequence: Sequence, new: Mapping[int, NewValue]) -> None:
        """Make values of a sequence, in place of those with the same numbers; either all or none.

        Raises OutOfMemory, UnknownHandle if the sequence has ended, and what the functions that make them raise.
        """
        size_bytes = sum([value_bytes(each.size_bytes) for each in new.values()])
        self._reserve(size_bytes)
        made: dict[int, Value] = {}
        try:
            for number, each in new.items():
                made[number] = each.make()
        except BaseException:
            self._release(size_bytes - sum([value.size_bytes for value in made.values()]))
            self._free(made.values())
            raise
        with self._lock:
            is_open = sequence.is_open
            former = list(made.values())
            if is_open:
                former = [sequence.values[number] for number in made if number in sequence.values]
                sequence.values.update(made)
            left = _leave(former)
        self._free(left)
        sequence.require_open()

    def snapshot(self, sequence: Sequence) -> dict[int, Value]:
        """Return the values of a sequence now, which stay in memory until `drop` or `restore`."""
        with self._lock:
            values = dict(sequence.values)
            for value in values.values():
                value.users += 1
        return values

    def drop(self, snapshot: Mapping[int, Value]) -> None:
        """Drop a snapshot."""
        with self._lock:
            left = _leave(snapshot.values())
        self._free(left)

    def restore(self, sequence: Sequence, snapshot: dict[int, Value]) -> None:
        """Give a sequence the values of a snapshot again, and drop the snapshot."""
        with self._lock:
            former = snapshot
            if sequence.is_open:
                former, sequence.values = sequence.values, snapshot
            left = _leave(former.values())
        self._free(left)

    def release(self, sequence_id: int) -> None:
        """End a sequence and free its values, if it exists. Those that a run uses are freed when the run has ended."""
        with self._lock:
            sequence = self._sequences.pop(sequence_id, None)
            if sequence is None:
                return
            sequence.is_open = False
            values, sequence.values = sequence.values, {}
            left = _leave(values.values())
        sequence.close()
        self._free(left)
        self._release(_SEQUENCE_BYTES)

    def close(self) -> None:
        """End all sequences, and open no more."""
        with self._lock:
            self._is_open = False
        for sequence_id in list(self._sequences):
            self.release(sequence_id)

    def _reserve(self, size_bytes: int) -> None:
        if not size_bytes:
            return
        self.budget.reserve(size_bytes)  # Without the lock: it may call back into other pools.
        with self._lock:
            self._held_bytes += size_bytes

    def _release(self, size_bytes: int) -> None:
        if size_bytes:
            self.budget.release(size_bytes)
            with self._lock:
                self._held_bytes -= size_bytes

    def _free(self, values: Iterable[Value]) -> None:
        size_bytes = 0
        for value in values:
            if value.memory is None and value.rows is None:
                size_bytes += value.size_bytes
            else:
                value.free(self._release)
        self._release(size_bytes)

    def compact(self) -> None:
        """Give values memory of their own if they keep rows in memory that are no longer in use."""
        with self._lock:
            values = [value for sequence in self._sequences.values() for value in sequence.values.values()]
        for rows in {value.rows for value in values}:
            if rows is not None:
                rows.compact()


def _leave(values: Iterable[Value]) -> list[Value]:
    """Count one user less of each value, and return the values that have none any more."""
    left = []
    for value in values:
        value.users -= 1
        if not value.users:
            left.append(value)
    return left


def own(array: Array) -> Array:
    """Return an output as an array that keeps no memory but its own; copy one that is a part of something larger."""
    if isinstance(array, DeviceRegion):
        return array.copy()
    base = array.base
    if base is None:
        return array
    if isinstance(base, np.ndarray):
        is_own = base.nbytes <= array.nbytes and not isinstance(base.base, bytes | bytearray | memoryview)
    else:
        is_own = not isinstance(base, bytes | bytearray | memoryview)
    return array if is_own else array.copy()
