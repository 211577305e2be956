"""What the operators of a run took."""

from typing import NamedTuple


class OperatorTime(NamedTuple):
    """The time that one operator of a run took."""

    # The node's, as far as it has one.
    name: str
    # What it computes, in the words of the device: such as "CONV2D_FUSION", or "Conv".
    operator: str
    # Since the device began to compute the run, and from then on, in nanoseconds.
    began_ns: int
    took_ns: int


class Besides(OperatorTime):
    """The time that the device took to be able to tell, and no operator: to open a session that records, say."""

    __slots__ = ()
