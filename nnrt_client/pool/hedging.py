"""Runs that take long are begun on a second device as well: Dean and Barroso, "The Tail at Scale", 2013."""

import re
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nnrt_client.session.io_loop import io_loop
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter

_PERCENTILE = re.compile(r"p([0-9]{1,2}(\.[0-9]{1,4})?)")
# Runs of which the percentile is, so many at the least, and after how many it is looked at again.
_LATE_RUNS, _LEAST_RUNS, _FRESH_RUNS = 1000, 20, 50
# What is left over of the budget is good for so many runs, which begin twice at the same time.
_MOST_SAVED = 10.0


@dataclass(frozen=True, slots=True)
class Hedging:
    """Begin a run on another device as well once it takes longer than most; the first reply counts.

    `after` is a percentile of late runs ("p95"), or milliseconds. At most a part `budget` of the runs are begun twice.
    Raises InvalidParameter.
    """

    after: str | float = "p95"
    budget: float = 0.05

    def __post_init__(self) -> None:
        after = self.after
        is_time = isinstance(after, int | float) and not isinstance(after, bool) and after > 0
        if not is_time and not (isinstance(after, str) and _PERCENTILE.fullmatch(after)):
            raise InvalidParameter(
                f'after is {after!r}; use a percentile such as "p95", or milliseconds', place="Hedging"
            )
        if not (isinstance(self.budget, int | float) and 0 < self.budget <= 1):
            raise InvalidParameter(f"budget is {self.budget!r}; use a number above 0, of at most 1", place="Hedging")


class Hedged(Protocol):
    """A run that may be begun twice."""

    def hedge(self) -> bool:
        """Begin it on another device as well; false where it is over, or there is none."""


class Hedger(Closable):
    """Begins runs on a second device that take long. The loop watches them."""

    def __init__(self, hedging: Hedging) -> None:
        self._budget = hedging.budget
        self._percentile = float(hedging.after[1:]) if isinstance(hedging.after, str) else None
        # None as long as it isn't known.
        self._after_s = None if isinstance(hedging.after, str) else hedging.after / 1e3
        self._late: deque[float] = deque(maxlen=_LATE_RUNS)
        self._fresh_runs = 0
        # How many runs may be begun twice now.
        self._saved = 1.0
        self._loop = io_loop()
        self._is_open = True

    def watch(self, run: Hedged) -> None:
        """Begin a run twice if it takes long, which has just begun."""
        if (after_s := self._after_s) is not None:
            self._loop.call(self._loop.events.call_later, after_s, self._hedge, run)

    def _hedge(self, run: Hedged) -> None:
        if self._is_open and self._saved >= 1 and run.hedge():
            self._saved -= 1

    def ran(self, seconds: float) -> None:
        """Count a run that has ended."""
        self._saved = min(self._saved + self._budget, _MOST_SAVED)
        self._late.append(seconds)
        self._fresh_runs += 1
        if self._percentile is not None and self._fresh_runs >= _FRESH_RUNS and len(self._late) >= _LEAST_RUNS:
            self._fresh_runs = 0
            self._after_s = float(np.percentile(list(self._late), self._percentile))

    def close(self) -> None:
        """Begin no run twice any more. Idempotent."""
        self._is_open = False
