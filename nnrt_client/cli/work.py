"""Work of devices during an interval, by identity, as differences of their daemons' counters."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add, sub
from typing import Any

from typing_extensions import Self

from nnrt_hdi.counters import DeviceCounters, Durations, IdentityCounters

NOTHING = IdentityCounters("")
# Counters of what an identity uses now. All others only grow from the daemon's start on.
PRESENT_USE = ("sessions", "connections", "held_bytes")
_FAILURES = ("failed", "timed_out")
# Errors of failed work. All other errors are refusals.
_FAULTS = ("FAILED", "TIMEOUT", "UNAVAILABLE_DEVICE")


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of the work during one interval."""

    counted: IdentityCounters
    seconds: float

    @classmethod
    def sum_of(cls, works: Iterable[Self]) -> Self:
        """Sum the work of several devices during about the same interval."""
        each = list(works)
        return cls(total(work.counted for work in each), max((work.seconds for work in each), default=0.0))

    @property
    def runs(self) -> int:
        """Number of runs that succeeded."""
        return self.counted.runs.get("done", 0)

    @property
    def failures(self) -> int:
        """Number of runs that failed or timed out."""
        return sum(self.counted.runs.get(result, 0) for result in _FAILURES)

    @property
    def refused(self) -> Mapping[str, int]:
        """Number of refused calls and runs, by cause."""
        return {cause: count for cause, count in self.counted.errors.items() if cause not in _FAULTS and count}

    @property
    def refusals(self) -> int:
        """Number of refused calls and runs."""
        return sum(self.refused.values())

    @property
    def mean_s(self) -> float | None:
        """Mean time of a run in the daemon, or None without runs."""
        return self.counted.served.mean_s if self.counted.served.count else None

    @property
    def p99_s(self) -> float | None:
        """99th percentile of a run's time in the daemon, exact within a factor of two, or None without runs."""
        return self.counted.served.quantile_s(0.99) if self.counted.served.count else None

    def per_s(self, amount: float) -> float:
        """Return an amount per second."""
        return amount / self.seconds if self.seconds else 0.0


def work_of_all(now: DeviceCounters, before: DeviceCounters | None) -> Work:
    """Return a device's work since `before`, or since its daemon's start."""
    known = total(before.identities) if before else NOTHING
    return Work(_growth(total(now.identities), known), _seconds(now, before))


def work_of_each(now: DeviceCounters, before: DeviceCounters | None) -> dict[str, Work]:
    """Return a device's work for each identity since `before`.

    If the counters of an identity have restarted at 0 since then, its work is what they have counted since the restart.
    """
    known = {each.identity: each for each in before.identities} if before else {}
    seconds = _seconds(now, before)
    return {each.identity: Work(_growth(each, known.get(each.identity, NOTHING)), seconds) for each in now.identities}


def busy_share(now: DeviceCounters, before: DeviceCounters | None) -> float | None:
    """Return the utilization of a device's slots, from 0 to 1, or None if its daemon doesn't report it."""
    if now.load is None or not now.load.slots:
        return None
    known_s = before.load.busy_s if before and before.load else 0.0
    seconds = _seconds(now, before)
    return min((now.load.busy_s - known_s) / (seconds * now.load.slots), 1.0) if seconds else 0.0


def total(counters: Iterable[IdentityCounters]) -> IdentityCounters:
    """Return the sum over all identities."""
    return reduce(_sum, counters, NOTHING)


def sees_all(counters: DeviceCounters) -> bool:
    """Return whether a daemon reports all identities, which it shows by an entry with the empty identity."""
    return any(not each.identity for each in counters.identities)


def _seconds(now: DeviceCounters, before: DeviceCounters | None) -> float:
    return now.uptime_s - (before.uptime_s if before else 0.0)


def _sum(one: IdentityCounters, other: IdentityCounters) -> IdentityCounters:
    return _combine(one, other, add, ())


def _growth(now: IdentityCounters, before: IdentityCounters) -> IdentityCounters:
    grown = _combine(now, before, sub, PRESENT_USE)
    began_anew = any(_is_negative(getattr(grown, part.name)) for part in fields(grown) if part.name != "identity")
    return now if began_anew else grown


def _combine(
    one: IdentityCounters, other: IdentityCounters, how: Callable[[Any, Any], Any], kept: tuple[str, ...]
) -> IdentityCounters:
    names = [part.name for part in fields(one) if part.name != "identity" and part.name not in kept]
    return replace(one, **{name: _combine_values(getattr(one, name), getattr(other, name), how) for name in names})


def _combine_values(one: Any, other: Any, how: Callable[[Any, Any], Any]) -> Any:
    """Combine two numbers, two Durations, or two mappings of numbers."""
    if isinstance(one, Mapping):
        return {name: how(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
    return how(one, other)


def _is_negative(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(number < 0 for number in value.values())
    return min(value.counts, default=0) < 0 if isinstance(value, Durations) else bool(value < 0)
