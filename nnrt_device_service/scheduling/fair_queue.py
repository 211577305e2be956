"""Fair queue: equal shares of the device's time, measured by the time that runs really take."""

from collections.abc import Iterator
from typing import Generic, TypeVar


class Flow:
    """Sharer of the device's time: the numbers of its waiting and running runs, and the seconds it has spent.

    While a run is on the device, `spent` is reduced by the time at which the run began, so only `spent_by` gives the
    seconds spent at a given time.
    """

    __slots__ = ("__weakref__", "last_start", "running", "spent", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.running = 0
        self.spent = 0.0
        self.last_start = 0  # Number of its latest start, in the queue's count of all starts.

    def spent_by(self, now: float) -> float:
        """Return the seconds that its runs have spent on the device until `now`, running ones included."""
        return self.spent + self.running * now


# Speed of the clock, as a fraction of the speed at which an equal share grows. At 1, a client with one run at a time
# would pay for the moments in which it reads a result and sends the next run. The lower the value, the more device time
# newcomers can take from the others.
_PACE = 0.5

FlowT = TypeVar("FlowT", bound=Flow)


class FairQueue(Generic[FlowT]):
    """Queue of flows with waiting runs; the flow that has spent least is next. Not thread-safe.

    This is start-time fair queueing (Goyal, Vin, Cheng 1996). A clock counts in seconds spent. A flow that is new, or
    had no run waiting while others were served, is set to at least the clock's value, so an idle flow gains no credit.
    The clock is never behind the flow that starts a run. It also advances by itself, slower than an equal share grows,
    and so overtakes every flow in the end: even an endless series of new flows can't keep a waiting flow from its turn.
    """

    __slots__ = ("_active", "_advanced_at", "_clock", "_running", "_starts", "_waiting")

    def __init__(self) -> None:
        self._clock = 0.0
        self._advanced_at = 0.0
        self._active = 0  # Number of flows with a run that waits or is on the device.
        self._running = 0
        self._starts = 0
        self._waiting: dict[FlowT, None] = {}  # Used as a set, in the order in which flows began to wait.

    def __bool__(self) -> bool:
        """Return whether any flow waits."""
        return bool(self._waiting)

    def __iter__(self) -> Iterator[FlowT]:
        """Iterate over the flows that wait."""
        return iter(self._waiting)

    def next(self, now: float) -> FlowT:
        """Return the waiting flow whose run starts next."""
        return min(self._waiting, key=lambda flow: flow.spent_by(now))

    def is_ahead(self, flow: FlowT) -> bool:
        """Return whether an idle flow has spent more than a new flow would start with."""
        return flow.spent > self._clock

    def enqueue(self, flow: FlowT, now: float) -> None:
        """Count one more waiting run of the flow."""
        self._advance(now)
        self._catch_up(flow, now)
        flow.waiting += 1
        self._waiting[flow] = None

    def dequeue(self, flow: FlowT, now: float) -> None:
        """Remove one waiting run from the flow's count. If the run was granted a slot, call `start` first."""
        self._advance(now)
        flow.waiting -= 1
        if not flow.waiting:
            del self._waiting[flow]
            if not flow.running:
                self._active -= 1

    def start(self, flow: FlowT, now: float) -> None:
        """Start counting the device time of one of the flow's runs."""
        self._advance(now)
        self._catch_up(flow, now)
        spent = flow.spent_by(now)
        if spent > self._clock:
            self._clock = spent
        flow.spent -= now
        flow.running += 1
        self._running += 1
        self._starts += 1
        flow.last_start = self._starts

    def stop(self, flow: FlowT, now: float) -> None:
        """Stop counting the device time of one of the flow's runs."""
        self._advance(now)
        flow.spent += now
        flow.running -= 1
        self._running -= 1
        if not (flow.running or flow.waiting):
            self._active -= 1

    def charge(self, flow: FlowT, seconds: float, now: float) -> None:
        """Add `seconds` to the time that a flow has spent, for its run in a batch that had another flow's slot.

        The caller charges the other flow the same `seconds`, negated.
        """
        self._advance(now)
        if not (flow.running or flow.waiting):
            flow.spent = max(flow.spent, self._clock)
        flow.spent += seconds

    def _advance(self, now: float) -> None:
        if self._running:
            self._clock += _PACE * (now - self._advanced_at) * self._running / self._active
        self._advanced_at = now

    def _catch_up(self, flow: FlowT, now: float) -> None:
        if flow.waiting or (flow.running and flow.last_start == self._starts):
            return
        if not flow.running:
            self._active += 1
        flow.spent = max(flow.spent, self._clock - flow.running * now)
