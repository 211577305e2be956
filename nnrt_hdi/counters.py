"""Counters of a daemon."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest

# In Welcome.features: the daemon returns its counters.
FEATURE = "counters"
# Most entries of Durations.counts, because nanoseconds are 64-bit numbers.
MAX_DURATION_COUNTS = 65
# How a run may end.
RUN_RESULTS = ("done", "failed", "cancelled", "timed_out", "refused")


@dataclass(frozen=True, slots=True)
class Durations:
    """Histogram of durations: `counts[n]` runs took from 2**(n-1) up to 2**n nanoseconds, `counts[0]` took 0."""

    counts: tuple[int, ...] = ()
    total_s: float = 0.0

    def __add__(self, more: "Durations") -> "Durations":
        """Return the sum of both histograms."""
        pairs = zip_longest(self.counts, more.counts, fillvalue=0)
        return Durations(tuple(mine + its for mine, its in pairs), self.total_s + more.total_s)

    def __sub__(self, earlier: "Durations") -> "Durations":
        """Return the durations since an earlier snapshot."""
        pairs = zip_longest(self.counts, earlier.counts, fillvalue=0)
        return Durations(tuple(mine - its for mine, its in pairs), self.total_s - earlier.total_s)

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    @property
    def mean_s(self) -> float:
        """Mean in seconds; 0 without any."""
        return self.total_s / count if (count := self.count) else 0.0

    def quantile_s(self, share: float) -> float:
        """Return a quantile in seconds, right within a factor of two.

        Args:
            share: 0 to 1; 0.99 for p99.

        Returns:
            Seconds; 0 without any durations.
        """
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
    """Histogram of batches by their number of rows, with the total `runs` and `rows`.

    `counts[n]` batches had more than 2**(n-1) and at most 2**n rows.
    """

    runs: int = 0
    rows: int = 0
    counts: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of batches."""
        return sum(self.counts)

    @property
    def mean_rows(self) -> float:
        """Mean rows of a batch; 0 without any."""
        return self.rows / count if (count := self.count) else 0.0


@dataclass(frozen=True, slots=True)
class Residency:
    """Models on the device, their `bytes` and the limit of these (0: none).

    `evicted` models have left the device for others since the daemon's start, `restored` ones came back, and `waits`
    runs waited for that.
    """

    models: int = 0
    bytes: int = 0
    limit_bytes: int = 0
    evicted: int = 0
    restored: int = 0
    waits: int = 0


@dataclass(frozen=True, slots=True)
class IdentityCounters:
    """Counters of one identity since the daemon's start; `sessions`, `connections` and `held_bytes` are present values.

    `identity` is empty for the sum of identities that are no longer counted separately, and for calls without a
    session. `runs` counts ended runs by result (RUN_RESULTS). `run_s` and `compile_s` are seconds of runs on the
    device, and of compiling, checking, restoring and exporting, including what is under way. `models` counts prepared
    models by Origin. `errors` counts errors by cause: the daemon's flag whose limit was reached, else the ReturnCode.
    For runs that are done, `in_bytes` and `out_bytes` are sizes of inputs and outputs; `queued`, `copied` and
    `computed` are durations of these parts, `served` of all parts together.
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
    """Load of a device: limits, and what all clients use of them now.

    `slots` is the number of runs on the device at a time; `busy_s` are seconds of runs there since the daemon's start:
    its increase, divided by the increase of the uptime and by `slots`, is the utilization. `held_bytes` are bytes that
    clients hold, by kind; `run_bytes` are reserved for what runs make. `batches` count since the start.
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
    residency: Residency = Residency()


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """Counters of a daemon for the `uptime_s` seconds since its start, for the identities that the client may see.

    `load` is None if the daemon is an older version that doesn't return it.
    """

    uptime_s: float
    identities: tuple[IdentityCounters, ...]
    load: DeviceLoad | None = None
