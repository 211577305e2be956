"""Deadlines of runs in parts: nothing else ends parts that run too long in the client."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from nnrt_client.run.run import Run
from nnrt_client.session.errands import start_in_worker
from nnrt_client.session.io_loop import io_loop
from nnrt_hdi.errors import TimedOut


class Deadlines:
    """Timers in the loop that end runs at their deadlines."""

    def __init__(self, give_up: Callable[[Run], object]) -> None:
        """Call `give_up` for each run whose deadline has passed, in a thread in which it may wait for a daemon."""
        self._give_up = give_up
        # Only the loop uses it.
        self._timers: dict[Run, asyncio.TimerHandle] = {}

    def add(self, run: Run) -> None:
        """Start the timer of a run."""
        io_loop().call(self._add, run)

    def discard(self, run: Run) -> None:
        """Cancel the timer of a run that has ended."""
        io_loop().call(self._discard, run)

    def _add(self, run: Run) -> None:
        if not run.ended.is_set and run not in self._timers:
            left_s = max(run.deadline - time.monotonic(), 0.0)
            self._timers[run] = io_loop().events.call_later(left_s, start_in_worker, partial(self._end, run))

    def _discard(self, run: Run) -> None:
        if (timer := self._timers.pop(run, None)) is not None:
            timer.cancel()

    def _end(self, run: Run) -> None:
        """Give up a run whose time is over, in a thread that may wait."""
        if run.give_up(TimedOut(f"the run took longer than {run.timeout_ms} ms (timeout_ms); give it more")):
            self._give_up(run)
