"""What a daemon counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# In Welcome.features: the daemon tells what it counts.
FEATURE = "counters"


@dataclass(frozen=True, slots=True)
class IdentityCounters:
    """The share of one identity in what a daemon has done since its start; `sessions`, `connections` and `held_bytes`
    are those of now.

    `identity` is empty for those that are no more counted by themselves, and for calls that belong to no session.
    `runs` that have ended are counted by how: done, failed, cancelled, timed_out, refused. `run_s` and `compile_s` are
    seconds that runs were on the device, and that compiling, checking, restoring and exporting took. `models` are those
    prepared, by the names of their Origin. `errors` that calls and runs got are counted by cause: the daemon's flag
    whose limit was reached, or else the name of the ReturnCode.
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


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """All that a daemon has done in the `uptime_s` seconds since its start, for the identities that may be seen."""

    uptime_s: float
    identities: tuple[IdentityCounters, ...]
