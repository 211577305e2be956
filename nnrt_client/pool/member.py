"""Members of a pool: its devices, with their states and counters."""

from dataclasses import dataclass
from enum import Enum


class MemberState(Enum):
    """State of a device in a pool."""

    # The pool connects to the daemon, or loads the model there.
    JOINING = "joining"
    READY = "ready"
    # The device takes work, but there are enough replicas, or it refuses the model.
    SPARE = "spare"
    # The daemon takes no new work and finishes its runs.
    DRAINING = "draining"
    # The device was slow or failed runs, and gets none for a while.
    EJECTED = "ejected"
    # No daemon there takes work, or the address is no longer listed.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Member:
    """Snapshot of a device of a pool. Its counters are sums over all models of the pool."""

    address: str
    # Empty before the daemon has answered.
    name: str
    state: MemberState
    # Why it has no replica that gets runs; empty if it has one or needs none.
    why: str
    replicas: int
    # Numbers of this pool's runs on the device: under way, ended (not counting `failures`), failed by the device.
    outstanding: int
    runs: int
    failures: int
    # Average seconds of recent runs, over all models; None before the first run.
    latency_s: float | None
    # Seconds until an ejected device is tried again; negative while the trial waits for a run to copy.
    ejected_s: float = 0.0
