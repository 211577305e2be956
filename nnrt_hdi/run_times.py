"""Times of a run, part by part."""

from typing import NamedTuple

TRACES_FEATURE = "traces"
"""In Welcome.features: the daemon makes the spans of its part of runs itself."""


class RunTimes(NamedTuple):
    """Nanoseconds of the parts of a run, in their order. They add up to the time that the caller waited."""

    # The client checks the inputs, and the run waits for a link to the daemon.
    waited_ns: int
    # The client makes the frame.
    packed_ns: int
    # The request travels to the daemon.
    outbound_ns: int
    # The daemon reads the request, makes the reply, and does what belongs to no other part.
    handled_ns: int
    # The run waits in the queue of the device.
    queued_ns: int
    # The daemon checks inputs, and copies those that the device doesn't read in place.
    copied_in_ns: int
    # The device computes.
    computed_ns: int
    # The daemon puts outputs where they belong.
    copied_out_ns: int
    # The reply travels back.
    inbound_ns: int
    # The client makes outputs from the reply.
    unpacked_ns: int
    # The waiting thread wakes; 0 if none waited.
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
        """Return the share of each part, 0 to 1, by its name without the unit."""
        total_ns = self.total_ns or 1
        return {name: part / total_ns for name, part in zip(PARTS, self, strict=True)}


# Names of the parts, without the unit.
PARTS = tuple(name.removesuffix("_ns") for name in RunTimes._fields)
# The parts within the daemon.
IN_DAEMON = slice(PARTS.index("handled"), PARTS.index("inbound"))
