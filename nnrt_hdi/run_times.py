"""The flight recorder of a run."""

from typing import NamedTuple

TRACES_FEATURE = "traces"
"""Of Welcome.features: the daemon makes spans of its part of runs itself."""


class RunTimes(NamedTuple):
    """The time that a run took, by what it went into: parts in the order in which they follow each other, in
    nanoseconds. They add up to all that the caller waited."""

    # Its inputs were checked, and it waited for a stream on which to go.
    waited_ns: int
    # The client made what is sent of it.
    packed_ns: int
    # It was on its way to the daemon.
    outbound_ns: int
    # The daemon took the request apart and made the reply: whatever of its time is in no other part.
    handled_ns: int
    # Waited in the queue of the device.
    queued_ns: int
    # The daemon checked its inputs, and copied those that the device doesn't read where they are.
    copied_in_ns: int
    # Computed.
    computed_ns: int
    # The daemon put its outputs where they go.
    copied_out_ns: int
    # The reply was on its way back.
    inbound_ns: int
    # The client took the outputs out of the reply.
    unpacked_ns: int
    # Until the thread that waited for it went on. 0 where none did.
    woken_ns: int

    @property
    def total_ns(self) -> int:
        """Sum of all parts."""
        return sum(self)

    @property
    def slowest(self) -> str:
        """Name of the part that took most, such as `computed`."""
        shares = self.shares()
        return max(shares, key=shares.__getitem__)

    def shares(self) -> dict[str, float]:
        """Give the share of each part in the whole, by its name without the unit; all are 0 where nothing took any
        time."""
        total_ns = self.total_ns or 1
        return {name: part / total_ns for name, part in zip(PARTS, self, strict=True)}


# Names of the parts, without the unit.
PARTS = tuple(name.removesuffix("_ns") for name in RunTimes._fields)
# Those that are spent in the daemon.
IN_DAEMON = slice(PARTS.index("handled"), PARTS.index("inbound"))
