"""Hedging: long runs are started on a second device, too (Dean and Barroso, "The Tail at Scale", 2013)."""

import re
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nnrt_client.session.io_loop import io_loop
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter

_PERCENTILE = re.compile(r"p([0-9]{1,2}(\.[0-9]{1,4})?)")
# The percentile is of this many recent runs, at least of so many, and is computed again after so many.
_LATE_RUNS, _LEAST_RUNS, _FRESH_RUNS = 1000, 20, 50
# Unused budget allows at most this many runs to be started twice at the same time.
_MOST_SAVED = 10.0


@dataclass(frozen=True, slots=True)
class Hedging:
    """Settings of hedging: a run that takes longer than most is started on a second device; the first reply counts.

    `after` is a percentile of recent runs ("p95") or a number of milliseconds. At most the fraction `budget` of all
    runs is started twice. Raises InvalidParameter for other values.
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
    """Run that may be started twice."""

    def hedge(self) -> bool:
        """Start it on a second device; return False if it has ended, or there is no other device."""


class Hedger(Closable):
    """Starter of long runs on a second device. The loop watches the runs."""

    def __init__(self, hedging: Hedging) -> None:
        self._budget = hedging.budget
        self._percentile = float(hedging.after[1:]) if isinstance(hedging.after, str) else None
        # None until the percentile is known.
        self._after_s = None if isinstance(hedging.after, str) else hedging.after / 1e3
        self._late: deque[float] = deque(maxlen=_LATE_RUNS)
        self._fresh_runs = 0
        # How many runs may be started twice now.
        self._saved = 1.0
        self._loop = io_loop()
        self._is_open = True

    def watch(self, run: Hedged) -> None:
        """Watch a run that has just started, and start it again if it takes long."""
        if (after_s := self._after_s) is not None:
            self._loop.call(self._loop.events.call_later, after_s, self._hedge, run)

    def _hedge(self, run: Hedged) -> None:
        if self._is_open and self._saved >= 1 and run.hedge():
            self._saved -= 1

    def ran(self, seconds: float) -> None:
        """Record the seconds of a run that has ended."""
        self._saved = min(self._saved + self._budget, _MOST_SAVED)
        self._late.append(seconds)
        self._fresh_runs += 1
        if self._percentile is not None and self._fresh_runs >= _FRESH_RUNS and len(self._late) >= _LEAST_RUNS:
            self._fresh_runs = 0
            self._after_s = float(np.percentile(list(self._late), self._percentile))

    def close(self) -> None:
        """Start no run twice any more. Idempotent."""
        self._is_open = False
