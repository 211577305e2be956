"""Ejection of replicas that are slow or fail: outlier detection, as in Envoy.

An ejected replica gets no runs for a while. Then the pool tries it: it sends it a copy of a real run and ignores the
outputs.
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

# A run is slow if it takes more than this many times the median of the other replicas, and at least this many seconds
# longer. The wait in the device's queue doesn't count.
_SLOWER, _LONGER_S = 3.0, 1e-3
# Number of slow or failed runs in a row after which a replica is ejected.
IN_A_ROW = 3
# Number of runs after which a replica's latency counts as known.
_KNOWN_RUNS = 5
# Seconds of the first ejection, growth factor of ejections that follow soon, and seconds of the longest.
_FIRST_S, _GROWTH, _MOST_S = 1.0, 2.0, 60.0
# Most runs of a trial. It succeeds with the first run that isn't slow, because a busy client may slow down others.
_TRIAL_RUNS = 5
# Timeout of a trial's run: this many times the bound of a slow run, but at least this many seconds.
_PATIENCE, _LEAST_PATIENCE_S = 4.0, 1.0

Arguments = tuple[Inputs, Sequence[int]]


class Ejection:
    """Ejection of a model's replicas: at most half of them at a time, and never the last one that serves.

    Only the loop calls this, except `offer`.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # Whether a trial needs a run to copy.
        self.wants_run = False
        self._offered: queue.SimpleQueue[Arguments] = queue.SimpleQueue()
        # Results of trials: the seconds of the last run, or None if it failed.
        self._tried: queue.SimpleQueue[tuple[Replica, float | None]] = queue.SimpleQueue()

    def offer(self, inputs: Inputs, unwanted: Sequence[int]) -> None:
        """Pass the inputs of a run, for a trial to copy. Any thread may call this, which never waits."""
        self.wants_run = False
        self._offered.put((inputs, unwanted))
        self._wake()

    def update(self, replicas: Sequence[Replica], now: float) -> float:
        """Eject slow or failing replicas, and return recovered ones to service. Return when to call this again."""
        self._judge(now)
        self._set_bounds(replicas)
        out = [replica for replica in replicas if replica.is_ejected]
        serving = [replica for replica in replicas if not (replica.is_ejected or replica.is_suspended)]
        for replica in replicas:
            if replica.is_ejected or (why := _why_bad(replica)) is None:
                continue
            if len(out) + 1 <= len(replicas) // 2 and any(one is not replica for one in serving):
                out.append(replica)
                serving = [one for one in serving if one is not replica]
                self._eject(replica, why, now)
        if not serving:  # A slow replica is better than none.
            for replica in out:
                _return(replica, replica.own_s, now)
        return self._try_due([replica for replica in replicas if replica.is_ejected], now)

    def _set_bounds(self, replicas: Sequence[Replica]) -> None:
        """Set for each replica the duration above which a run counts as slow."""
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
        """Start a trial of each replica whose ejection is over, as soon as a run was passed to `offer`.

        Returns:
            When the next ejection is over.
        """
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
        """Make the runs of a trial, in a thread of its own.

        The application may change the inputs meanwhile, which doesn't matter because the outputs are ignored.
        """
        inputs, unwanted = arguments
        seconds: float | None = None
        try:
            for _ in range(_TRIAL_RUNS):
                seconds = replica.time_run(inputs, int(min(patience_s, _MOST_S) * 1e3), unwanted)
                if seconds <= replica.slow_s:
                    break
        except Exception as error:  # Any error, such as MemoryError, counts as a failed trial.
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
