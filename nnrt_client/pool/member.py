"""Members of a pool: the state of its devices."""

from dataclasses import dataclass
from enum import Enum


class MemberState(Enum):
    """State of a device in a pool."""

    # The pool connects to it, or loads the model there.
    JOINING = "joining"
    READY = "ready"
    # It takes work, but there are enough replicas, or it refuses the model.
    SPARE = "spare"
    # It takes no new work and finishes what it has.
    DRAINING = "draining"
    # It was slow or failed runs, and gets none for a while.
    EJECTED = "ejected"
    # No daemon there takes work, or the address is no longer listed.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Member:
    """Device of a pool as it is now, with all models of the pool together."""

    address: str
    # Empty before the daemon has answered.
    name: str
    state: MemberState
    # Why it has no replica that gets runs; empty if it has one or needs none.
    why: str
    replicas: int
    # Runs of this pool there: under way, ended, failed by the device.
    outstanding: int
    runs: int
    failures: int
    # Average seconds of recent runs, over all models; None before the first run.
    latency_s: float | None
    # Seconds until an ejected device is tried again; below 0 if the trial waits for a run to copy.
    ejected_s: float = 0.0
