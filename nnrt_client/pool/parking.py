"""Parking: runs that wait for a replica without a thread."""

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from nnrt_hdi.errors import NnrtError
from nnrt_hdi.signals import raised_by_handler, suppressed


class Waiting(Protocol):
    """Run that waits for a replica without a thread."""

    waits_until: float

    def resume(self) -> None:
        """Go on: there is a replica, or the run is late."""

    def fail(self, error: BaseException) -> None:
        """End with this error, unless the run has ended."""


class Parking:
    """Waiting runs, which any thread may resume."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, run: Waiting) -> None:
        """Add a run."""
        self._waiting.append(run)

    def take(self, run: Waiting) -> bool:
        """Remove a run; return False if another thread has removed it."""
        with suppressed(ValueError):
            self._waiting.remove(run)
            return True
        return False

    def resume_all(self, error: NnrtError | None = None) -> None:
        """Resume all runs, or end them with copies of the error."""
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
        """Resume the late runs, or all, in another thread; return when the next one is late. Called by the loop."""
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
