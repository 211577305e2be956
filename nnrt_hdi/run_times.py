"""The flight recorder of a run."""

from typing import NamedTuple


class RunTimes(NamedTuple):
    """The time that a run took in its daemon, by what it went into, in nanoseconds."""

    # Waited in the queue of the device.
    queued_ns: int
    # Checked its inputs, and copied those that the device doesn't read where they are.
    copied_in_ns: int
    # Computed.
    computed_ns: int
    # Put its outputs where they go.
    copied_out_ns: int
