"""Runs that wait for a slot on the device, or for memory."""

from collections.abc import Iterator

from nnrt_device_service.scheduling.flows import Flows, QueuedRun, SessionFlow
from nnrt_device_service.scheduling.run_memory import RunMemory
from nnrt_device_service.settings import LimitReached
from nnrt_hdi.backend import Cancellation


class WaitingRuns:
    """Queue of a scheduler: at most `most` runs, and at most `most_of_identity` of one identity. Not thread-safe."""

    def __init__(self, flows: Flows, most: int, most_of_identity: int) -> None:
        self.count = 0
        # Flows whose runs go first, and for which the limits don't count.
        self.privileged: tuple[SessionFlow, ...] = ()
        # Runs that wait for memory, in the order in which they came.
        self.memory_waits: list[QueuedRun] = []
        self._flows = flows
        self._most = most
        self._most_of_identity = most_of_identity

    def __iter__(self) -> Iterator[QueuedRun]:
        yield from self._flows
        yield from self.memory_waits

    @property
    def full_ratio(self) -> float:
        """Fraction of the queue in use: of the whole queue, or of one identity's share if that is more."""
        if not self._most:
            return 0.0
        return max(self.count / self._most, self._flows.most_of_identity / self._most_of_identity)

    def require_room(self, flow: SessionFlow) -> None:
        """Raise OutOfMemory if the queue, or the share of the flow's identity, is full."""
        if self.count >= self._most:
            raise LimitReached(
                f"{self.count} runs wait for the device, its limit; try again later, or raise the daemon's"
                " --queued-runs",
                "--queued-runs",
            )
        if flow.user.identity.waiting + flow.user.identity.memory_waits >= self._most_of_identity:
            raise LimitReached(
                f"{self._most_of_identity} runs of this identity wait for the device, its limit; try again later, or"
                " raise the daemon's --identity-share or --queued-runs",
                "--identity-share",
            )

    def add(self, flow: SessionFlow, cancellation: Cancellation, now: float) -> QueuedRun:
        """Add a run that waits for a slot."""
        queued = QueuedRun(flow, cancellation)
        self.count += 1
        self._flows.enqueue(flow, now)
        flow.queued.append(queued)
        return queued

    def add_for_memory(
        self, flow: SessionFlow, cancellation: Cancellation, size_bytes: int, is_long: bool
    ) -> QueuedRun:
        """Add a run that waits for a slot and for memory, at least one byte."""
        queued = QueuedRun(flow, cancellation, max(size_bytes, 1), is_long)
        self.memory_waits.append(queued)
        flow.user.identity.memory_waits += 1
        self.count += 1
        return queued

    def remove(self, queued: QueuedRun, now: float) -> None:
        """Remove a run that was not granted a slot."""
        if not queued.needs_bytes:
            queued.flow.queued.remove(queued)
        self.leave(queued, now)

    def leave(self, queued: QueuedRun, now: float) -> None:
        """Stop counting a run that `next` has returned, or that was removed."""
        self.count -= 1
        if queued.needs_bytes:
            self.memory_waits.remove(queued)
            queued.flow.user.identity.memory_waits -= 1
        else:
            self._flows.dequeue(queued.flow, now)

    def next_for(self, memory: RunMemory) -> list[QueuedRun]:
        """Return the runs that wait for nothing but memory and any slot: no other run takes memory before them."""
        return [each for each in self.memory_waits if memory.has_slot(each.is_long)]

    def next(self, memory: RunMemory, now: float) -> QueuedRun | None:
        """Return the run that starts next, removed from its session's queue, or None if each run lacks memory."""
        for flow in self.privileged:
            if flow.queued:
                return flow.queued.popleft()
        candidate = min(self.next_for(memory), key=lambda each: each.flow.spent_by_owners(now), default=None)
        if candidate is not None and not memory.has_left(candidate.needs_bytes):
            candidate = None
        identity = self._flows.next_identity(now)
        if identity is None or (candidate and candidate.flow.user.identity.spent_by(now) <= identity.spent_by(now)):
            return candidate
        return self._flows.take_next(identity, now)
