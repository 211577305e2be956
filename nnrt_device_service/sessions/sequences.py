"""Sequences of a session: values that stay on the device between runs."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.sessions.values import NewValue, Value, value_bytes
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, UnknownHandle

# Estimated size of a sequence without its values.
_SEQUENCE_BYTES = 4096
# Number of latest stops that are remembered, because they may come before their loops.
_EARLY_STOPS = 1024


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
        # Number of the latest operation that began, -1 before, and whether it is a loop that is to end after its step.
        # Both guarded by the lock of `Sequences`.
        self.under_way = -1
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
        # Loops, by sequence and operation, that are to end after their first step, because `stop` came before them.
        self._early_stops: dict[tuple[int, int], bool] = {}

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
            with self._lock:
                sequence.under_way = operation
                sequence.is_stopping = self._early_stops.pop((sequence_id, operation), False)
            try:
                yield sequence
            except GeneratorExit:  # The client is gone from a loop, whose steps stay.
                sequence.end(None)
                raise
            except BaseException as error:
                sequence.end(error)
                raise
            sequence.end(None)
        except GeneratorExit:
            raise
        except BaseException:
            if not operation:
                self.release(sequence_id)
            raise

    def _open(self, sequence_id: int, parent: Sequence | None) -> Sequence:
        if not sequence_id:
            raise InvalidParameter("sequence_id is 0; choose another number, a new one for each sequence")
        self.reserve_bytes(_SEQUENCE_BYTES)
        sequence = Sequence(sequence_id)
        with self._lock:
            is_new = sequence_id not in self._sequences
            if is_new and self._is_open:
                self._sequences[sequence_id] = sequence
                sequence.values = dict(parent.values) if parent is not None else {}
                for value in sequence.values.values():
                    value.users += 1
                return sequence
        self.release_bytes(_SEQUENCE_BYTES)
        if is_new:
            raise UnknownHandle("the session has ended")
        raise InvalidParameter(f"sequence {sequence_id} is open already; use each id only once in a session")

    def stop(self, sequence_id: int, operation: int) -> None:
        """End a loop after its step. Remember this for a while if the loop has not come."""
        with self._lock:
            sequence = self._sequences.get(sequence_id)
            if sequence is not None and sequence.under_way == operation:
                sequence.is_stopping = True
            elif sequence is None or sequence.operation <= operation:
                self._early_stops[sequence_id, operation] = True
                if len(self._early_stops) > _EARLY_STOPS:
                    del self._early_stops[next(iter(self._early_stops))]

    def keep(self, sequence: Sequence, new: Mapping[int, NewValue]) -> None:
        """Make values of a sequence, in place of those with the same numbers; either all or none.

        Raises OutOfMemory, UnknownHandle if the sequence has ended, and what the functions that make them raise.
        """
        size_bytes = sum([value_bytes(each.size_bytes) for each in new.values()])
        self.reserve_bytes(size_bytes)
        made: dict[int, Value] = {}
        try:
            for number, each in new.items():
                made[number] = each.make()
        except BaseException:
            self.release_bytes(size_bytes - sum([value.size_bytes for value in made.values()]))
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
        """Set the values of a sequence back to those of a snapshot, and drop the snapshot."""
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
        self.release_bytes(_SEQUENCE_BYTES)

    def close(self) -> None:
        """End all sequences, and open no more."""
        with self._lock:
            self._is_open = False
        for sequence_id in list(self._sequences):
            self.release(sequence_id)

    def reserve_bytes(self, size_bytes: int) -> None:
        """Reserve bytes of the budget for values; raise OutOfMemory."""
        if not size_bytes:
            return
        self.budget.reserve(size_bytes)  # Without the lock: it may call back into other pools.
        with self._lock:
            self._held_bytes += size_bytes

    def release_bytes(self, size_bytes: int) -> None:
        """Release bytes that `reserve_bytes` has reserved."""
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
                value.free(self.release_bytes)
        self.release_bytes(size_bytes)

    def compact(self) -> None:
        """Copy values to memory of their own if they keep rows in memory that are no longer in use."""
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
