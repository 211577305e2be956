"""Whose runs wait for the device, and whose are on it: identities, their users, and the sessions of these."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from weakref import WeakValueDictionary

from nnrt_device_service.access.counters import Tally
from nnrt_device_service.scheduling.fair_queue import FairQueue, Flow
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import Priority


def _nothing() -> None:
    """Nobody else is to know of a grant."""


class PriorityClass:
    """The runs of one user that have the same rank, and since when none of those waiting got a slot."""

    __slots__ = ("flows", "rank", "since")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.flows: FairQueue[SessionFlow] = FairQueue()
        self.since = 0.0


class IdentityFlow(Flow):
    """The runs of one identity, which its users share."""

    __slots__ = ("ahead", "lacking", "named", "users")

    def __init__(self) -> None:
        super().__init__()
        # How many of its runs wait for memory.
        self.lacking = 0
        self.users: FairQueue[UserFlow] = FairQueue()
        # A user lives as long as a session has an account with it, or has spent more than its share.
        self.named: WeakValueDictionary[str, UserFlow] = WeakValueDictionary()
        self.ahead: set[UserFlow] = set()

    def user(self, name: str) -> "UserFlow":
        """The user of that name."""
        self.ahead = set(filter(self.users.is_ahead, self.ahead))
        known = self.named.get(name)
        if known is None:
            known = self.named[name] = UserFlow(self)
        return known


class UserFlow(Flow):
    """The runs of one user, which priorities order among each other."""

    __slots__ = ("classes", "identity")

    def __init__(self, identity: IdentityFlow) -> None:
        super().__init__()
        self.identity = identity
        self.classes = tuple(map(PriorityClass, range(Priority.HIGH.rank + 1)))

    def next_class(self, now: float, ageing_s: float) -> PriorityClass:
        waiting = [each for each in self.classes if each.flows]
        return max(waiting, key=lambda each: (each.rank + (now - each.since) // ageing_s, now - each.since))


class SessionFlow(Flow):
    """The runs of one session in one class, first come first served."""

    __slots__ = ("priority_class", "queued", "tally", "user")

    def __init__(self, user: UserFlow, priority_class: PriorityClass, tally: Tally) -> None:
        super().__init__()
        self.tally = tally
        self.user = user
        self.priority_class = priority_class
        self.queued: deque[QueuedRun] = deque()

    def spent_in_all(self, now: float) -> tuple[float, float]:
        """What its identity has spent, and its user."""
        return self.user.identity.spent_by(now), self.user.spent_by(now)


class Account:
    """On whom the device time of a session counts."""

    __slots__ = ("flows",)

    def __init__(self, user: UserFlow, tally: Tally) -> None:
        # By the ranks of priorities.
        self.flows = tuple(SessionFlow(user, each, tally) for each in user.classes)


class QueuedRun:
    """A run that waits for a slot, and for memory too if it lacks bytes."""

    __slots__ = ("cancellation", "flow", "is_granted", "lacks_bytes", "on_grant", "signals", "wake")

    def __init__(self, flow: SessionFlow, cancellation: Cancellation, lacks_bytes: int = 0) -> None:
        self.flow = flow
        self.cancellation = cancellation
        self.lacks_bytes = lacks_bytes
        self.is_granted = False
        # Called when it is granted a slot, before `wake`.
        self.on_grant: Callable[[], object] = _nothing
        # Has something when the thread that waits is to go on; an event, which is Python, costs fifteen times as much.
        self.signals: SimpleQueue[None] = SimpleQueue()
        # Wakes that thread, or another one that waits for it.
        self.wake: Callable[[], None] = partial(self.signals.put, None)


class Flows:
    """Keeps the shares of identities, users and sessions even. Not safe for threads.

    Identities get even shares of the device's time, and of that of an identity its users. Of a user's runs those of the
    highest class go first, where a class rises by one for every `ageing_s` that it waits for a slot. Within a class the
    user's sessions get even shares, and within a session who came first is first.
    """

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._identities: FairQueue[IdentityFlow] = FairQueue()
        # They live as their users do.
        self._named: WeakValueDictionary[str, IdentityFlow] = WeakValueDictionary()
        self._ahead: set[IdentityFlow] = set()

    def account(self, identity: str, user: str, tally: Tally) -> Account:
        """Open an account for a session of that user, of those that the identity has."""
        self._ahead = set(filter(self._identities.is_ahead, self._ahead))
        known = self._named.get(identity)
        if known is None:
            known = self._named[identity] = IdentityFlow()
        return Account(known.user(user), tally)

    @property
    def most_of_identity(self) -> int:
        """The runs of that identity of which most wait."""
        return max((each.waiting + each.lacking for each in self._named.values()), default=0)

    def __iter__(self) -> Iterator[QueuedRun]:
        """The runs that wait for a slot."""
        for identity in self._identities:
            for user in identity.users:
                for priority_class in user.classes:
                    for flow in priority_class.flows:
                        yield from flow.queued

    def wait(self, flow: SessionFlow, now: float) -> None:
        """A run of the flow begins to wait."""
        if not flow.priority_class.flows:
            flow.priority_class.since = now
        flow.priority_class.flows.wait(flow, now)
        flow.user.identity.users.wait(flow.user, now)
        self._identities.wait(flow.user.identity, now)

    def leave(self, flow: SessionFlow, now: float) -> None:
        """A run of the flow waits no more; if it was granted a slot, after `start`."""
        flow.priority_class.flows.leave(flow, now)
        flow.user.identity.users.leave(flow.user, now)
        self._identities.leave(flow.user.identity, now)
        self._remember(flow.user)

    def start(self, flow: SessionFlow, now: float) -> None:
        """A run of the flow gets onto the device."""
        flow.priority_class.flows.start(flow, now)
        flow.user.identity.users.start(flow.user, now)
        self._identities.start(flow.user.identity, now)

    def stop(self, flow: SessionFlow, now: float) -> None:
        """A run of the flow leaves the device."""
        flow.priority_class.flows.stop(flow, now)
        flow.user.identity.users.stop(flow.user, now)
        self._identities.stop(flow.user.identity, now)
        self._remember(flow.user)

    def charge(self, flow: SessionFlow, seconds: float, now: float) -> None:
        """Count time that a run of another flow was on the device for one of this; below 0 what this was there for
        others."""
        flow.priority_class.flows.charge(flow, seconds, now)
        flow.user.identity.users.charge(flow.user, seconds, now)
        self._identities.charge(flow.user.identity, seconds, now)
        self._remember(flow.user)

    def next_of(self, identity: IdentityFlow, now: float) -> QueuedRun:
        """Take the run of an identity that starts next."""
        chosen = identity.users.next(now).next_class(now, self._ageing_s)
        chosen.since = now
        return chosen.flows.next(now).queued.popleft()

    def next_identity(self, now: float) -> IdentityFlow | None:
        """Find the identity whose run starts next, of those that wait for slots alone."""
        return self._identities.next(now) if self._identities else None

    def _remember(self, user: UserFlow) -> None:
        """Keep a user, and an identity, that becomes idle from coming back as a new one with less spent."""
        identity = user.identity
        if not (user.running or user.waiting) and identity.users.is_ahead(user):
            identity.ahead.add(user)
        if not (identity.running or identity.waiting) and self._identities.is_ahead(identity):
            self._ahead.add(identity)
