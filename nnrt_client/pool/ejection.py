"""Replicas that get no runs for a while, for they are slow or fail: outlier detection, as in Envoy.

One that is ejected gets a run again to try it, a copy of a real one whose outcome nobody waits for.
"""

import logging
import math
import queue
import statistics
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from nnrt_client.pool.replica import Replica
from nnrt_client.run.signature import Inputs

_log = logging.getLogger(__name__)

# A run is slow that takes so many times as long as the median of the other replicas, and so much longer, without what
# it waits for other runs of its device.
_SLOWER, _LONGER_S = 3.0, 1e-3
# So many runs in a row, slow or failed, are no chance.
IN_A_ROW = 3
# Runs after which it is known what to expect of a replica.
_KNOWN_RUNS = 5
# Seconds that the first ejection lasts; each one that follows soon lasts longer.
_FIRST_S, _GROWTH, _MOST_S = 1.0, 2.0, 60.0
# Runs of a trial, of which the fastest counts: this process may be busy. It ends with the first that isn't slow.
_TRIAL_RUNS = 5
# One may take so many times the bound of a slow run; it is given up then, and has failed.
_PATIENCE, _LEAST_PATIENCE_S = 4.0, 1.0

Arguments = tuple[Inputs, Sequence[int]]


class Ejection:
    """Ejects replicas of a model, at most half of them and never the last one, and has them tried.

    Called in the loop, but for `offer`.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # Whether a run is wanted, for a trial.
        self.wants_run = False
        self._offered: queue.SimpleQueue[Arguments] = queue.SimpleQueue()
        # Seconds that trials took; None for those that failed.
        self._tried: queue.SimpleQueue[tuple[Replica, float | None]] = queue.SimpleQueue()

    def offer(self, inputs: Inputs, unwanted: Sequence[int]) -> None:
        """Have this run tried on a replica that is ejected. Waits for nothing. Any thread."""
        self.wants_run = False
        self._offered.put((inputs, unwanted))
        self._wake()

    def look(self, replicas: Sequence[Replica], now: float) -> float:
        """Eject those that are slow or fail, and take back those that no longer are; give when to look again."""
        self._judge(now)
        self._set_bounds(replicas)
        out = [replica for replica in replicas if replica.is_ejected]
        serving = [replica for replica in replicas if not (replica.is_ejected or replica.is_out)]
        for replica in replicas:
            if replica.is_ejected or (why := _why_bad(replica)) is None:
                continue
            if len(out) + 1 <= len(replicas) // 2 and any(one is not replica for one in serving):
                out.append(replica)
                serving = [one for one in serving if one is not replica]
                self._eject(replica, why, now)
        if not serving:  # Better a slow one than none.
            for replica in out:
                _return(replica, replica.own_s, now)
        return self._try_due([replica for replica in replicas if replica.is_ejected], now)

    def _set_bounds(self, replicas: Sequence[Replica]) -> None:
        """Say for each replica from where on a run is slow."""
        known = [replica for replica in replicas if replica.runs >= _KNOWN_RUNS and not replica.is_ejected]
        for replica in replicas:
            others = [one.own_s for one in known if one is not replica]
            median_s = statistics.median(others) if others else math.inf
            replica.slow_s = max(median_s * _SLOWER, median_s + _LONGER_S)

    def _eject(self, replica: Replica, why: str, now: float) -> None:
        is_again = now < replica.returned_at + 2 * replica.ejected_for_s
        replica.ejected_for_s = min(replica.ejected_for_s * _GROWTH, _MOST_S) if is_again else _FIRST_S
        replica.ejected_until = now + replica.ejected_for_s
        replica.is_ejected = True
        _log.warning("no runs on %s for %g s: %s", replica.loaded.device, replica.ejected_for_s, why)

    def _try_due(self, ejected: Sequence[Replica], now: float) -> float:
        """Try those whose time is over, with the run that was offered for it."""
        due = [replica for replica in ejected if replica.ejected_until <= now and not replica.is_tried]
        while not self._offered.empty():
            arguments = self._offered.get()
            if due:
                replica = due.pop()
                replica.is_tried = True
                work = partial(self._try, replica, arguments, max(replica.slow_s * _PATIENCE, _LEAST_PATIENCE_S))
                threading.Thread(target=work, name="nnrt-pool-try", daemon=True).start()
        self.wants_run = bool(due)
        return min((replica.ejected_until for replica in ejected if replica.ejected_until > now), default=math.inf)

    def _try(self, replica: Replica, arguments: Arguments, patience_s: float) -> None:
        """Make runs in a thread of its own. Their inputs may be changing, for the caller has gone on; nobody sees."""
        inputs, unwanted = arguments
        seconds: float | None = None
        try:
            for _ in range(_TRIAL_RUNS):
                seconds = replica.timed(inputs, int(min(patience_s, _MOST_S) * 1e3), unwanted)
                if seconds <= replica.slow_s:
                    break
        except Exception as error:  # Of memory, perhaps: it is tried again.
            _log.debug("%s fails still: %s", replica.loaded.device, error)
            seconds = None
        self._tried.put((replica, seconds))
        self._wake()

    def _judge(self, now: float) -> None:
        while not self._tried.empty():
            with suppress(queue.Empty):
                replica, seconds = self._tried.get_nowait()
                replica.is_tried = False
                if seconds is not None and seconds <= replica.slow_s:
                    _return(replica, seconds, now)
                else:
                    replica.returned_at = now
                    self._eject(replica, "it is slow still" if seconds is not None else "it fails still", now)


def _why_bad(replica: Replica) -> str | None:
    if replica.failures_in_a_row >= IN_A_ROW:
        return f"{replica.failures_in_a_row} runs in a row have failed"
    if replica.slow_in_a_row >= IN_A_ROW:
        return f"{replica.slow_in_a_row} runs in a row took longer than {replica.slow_s * 1e3:.3g} ms"
    return None


def _return(replica: Replica, own_s: float, now: float) -> None:
    replica.is_ejected, replica.returned_at = False, now
    replica.latency_s = replica.own_s = own_s
    replica.slow_in_a_row = replica.failures_in_a_row = 0
    _log.info("runs on %s again", replica.loaded.device)
