"""Early ends: runs that end before their replies arrive, because they are late or were cancelled."""

import logging
import math
import time
from collections.abc import Sequence
from typing import Any

from nnrt_client.run.link import TICK_S, Link
from nnrt_client.run.links import LOOK_AGAIN_S
from nnrt_client.run.run import Run
from nnrt_client.run.session_runs import SessionRuns
from nnrt_client.run.way import Way
from nnrt_client.session.io_loop import io_loop
from nnrt_client.session.session import Session
from nnrt_hdi.errors import NnrtError, OperationFailed, TimedOut

_log = logging.getLogger(__name__)

# A reply that doesn't arrive this soon after the daemon sent it is taken for lost.
_ARRIVAL_S = 0.05


class EarlyEnds:
    """Timer of a session: it ends late and cancelled runs, and makes the periodic checks of each Way.

    Only the loop calls this.
    """

    def __init__(self, session: Session, runs: SessionRuns, ways: Sequence[Way]) -> None:
        self._runs = runs
        self._ways = ways
        self._settings = session.settings
        # Cancelled runs that are still on a link, with the time until which the daemon may end them.
        self.stopping: dict[Run, float] = {}
        self._wakes_at = math.inf
        # When to check runs next. A Way may ask for an earlier check of its own.
        self._runs_due = 0.0
        self._timer: Any = None

    def wake_at(self, until: float) -> None:
        """Check all runs and ways at this time (time.monotonic()) or sooner."""
        if until < self._wakes_at and until < math.inf:
            self.sleep()
            self._timer = io_loop().events.call_later(max(until - time.monotonic(), 0.0), self._look_after_all)
            self._wakes_at = until

    def end_at(self, until: float) -> None:
        """Check all runs at this time (time.monotonic()) or sooner."""
        self._runs_due = min(self._runs_due, until)
        self.wake_at(until)

    def sleep(self) -> None:
        """Stop checking until `wake_at` is called."""
        self._wakes_at = math.inf
        if self._timer is not None:
            self._timer.cancel()

    def end(self, run: Run, reason: NnrtError, *, is_left: bool = False) -> None:
        """End a run, wherever it is, and ask the daemon to stop it.

        If the daemon writes outputs into tensors of the application, the run ends when the daemon has confirmed that it
        stopped, or after `verdict_timeout_s`, because nothing may be written there after the end.

        Args:
            run: The run.
            reason: The error with which it ends.
            is_left: The thread that waited for the run has stopped waiting.
        """
        link, now = run.carrying, time.monotonic()
        if link is None:  # The run waits, or its reply is being read, or it was never sent.
            for way in self._ways:
                way.remove(run)
            run.fail(reason)
            return
        if is_left and isinstance(link, Link):
            link.links.leave(link)
        if run not in self.stopping:
            run.give_up(reason)
            self._runs.forget(run.id)
            link.stop(run, reason)
            self.stopping[run] = until = now + self._settings.verdict_timeout_s
            self.end_at(until)
        elif self.stopping[run] <= now:  # The daemon didn't confirm in time.
            self.stopping[run] = math.inf
            link.is_over = True
            link.end()
            run.fail(reason)

    def give_up(self, run: Run, is_left: bool) -> None:
        """End a cancelled run; see `end`."""
        self.end(run, OperationFailed("the run was given up"), is_left=is_left)

    def expire(self, run: Run, *, is_left: bool = False) -> None:
        """End a run that is late."""
        given_s = f"{self._settings.run_timeout_s:g} s (run_timeout_s)"
        bound = f"{run.timeout_ms} ms (timeout_ms)" if run.timeout_ms else given_s
        self.end(run, TimedOut(f"the run took longer than {bound}; give it more"), is_left=is_left)

    def confirm_ended(self, run_ids: set[int]) -> None:
        """Shorten the wait for these runs: the daemon has ended them, or never got them."""
        until = time.monotonic() + _ARRIVAL_S
        for run in [run for run in self.stopping if run.id in run_ids]:
            self.stopping[run] = min(self.stopping[run], until)
            self.end_at(until)

    def _look_after_all(self) -> None:
        """Check all ways, and the runs if their time has come."""
        self._wakes_at = math.inf
        now, again = time.monotonic(), self._runs_due
        if again <= now:
            again = self._look_after_runs(now)
            self._runs_due = min(again, now + LOOK_AGAIN_S)  # Nothing calls `end_at` for runs on links of threads.
        self.wake_at(min(again, *(way.look_after(now) for way in self._ways)))

    def _look_after_runs(self, now: float) -> float:
        again = math.inf
        for run in set(self._runs.under_way()):
            try:
                again = min(again, self._look_after(run, now))
            except Exception:  # Such as MemoryError. The other runs must end nevertheless.
                _log.exception("a run could not be ended")
                again = now + TICK_S
            del run  # So that this frame keeps no tensors alive.
        for run in [run for run in self.stopping if run.carrying is None]:
            del self.stopping[run]
            run.fail(OperationFailed("the run was given up"))  # Unless the reader of its reply ended it.
        return again

    def _look_after(self, run: Run, now: float) -> float:
        """End a run if it is late. Return when to check it again."""
        if run.ended.is_set:  # Its link still waits for the reply. Limit that, because the reply may be lost.
            self.stopping.setdefault(run, now + self._settings.verdict_timeout_s)
        until = self.stopping.get(run)
        if until is None:
            until = now if run.given_up is not None else run.deadline
            if isinstance(run.link, Link) and not run.link.is_loops:
                until += TICK_S  # Its thread checks first.
        if until <= now:
            self.expire(run, is_left=True)
            until = self.stopping.get(run, math.inf)
        return until
