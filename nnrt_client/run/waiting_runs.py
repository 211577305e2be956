"""Queue of runs that wait in the client for a link, in the daemon's order: by priority, with ageing."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from nnrt_hdi.enums import Priority

# For each such time without a turn, a priority class rises by one, as in the daemon.
AGEING_S = 1.0


class Prioritized(Protocol):
    @property
    def priority(self) -> Priority: ...


RunT = TypeVar("RunT", bound=Prioritized)


class WaitingRuns(Generic[RunT]):
    """Queue ordered by priority, then by age. The longer a priority class waits, the higher it counts.

    Not thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._classes: tuple[OrderedDict[RunT, None], ...] = tuple(OrderedDict() for _ in range(Priority.HIGH.rank + 1))
        # When each priority class had its latest turn.
        self._since = [0.0] * len(self._classes)

    def __bool__(self) -> bool:
        return any(self._classes)

    def __iter__(self) -> Iterator[RunT]:
        for runs in self._classes:
            yield from runs

    def append(self, run: RunT) -> None:
        rank = run.priority.rank
        if not self._classes[rank]:
            self._since[rank] = self._clock()
        self._classes[rank][run] = None

    def take(self) -> RunT:
        """Remove and return the next run."""
        now = self._clock()
        ranks = [rank for rank, runs in enumerate(self._classes) if runs]
        rank = ranks[0] if len(ranks) == 1 else max(ranks, key=lambda rank: self._turn(rank, now - self._since[rank]))
        self._since[rank] = now
        return self._classes[rank].popitem(last=False)[0]

    def _turn(self, rank: int, waited_s: float) -> tuple[float, float]:
        return rank + waited_s // AGEING_S, waited_s

    def remove(self, run: RunT) -> None:
        """Remove a run, if it is in the queue."""
        self._classes[run.priority.rank].pop(run, None)

    def drain(self) -> Iterator[RunT]:
        """Yield all runs. Remove each one when the caller asks for the next."""
        for run in list(self):
            yield run
            self.remove(run)
