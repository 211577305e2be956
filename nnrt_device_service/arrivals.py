"""Inputs of runs that are on their way to a session in chunks. Knows no gRPC."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from nnrt_device_service.memory import MemoryBudget
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.chunks import Assembly, room_for
from nnrt_hdi.errors import InvalidParameter, TimedOut
from nnrt_hdi.tensor import Array, TensorSpec


class _Arrival:
    """What one run waits for."""

    __slots__ = ("cancellation", "hang_up", "heard_at", "is_given_up")

    def __init__(self, cancellation: Cancellation, hang_up: Callable[[], object]) -> None:
        self.cancellation = cancellation
        self.hang_up = hang_up
        self.heard_at = time.monotonic()
        self.is_given_up = False


class Arrivals:
    """Receives inputs, in memory that counts in the session's until the run has ended."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._under_way: set[_Arrival] = set()

    @contextmanager
    def received(
        self,
        specs: Mapping[int, TensorSpec],
        chunks: Iterator[memoryview | bytes],
        cancellation: Cancellation,
        hang_up: Callable[[], object],
    ) -> Iterator[Mapping[int, Array]]:
        """Inputs of these specs, whose bytes come one after another, until the block ends; `hang_up` breaks off the
        wait for a chunk.

        Raises OutOfMemory where they don't fit, InvalidParameter for chunks that don't, TimedOut where none comes for
        too long, and what `cancellation.check` raises.
        """
        with self._budget.lent(sum(spec.byte_size for spec in specs.values())):
            arrays = {index: room_for(spec) for index, spec in specs.items()}
            self._fill(list(arrays.values()), chunks, _Arrival(cancellation, hang_up))
            for array in arrays.values():
                array.flags.writeable = False
            yield arrays

    def _fill(self, arrays: list[Array], chunks: Iterator[memoryview | bytes], arrival: _Arrival) -> None:
        assembly = Assembly(arrays)
        self._under_way.add(arrival)
        try:
            while not assembly.is_complete:
                assembly.take(next(chunks))
                arrival.heard_at = time.monotonic()
                arrival.cancellation.check()
        except Exception:
            # Where the wait was broken off, this is why.
            arrival.cancellation.check()
            if arrival.is_given_up:
                raise TimedOut("the chunks of its inputs stopped coming; run it again") from None
            raise
        finally:
            self._under_way.discard(arrival)

    def give_up_stalled(self, silence_s: float) -> None:
        """Break off the wait of runs that are cancelled, whose time is over, or for which nothing came for so long."""
        now = time.monotonic()
        for arrival in list(self._under_way):
            arrival.is_given_up = now - arrival.heard_at > silence_s
            if arrival.is_given_up or arrival.cancellation.is_cancelled or arrival.cancellation.remaining == 0:
                arrival.hang_up()


def announced(specs: tuple[TensorSpec, ...], index: int, sent: TensorSpec, size_bytes: int) -> TensorSpec:
    """The spec of an input that is to come, if it is the model's and has so many bytes. Raises InvalidParameter."""
    place = f"input {index}"
    if sent.data_type != specs[index].data_type or not specs[index].accepts(sent.shape):
        raise InvalidParameter(f"it is {sent}; the model takes {specs[index]}", place=place)
    if size_bytes != sent.byte_size:
        raise InvalidParameter(f"{size_bytes} bytes are announced; {sent} has {sent.byte_size}", place=place)
    return sent
