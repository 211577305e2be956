"""Queue of runs that wait in the client for a link, in the daemon's order: by priority, with ageing, then in turn."""

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
    @property
    def on_behalf_of(self) -> str | None: ...


RunT = TypeVar("RunT", bound=Prioritized)


class _PriorityClass(Generic[RunT]):
    """Waiting runs of one priority: the identities on whose behalf they are take turns, each with its oldest run."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str | None, OrderedDict[RunT, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __iter__(self) -> Iterator[RunT]:
        for runs in self._runs.values():
            yield from runs

    def append(self, run: RunT) -> None:
        self._runs.setdefault(run.on_behalf_of, OrderedDict())[run] = None

    def take(self) -> RunT:
        identity, runs = self._runs.popitem(last=False)
        run, _ = runs.popitem(last=False)
        if runs:
            self._runs[identity] = runs
        return run

    def remove(self, run: RunT) -> None:
        if (runs := self._runs.get(run.on_behalf_of)) is not None:
            runs.pop(run, None)
            if not runs:
                del self._runs[run.on_behalf_of]


class WaitingRuns(Generic[RunT]):
    """Queue ordered by priority, then by turn. The longer a priority class waits, the higher it counts.

    Not thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._classes: tuple[_PriorityClass[RunT], ...] = tuple(_PriorityClass() for _ in range(Priority.HIGH.rank + 1))
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
        self._classes[rank].append(run)

    def take(self) -> RunT:
        """Remove and return the next run."""
        now = self._clock()
        ranks = [rank for rank, runs in enumerate(self._classes) if runs]
        rank = ranks[0] if len(ranks) == 1 else max(ranks, key=lambda rank: self._turn(rank, now - self._since[rank]))
        self._since[rank] = now
        return self._classes[rank].take()

    def _turn(self, rank: int, waited_s: float) -> tuple[float, float]:
        return rank + waited_s // AGEING_S, waited_s

    def remove(self, run: RunT) -> None:
        """Remove a run, if it is in the queue."""
        self._classes[run.priority.rank].remove(run)

    def drain(self) -> Iterator[RunT]:
        """Yield all runs. Remove each one when the caller asks for the next."""
        for run in list(self):
            yield run
            self.remove(run)
