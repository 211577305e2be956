"""Counters of a daemon's work per identity, all of them in this module."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

from nnrt_device_service.settings import DeviceOut, LimitReached
from nnrt_hdi.access.identity import Identity
from nnrt_hdi.counters import MAX_DURATION_COUNTS, Batches, DeviceCounters, Durations, IdentityCounters
from nnrt_hdi.errors import NnrtError, OperationFailed, TimedOut, UnavailableDevice, UnknownHandle

# Identities without a session and without runs that keep counters of their own.
MOST_AWAY = 1024
_NOTHING: Mapping[Any, int] = MappingProxyType({})


class Tally:
    """Device time of an identity's runs, or of its compilations, both successful and failed.

    Only the scheduler changes it, under the scheduler's own lock.
    """

    __slots__ = ("busy_ns", "reported_ns")

    def __init__(self) -> None:
        self.busy_ns = 0
        # Value of the last snapshot, which included work in progress. Later snapshots never go below it.
        self.reported_ns = 0

    def add(self, other: "Tally") -> None:
        """Add the time of another tally, but no less than its last snapshot reported."""
        self.busy_ns += max(other.busy_ns, other.reported_ns)

    def snapshot_s(self, under_way_ns: int) -> float:
        """Return the seconds, including `under_way_ns` of work that is still on the device."""
        self.reported_ns = max(self.reported_ns, self.busy_ns + under_way_ns)
        return self.reported_ns / 1e9


class _Histogram:
    """Histogram of durations: counts by bit length of the nanoseconds, and the total."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * MAX_DURATION_COUNTS
        self.total_ns = 0

    def add(self, other: "_Histogram") -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total_ns += other.total_ns

    def snapshot(self) -> Durations:
        longest = max((bits for bits, count in enumerate(self.counts) if count), default=-1)
        return Durations(tuple(self.counts[: longest + 1]), self.total_ns / 1e9)


class BatchCounter:
    """Counter of the daemon's batched runs, over all identities."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._rows = 0
        self._counts: Counter[int] = Counter()

    def count(self, runs: int, rows: int) -> None:
        """Count one batch of `runs` runs with `rows` rows in all."""
        with self._lock:
            self._runs += runs
            self._rows += rows
            self._counts[(rows - 1).bit_length()] += 1

    def snapshot(self) -> Batches:
        with self._lock:
            counts = tuple(self._counts[bits] for bits in range(max(self._counts, default=-1) + 1))
            return Batches(self._runs, self._rows, counts)


class Usage:
    """Counters of one identity."""

    def __init__(self, identity: str = "") -> None:
        self.identity = identity
        self.runs = Tally()
        self.compilations = Tally()
        # Sessions ever opened, and open sessions. Only `Counters` changes them.
        self.opened_sessions = 0
        self.sessions = 0
        # What counts runs here besides these sessions, as long as it lives. Only `Counters` adds to it.
        self.holders: WeakSet[object] = WeakSet()
        self._lock = threading.Lock()
        self._in_bytes = 0
        self._out_bytes = 0
        # Durations of successful runs: queued, copied, computed, and their sum.
        self._queued = _Histogram()
        self._copied = _Histogram()
        self._computed = _Histogram()
        self._served = _Histogram()
        self._ended_runs: Counter[str] = Counter()
        self._models: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    def count_run(self, queued_ns: int, copied_ns: int, computed_ns: int, in_bytes: int, out_bytes: int) -> None:
        """Count a run that gave its outputs.

        Each run calls this, however small, so the histograms are updated inline.
        """
        served_ns = queued_ns + copied_ns + computed_ns
        queued, copied, computed, served = self._queued, self._copied, self._computed, self._served
        with self._lock:
            queued.counts[queued_ns.bit_length()] += 1
            queued.total_ns += queued_ns
            copied.counts[copied_ns.bit_length()] += 1
            copied.total_ns += copied_ns
            computed.counts[computed_ns.bit_length()] += 1
            computed.total_ns += computed_ns
            served.counts[served_ns.bit_length()] += 1
            served.total_ns += served_ns
            self._in_bytes += in_bytes
            self._out_bytes += out_bytes

    def count_model(self, origin: str) -> None:
        """Count a prepared model by its origin."""
        with self._lock:
            self._models[origin] += 1

    def count_error(self, error: NnrtError) -> None:
        """Count a call that the daemon answered with this error."""
        with self._lock:
            self._errors[error.setting if isinstance(error, LimitReached | DeviceOut) else error.code.name] += 1

    def count_ended_run(self, error: NnrtError, *, was_cancelled: bool) -> None:
        """Count a run that ended with this error."""
        result = _result_of(error, was_cancelled)
        with self._lock:
            self._ended_runs[result] += 1
        if result != "cancelled":
            self.count_error(error)

    def add(self, other: "Usage") -> None:
        """Add the counts of another identity's counters, whose `sessions` must be 0."""
        with other._lock:  # No thread takes two of these locks at a time.
            in_bytes, out_bytes = other._in_bytes, other._out_bytes
            histograms, counters = deepcopy((other._histograms, other._counters))
        with self._lock:
            self.runs.add(other.runs)
            self.compilations.add(other.compilations)
            self.opened_sessions += other.opened_sessions
            self._in_bytes += in_bytes
            self._out_bytes += out_bytes
            for mine, its in zip(self._histograms, histograms, strict=True):
                mine.add(its)
            for counter, more in zip(self._counters, counters, strict=True):
                counter.update(more)

    def snapshot(self, connections: int, held_bytes: int, under_way_ns: Mapping[Tally, int]) -> IdentityCounters:
        """Return a snapshot of the counters, with the identity's current connections, memory and work in progress."""
        with self._lock:
            queued, copied, computed, served = (each.snapshot() for each in self._histograms)
            runs = {"done": served.count, **self._ended_runs}
            return IdentityCounters(
                identity=self.identity,
                sessions=self.sessions,
                connections=connections,
                held_bytes=held_bytes,
                opened_sessions=self.opened_sessions,
                runs={result: count for result, count in runs.items() if count},
                run_s=self.runs.snapshot_s(under_way_ns.get(self.runs, 0)),
                models=dict(self._models),
                compile_s=self.compilations.snapshot_s(under_way_ns.get(self.compilations, 0)),
                errors=dict(self._errors),
                in_bytes=self._in_bytes,
                out_bytes=self._out_bytes,
                queued=queued,
                copied=copied,
                computed=computed,
                served=served,
            )

    @property
    def _histograms(self) -> tuple[_Histogram, ...]:
        return self._queued, self._copied, self._computed, self._served

    @property
    def _counters(self) -> tuple[Counter[str], ...]:
        return self._ended_runs, self._models, self._errors


class Counters:
    """Counters of all identities of a daemon.

    Clients without a credential have as many identities as they have addresses. To bound memory, only identities that
    opened a session, or on whose behalf a server ran models, get counters of their own. Of those that are away, without
    both now, only the latest MOST_AWAY keep them. The counts of the rest are added up.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        # Unix time in seconds.
        self.started_at = time.time()
        self._lock = threading.Lock()
        # Ordered by the time of the latest `open` or `hold`.
        self._known: dict[str, Usage] = {}
        self._others = Usage()
        self._reported_busy_ns = 0
        self.batches = BatchCounter()

    def open(self, identity: Identity) -> Usage:
        """Count a new open session of an identity and return the identity's counters. `close` ends the session."""
        with self._lock:
            usage = self._find_or_make(identity)
            usage.sessions += 1
            usage.opened_sessions += 1
            return usage

    def hold(self, identity: Identity, holder: object) -> Usage:
        """Return the counters of an identity, which keeps them as long as the holder lives."""
        with self._lock:
            usage = self._find_or_make(identity)
            usage.holders.add(holder)
            self._add_up_longest_away()
            return usage

    def close(self, usage: Usage) -> None:
        """Count the end of a session for which `open` returned these counters."""
        with self._lock:
            usage.sessions -= 1
            self._add_up_longest_away()

    def find(self, identity: Identity | None) -> Usage:
        """Return the counters for a call without a session: the identity's own, or the common ones if it has none."""
        with self._lock:
            return self._others if identity is None else self._known.get(str(identity), self._others)

    def snapshot(
        self,
        usage: Usage | None,
        connections: Mapping[str, int] = _NOTHING,
        held_bytes: Mapping[str, int] = _NOTHING,
        under_way_ns: Mapping[Tally, int] = _NOTHING,
    ) -> DeviceCounters:
        """Return a snapshot of the counters of one identity, or of all.

        Args:
            usage: The identity's counters; None for all identities.
            connections: Open connections by identity name.
            held_bytes: Memory in use by identity name.
            under_way_ns: Time that work in progress has been on the device, by its tally.
        """
        snapshots = (
            each.snapshot(connections.get(each.identity, 0), held_bytes.get(each.identity, 0), under_way_ns)
            for each in (self._all() if usage is None else (usage,))
        )
        return DeviceCounters(time.monotonic() - self._began, tuple(snapshots))

    def busy_s(self, under_way_ns: Mapping[Tally, int]) -> float:
        """Return the seconds that runs of all identities have been on the device. Never decreases."""
        tallies = [usage.runs for usage in self._all()]
        busy_ns = sum(tally.busy_ns + under_way_ns.get(tally, 0) for tally in tallies)
        self._reported_busy_ns = max(self._reported_busy_ns, busy_ns)
        return self._reported_busy_ns / 1e9

    def _find_or_make(self, identity: Identity) -> Usage:
        name = str(identity)
        usage = self._known.pop(name, None) or Usage(name)
        self._known[name] = usage
        return usage

    def _add_up_longest_away(self) -> None:
        if len(self._known) > MOST_AWAY:
            away = [name for name, each in self._known.items() if not (each.sessions or each.holders)]
            for name in away[: max(len(away) - MOST_AWAY, 0)]:
                self._others.add(self._known.pop(name))

    def _all(self) -> list[Usage]:
        with self._lock:
            return [*self._known.values(), self._others]


def _result_of(error: NnrtError, was_cancelled: bool) -> str:
    if isinstance(error, TimedOut):
        return "timed_out"
    if isinstance(error, DeviceOut):
        return "refused"
    if was_cancelled:
        return "cancelled"
    is_fault = isinstance(error, OperationFailed | UnavailableDevice) and not isinstance(error, UnknownHandle)
    return "failed" if is_fault else "refused"
