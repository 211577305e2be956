"""The flight recorder of a run."""

from typing import NamedTuple


class RunTimes(NamedTuple):
    """Where the time of a run went in its daemon, in nanoseconds."""

    # Waited for its turn on the device.
    queued_ns: int
    # Checked its inputs, and copied those that the device doesn't read where they are.
    copied_in_ns: int
    # Computed.
    computed_ns: int
    # Put its outputs where they go.
    copied_out_ns: int
