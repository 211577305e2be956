"""What a daemon counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest

# In Welcome.features: the daemon tells what it counts.
FEATURE = "counters"
# Of Durations.counts there are at most so many: 64-bit numbers of nanoseconds have at most 64 bits.
MAX_DURATION_COUNTS = 65
# How a run may end.
RUN_RESULTS = ("done", "failed", "cancelled", "timed_out", "refused")


@dataclass(frozen=True, slots=True)
class Durations:
    """Things took so long: `counts[n]` of them took from 2**(n-1) up to 2**n nanoseconds, `counts[0]` none."""

    counts: tuple[int, ...] = ()
    total_s: float = 0.0

    def __add__(self, more: "Durations") -> "Durations":
        """Those of both."""
        pairs = zip_longest(self.counts, more.counts, fillvalue=0)
        return Durations(tuple(mine + its for mine, its in pairs), self.total_s + more.total_s)

    def __sub__(self, earlier: "Durations") -> "Durations":
        """Those that came after an earlier look at the same."""
        pairs = zip_longest(self.counts, earlier.counts, fillvalue=0)
        return Durations(tuple(mine - its for mine, its in pairs), self.total_s - earlier.total_s)

    @property
    def count(self) -> int:
        """Number of them."""
        return sum(self.counts)

    @property
    def mean_s(self) -> float:
        """Mean in seconds, 0 where there are none."""
        return self.total_s / count if (count := self.count) else 0.0

    def quantile_s(self, share: float) -> float:
        """The seconds that so great a share of them, 0 to 1, took at most; right within a factor of two, 0 where there
        are none."""
        wanted = share * self.count
        for bits, so_far in enumerate(accumulate(self.counts)):
            if so_far and so_far >= wanted:
                here = self.counts[bits]
                into = (wanted - so_far + here) / here if here else 1.0
                least = 2**bits / 2
                return (least + into * least) / 1e9 if bits else 0.0
        return 0.0


@dataclass(frozen=True, slots=True)
class Batches:
    """So many `runs` have been computed together with others that waited, with so many `rows`: `counts[n]` times with
    more than 2**(n-1) rows, and at most 2**n."""

    runs: int = 0
    rows: int = 0
    counts: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of times."""
        return sum(self.counts)

    @property
    def mean_rows(self) -> float:
        """Mean of the rows, 0 where there are none."""
        return self.rows / count if (count := self.count) else 0.0


@dataclass(frozen=True, slots=True)
class IdentityCounters:
    """The share of one identity in what a daemon has done since its start; `sessions`, `connections` and `held_bytes`
    are those of now.

    `identity` is empty for those that are no more counted by themselves, and for calls that belong to no session.
    `runs` that have ended are counted by how: see RUN_RESULTS. `run_s` and `compile_s` are
    seconds that runs were on the device, and that compiling, checking, restoring and exporting took, with what is still
    under way. `models` are those prepared, by the names of their Origin. `errors` that calls and runs got are counted
    by cause: the daemon's flag whose limit was reached, or else the name of the ReturnCode. Of runs that are done,
    `in_bytes` and `out_bytes` are their inputs and outputs, and they were `queued`, `copied` to and from the device,
    `computed`, and `served`, which is all of that together.
    """

    identity: str
    sessions: int = 0
    connections: int = 0
    held_bytes: int = 0
    opened_sessions: int = 0
    runs: Mapping[str, int] = field(default_factory=dict)
    run_s: float = 0.0
    models: Mapping[str, int] = field(default_factory=dict)
    compile_s: float = 0.0
    errors: Mapping[str, int] = field(default_factory=dict)
    in_bytes: int = 0
    out_bytes: int = 0
    queued: Durations = Durations()
    copied: Durations = Durations()
    computed: Durations = Durations()
    served: Durations = Durations()


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """A device has so much of everything, and so much of that is in use, by whomever: now, but for `busy_s`.

    `slots` are the runs that may be on the device at a time, `busy_s` the seconds that runs have been there since the
    daemon's start: its difference, divided by that of the uptime and by `slots`, is the share of it in use.
    `held_bytes` are those that clients hold, by kind; `run_bytes` those that runs have taken for what they make.
    `batches` are since the start.
    """

    slots: int = 0
    busy_s: float = 0.0
    running: int = 0
    queued: int = 0
    queued_limit: int = 0
    sessions: int = 0
    sessions_limit: int = 0
    held_bytes: Mapping[str, int] = field(default_factory=dict)
    held_limit_bytes: int = 0
    run_bytes: int = 0
    run_limit_bytes: int = 0
    batches: Batches = Batches()


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """All that a daemon has done in the `uptime_s` seconds since its start, for the identities that may be seen.

    `load` is None where the daemon is an earlier one, which doesn't tell it.
    """

    uptime_s: float
    identities: tuple[IdentityCounters, ...]
    load: DeviceLoad | None = None
