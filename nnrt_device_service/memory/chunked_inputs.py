"""Inputs of runs that a session receives in chunks. Independent of gRPC."""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate

import numpy as np

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.chunks import Assembly
from nnrt_hdi.errors import TimedOut
from nnrt_hdi.tensor import Array, TensorSpec

# Alignment of the inputs of a run in their common memory.
_ALIGNMENT = 64


class _Reception:
    """State of one run that waits for its chunks."""

    __slots__ = ("cancellation", "hang_up", "heard_at", "is_given_up")

    def __init__(self, cancellation: Cancellation, hang_up: Callable[[], object]) -> None:
        self.cancellation = cancellation
        self.hang_up = hang_up
        self.heard_at = time.monotonic()
        self.is_given_up = False


class ChunkedInputs:
    """Receiver of inputs in chunks, in memory that counts in the session's budget.

    Memory is used again when no array refers to it any more (outputs may be views of inputs until they are sent): fresh
    pages cost as much time as the copies into them.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._under_way: set[_Reception] = set()
        # Unused memory that still counts in the budget. Used without a lock: the garbage collector may put memory back
        # in any thread.
        self._spare: list[memoryview] = []
        self._needed_at = time.monotonic()
        budget.on_shortage(self._drop_spare)

    def receive(
        self,
        specs: Mapping[int, TensorSpec],
        chunks: Iterator[memoryview | bytes],
        cancellation: Cancellation,
        hang_up: Callable[[], object],
    ) -> dict[int, Array]:
        """Receive the inputs of these specs from chunks that follow each other, and return them by index, read-only.

        `end_stalled` calls `hang_up` to break off the wait for a chunk. Raises OutOfMemory if the inputs don't fit into
        the budget, InvalidParameter if the chunks don't fit the inputs, TimedOut if none comes for too long, and what
        `cancellation.check` raises.
        """
        ends = list(accumulate(-(-spec.byte_size // _ALIGNMENT) * _ALIGNMENT for spec in specs.values()))
        memory = self._memory(ends[-1])
        whole = np.frombuffer(memory, np.uint8) if ends[-1] else np.empty(0, np.uint8)
        # The finalizer runs when the last view is gone: in numpy the `base` of every view is this array.
        put_back = weakref.finalize(whole, self._spare.append, memory)
        arrays = {}
        for begin, (index, spec) in zip((0, *ends), specs.items(), strict=False):
            arrays[index] = whole[begin : begin + spec.byte_size].view(spec.numpy_dtype).reshape(spec.shape)
        try:
            self._fill(list(arrays.values()), chunks, _Reception(cancellation, hang_up))
        except BaseException:
            put_back.detach()
            self._budget.release(memory.nbytes)
            raise
        for array in arrays.values():
            array.flags.writeable = False
        return arrays

    def _memory(self, size_bytes: int) -> memoryview:
        self._needed_at = time.monotonic()
        for memory in list(self._spare):
            if memory.nbytes == size_bytes:
                with suppress(ValueError):  # Another run has just taken it.
                    self._spare.remove(memory)
                    return memory
        # So spare memory is never more than what was in use at a time.
        self._drop_spare()
        return self._budget.allocate(size_bytes).data

    def _drop_spare(self) -> bool:
        dropped = False
        with suppress(IndexError):
            while True:
                self._budget.release(self._spare.pop().nbytes)
                dropped = True
        return dropped

    def _fill(self, arrays: list[Array], chunks: Iterator[memoryview | bytes], reception: _Reception) -> None:
        assembly = Assembly(arrays)
        self._under_way.add(reception)
        try:
            while not assembly.is_complete:
                assembly.take(next(chunks))
                reception.heard_at = time.monotonic()
                reception.cancellation.check()
        except Exception:
            # If `end_stalled` broke off the wait, raise the reason instead.
            reception.cancellation.check()
            if reception.is_given_up:
                raise TimedOut("the chunks of its inputs stopped coming; run it again") from None
            raise
        finally:
            self._under_way.discard(reception)

    def end_stalled(self, silence_s: float) -> None:
        """Break off waits of runs that are cancelled, overdue, or got no chunk for `silence_s`.

        Also frees spare memory if no run has needed memory for as long.
        """
        now = time.monotonic()
        if now - self._needed_at > silence_s:
            self._drop_spare()
        for reception in list(self._under_way):
            reception.is_given_up = now - reception.heard_at > silence_s
            if reception.is_given_up or reception.cancellation.is_cancelled or reception.cancellation.remaining == 0:
                reception.hang_up()
