"""Hedging: start long runs on a second device, too (Dean and Barroso, "The Tail at Scale", 2013)."""

import re
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nnrt_client.session.io_loop import io_loop
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter

_PERCENTILE = re.compile(r"p([0-9]{1,2}(\.[0-9]{1,4})?)")
# Most and least number of recent runs for the percentile, and number of new runs after which it is computed again.
_MOST_RUNS, _LEAST_RUNS, _FRESH_RUNS = 1000, 20, 50
# Limit of the unused budget: the number of runs that may be started twice in quick succession.
_MOST_ALLOWED = 10.0


@dataclass(frozen=True, slots=True)
class Hedging:
    """Settings of hedging: a pool starts a long run on a second device, too, and takes the first reply.

    `after` is the time after which a run counts as long: a percentile of recent runs ("p95"), or milliseconds. At most
    the fraction `budget` of all runs is started twice. Raises InvalidParameter for other values.
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
    """Run that may be started on a second device."""

    def hedge(self) -> bool:
        """Start the run on a second device. Return False if it has ended, or no other device is there."""


class Hedger(Closable):
    """Timer that starts long runs on a second device, within the budget. The loop calls it."""

    def __init__(self, hedging: Hedging) -> None:
        self._budget = hedging.budget
        self._percentile = float(hedging.after[1:]) if isinstance(hedging.after, str) else None
        # Seconds after which a run counts as long; None until the percentile is known.
        self._after_s = None if isinstance(hedging.after, str) else hedging.after / 1e3
        # Seconds of recent runs.
        self._recent: deque[float] = deque(maxlen=_MOST_RUNS)
        self._fresh_runs = 0
        # Number of runs that may be started twice now.
        self._allowed = 1.0
        self._loop = io_loop()
        self._is_open = True

    def watch(self, run: Hedged) -> None:
        """Watch a run that has just started, and start it on a second device if it takes long."""
        if (after_s := self._after_s) is not None:
            self._loop.call(self._loop.events.call_later, after_s, self._hedge, run)

    def _hedge(self, run: Hedged) -> None:
        if self._is_open and self._allowed >= 1 and run.hedge():
            self._allowed -= 1

    def count_run(self, seconds: float) -> None:
        """Record the duration of a run that has ended."""
        self._allowed = min(self._allowed + self._budget, _MOST_ALLOWED)
        self._recent.append(seconds)
        self._fresh_runs += 1
        if self._percentile is not None and self._fresh_runs >= _FRESH_RUNS and len(self._recent) >= _LEAST_RUNS:
            self._fresh_runs = 0
            self._after_s = float(np.percentile(list(self._recent), self._percentile))

    def close(self) -> None:
        """Stop starting runs on second devices. Idempotent."""
        self._is_open = False
