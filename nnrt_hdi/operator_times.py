"""Times of the operators of a run."""

from typing import NamedTuple


class OperatorTime(NamedTuple):
    """Time of one operator of a run."""

    # Name of the node, if it has one.
    name: str
    # What it computes, as the device names it: "CONV2D_FUSION" or "Conv".
    operator: str
    # Nanoseconds: start, since the device began the run, and duration.
    began_ns: int
    took_ns: int


class Besides(OperatorTime):
    """Time of work that the device did only to profile, such as opening a session that records."""

    __slots__ = ()
