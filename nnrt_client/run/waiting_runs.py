"""Runs that wait in the client, where no stream is free for them: in the order in which the device would take them."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from nnrt_hdi.enums import Priority

# A class of runs that has waited this long without a turn rises by one, as in the daemon.
AGEING_S = 1.0


class Prioritized(Protocol):
    @property
    def priority(self) -> Priority: ...


RunT = TypeVar("RunT", bound=Prioritized)


class WaitingRuns(Generic[RunT]):
    """A queue by priority; within one who came first is first, and none waits for ever. Not safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._classes: tuple[OrderedDict[RunT, None], ...] = tuple(OrderedDict() for _ in range(Priority.HIGH.rank + 1))
        # Since when a class waits for a turn.
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
        """The run whose turn it is."""
        now = self._clock()
        ranks = [rank for rank, runs in enumerate(self._classes) if runs]
        rank = ranks[0] if len(ranks) == 1 else max(ranks, key=lambda rank: self._turn(rank, now - self._since[rank]))
        self._since[rank] = now
        return self._classes[rank].popitem(last=False)[0]

    def _turn(self, rank: int, waited_s: float) -> tuple[float, float]:
        return rank + waited_s // AGEING_S, waited_s

    def remove(self, run: RunT) -> None:
        """Take out a run that is given up, if it is here."""
        self._classes[run.priority.rank].pop(run, None)

    def drain(self) -> Iterator[RunT]:
        """Yield all runs, each of which waits until the step with it has been taken."""
        for run in list(self):
            yield run
            self.remove(run)
