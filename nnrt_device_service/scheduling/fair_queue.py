"""Even shares of the device's time among those who want it, by the time they really take."""

from collections.abc import Iterator
from typing import Generic, TypeVar


class Flow:
    """One of those who share: how many of its runs wait, how many are on the device, and what it has spent there.

    Seconds `spent` lack, for each run on the device, the moment it began: `spent_by` is right at any time.
    """

    __slots__ = ("__weakref__", "last_start", "running", "spent", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.running = 0
        self.spent = 0.0
        self.last_start = 0  # Which of all starts was its last.

    def spent_by(self, now: float) -> float:
        """Seconds that its runs have spent on the device, those that are there included."""
        return self.spent + self.running * now


# Of the clock, where 1 is the pace of an even share. With that, a client that has one run at a time would pay for the
# moments in which it reads the result and sends the next; the less it is, the more can newcomers take from the others.
_PACE = 0.5

FlowT = TypeVar("FlowT", bound=Flow)


class FairQueue(Generic[FlowT]):
    """Flows that wait, of which the one that has spent least goes next. Not safe for threads.

    That is start-time fair queueing (Goyal, Vin, Cheng 1996). A flow that comes, or had nothing waiting when others
    were served, has spent at least what the clock says: nobody saves up by idling. The clock never stands behind who is
    served, and goes on by itself, slower than an even share grows: it overtakes what anybody has spent, so that not
    even an endless row of newcomers holds up a flow that waits.
    """

    __slots__ = ("_active", "_clock", "_looked_at", "_running", "_starts", "_waiting")

    def __init__(self) -> None:
        self._clock = 0.0
        self._looked_at = 0.0
        self._active = 0  # Flows with a run that waits or is on the device.
        self._running = 0
        self._starts = 0
        self._waiting: dict[FlowT, None] = {}  # A set in the order in which they began to wait.

    def __bool__(self) -> bool:
        """True while anybody waits."""
        return bool(self._waiting)

    def __iter__(self) -> Iterator[FlowT]:
        """The flows that wait."""
        return iter(self._waiting)

    def next(self, now: float) -> FlowT:
        """Find the flow whose run starts next, of those with one that waits."""
        return min(self._waiting, key=lambda flow: flow.spent_by(now))

    def is_ahead(self, flow: FlowT) -> bool:
        """Tell whether a flow that is idle has spent more than it would begin with if it was new."""
        return flow.spent > self._clock

    def wait(self, flow: FlowT, now: float) -> None:
        """A run of the flow begins to wait."""
        self._advance(now)
        self._join(flow, now)
        flow.waiting += 1
        self._waiting[flow] = None

    def leave(self, flow: FlowT, now: float) -> None:
        """A run of the flow waits no more; if it was granted a slot, after `start`."""
        self._advance(now)
        flow.waiting -= 1
        if not flow.waiting:
            del self._waiting[flow]
            if not flow.running:
                self._active -= 1

    def start(self, flow: FlowT, now: float) -> None:
        """A run of the flow starts."""
        self._advance(now)
        self._join(flow, now)
        spent = flow.spent_by(now)
        if spent > self._clock:
            self._clock = spent
        flow.spent -= now
        flow.running += 1
        self._running += 1
        self._starts += 1
        flow.last_start = self._starts

    def stop(self, flow: FlowT, now: float) -> None:
        """A run of the flow leaves the device."""
        self._advance(now)
        flow.spent += now
        flow.running -= 1
        self._running -= 1
        if not (flow.running or flow.waiting):
            self._active -= 1

    def charge(self, flow: FlowT, seconds: float, now: float) -> None:
        """Count time of a run that another flow was on the device with; below 0 what that one was there for others."""
        self._advance(now)
        if not (flow.running or flow.waiting):
            flow.spent = max(flow.spent, self._clock)
        flow.spent += seconds

    def _advance(self, now: float) -> None:
        if self._running:
            self._clock += _PACE * (now - self._looked_at) * self._running / self._active
        self._looked_at = now

    def _join(self, flow: FlowT, now: float) -> None:
        if flow.waiting or (flow.running and flow.last_start == self._starts):
            return
        if not flow.running:
            self._active += 1
        flow.spent = max(flow.spent, self._clock - flow.running * now)
