"""Runs that wait for a replica, in no thread."""

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from nnrt_hdi.errors import NnrtError
from nnrt_hdi.signals import raised_by_handler, suppressed


class Waiting(Protocol):
    """A run that waits for a replica, in no thread."""

    waits_until: float

    def resume(self) -> None:
        """Go on: there is a replica, or it is time to fail."""

    def fail(self, error: BaseException) -> None:
        """End with this error, unless it is over."""


class Parking:
    """The runs that wait. Any number of threads may have them go on at a time."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, run: Waiting) -> None:
        """Have one more wait."""
        self._waiting.append(run)

    def take(self, run: Waiting) -> bool:
        """Have one wait no more; false where another thread has it."""
        with suppressed(ValueError):
            self._waiting.remove(run)
            return True
        return False

    def resume_all(self, error: NnrtError | None = None) -> None:
        """Have all go on, or end with a copy of the error."""
        while self._waiting:
            try:
                run = self._waiting.popleft()
            except IndexError as empty:  # Another thread has them.
                if raised_by_handler(empty):
                    raise
                return
            if error is None:
                run.resume()
            else:
                run.fail(error.copy())

    def resume_due(self, now: float, are_all: bool, begin_soon: Callable[[Callable[[], None]], object]) -> float:
        """Have those go on, in another thread, whose time is over, or all; give when the next one's is. The loop's."""
        due = math.inf
        for _ in range(len(self._waiting)):
            try:
                run = self._waiting.popleft()
            except IndexError:  # `resume_all` has another thread do the same.
                break
            if are_all or run.waits_until <= now:
                begin_soon(run.resume)
            else:
                due = min(due, run.waits_until)
                self._waiting.append(run)
        return due
