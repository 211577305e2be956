"""Parking: a queue of runs that wait for a replica and block no thread."""

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from nnrt_hdi.errors import NnrtError
from nnrt_hdi.signals import raised_by_handler, suppressed


class Waiting(Protocol):
    """Run that waits for a replica and blocks no thread."""

    # Time (time.monotonic()) at which it is late.
    waits_until: float

    def resume(self) -> None:
        """Continue the run, because there is a replica or the run is late."""

    def fail(self, error: BaseException) -> None:
        """End the run with this error, unless it has ended."""


class Parking:
    """Queue of waiting runs, which any thread may resume."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, run: Waiting) -> None:
        """Add a run that waits for a replica."""
        self._waiting.append(run)

    def take(self, run: Waiting) -> bool:
        """Remove a run. Return False if another thread has removed it."""
        with suppressed(ValueError):
            self._waiting.remove(run)
            return True
        return False

    def resume_all(self, error: NnrtError | None = None) -> None:
        """Resume all runs, or end them with copies of `error`."""
        while self._waiting:
            try:
                run = self._waiting.popleft()
            except IndexError as empty:  # Another thread took the last one.
                if raised_by_handler(empty):
                    raise
                return
            if error is None:
                run.resume()
            else:
                run.fail(error.copy())

    def resume_due(self, now: float, are_all: bool, begin_soon: Callable[[Callable[[], None]], object]) -> float:
        """Resume the late runs, or all, by `begin_soon`. Return when the next run is late. The loop calls this."""
        due = math.inf
        for _ in range(len(self._waiting)):
            try:
                run = self._waiting.popleft()
            except IndexError:  # `resume_all` in another thread took it.
                break
            if are_all or run.waits_until <= now:
                begin_soon(run.resume)
            else:
                due = min(due, run.waits_until)
                self._waiting.append(run)
        return due
