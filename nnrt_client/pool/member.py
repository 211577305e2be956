"""What a pool says of its devices."""

from dataclasses import dataclass
from enum import Enum


class MemberState(Enum):
    """State of a device in a pool."""

    # It is being reached, or gets the model.
    JOINING = "joining"
    READY = "ready"
    # It takes work, but there are as many replicas as are wanted, or it doesn't take the model.
    SPARE = "spare"
    # It takes no new work, and ends what it has.
    DRAINING = "draining"
    # It was slow, or failed runs, and gets none for a while.
    EJECTED = "ejected"
    # No daemon answers there that takes work, or its address is gone.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Member:
    """A device of a pool as it is now, with all models of the pool together."""

    address: str
    # Empty before it has answered.
    name: str
    state: MemberState
    # Why it has no replica that gets runs; empty where it has, or needs none.
    why: str
    replicas: int
    # Runs of this pool that are under way there, that have ended, and that the device has failed.
    outstanding: int
    runs: int
    failures: int
    # Of late runs, averaged over the models by their runs; None before the first.
    latency_s: float | None
    # Seconds until one that is ejected is tried again; less than 0 where it waits for a run to be tried with.
    ejected_s: float = 0.0
