"""Flows that share the device: identities, the users of an identity, and the sessions of a user."""

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
    """Do nothing: the default of `QueuedRun.on_grant`."""


class PriorityClass:
    """Runs of one user with the same priority rank, and the time since which none of the waiting ones got a slot."""

    __slots__ = ("flows", "rank", "waits_since")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.flows: FairQueue[SessionFlow] = FairQueue()
        self.waits_since = 0.0


class IdentityFlow(Flow):
    """Runs of one identity, whose share of the device its users divide."""

    __slots__ = ("memory_waits", "users", "users_ahead", "users_by_name")

    def __init__(self) -> None:
        super().__init__()
        # Number of its runs that wait for memory.
        self.memory_waits = 0
        self.users: FairQueue[UserFlow] = FairQueue()
        # A user stays while a session's account refers to it, or while it is in `users_ahead`.
        self.users_by_name: WeakValueDictionary[str, UserFlow] = WeakValueDictionary()
        self.users_ahead: set[UserFlow] = set()

    def user(self, name: str) -> "UserFlow":
        """Return the user of that name, a new one if it is not known."""
        self.users_ahead = set(filter(self.users.is_ahead, self.users_ahead))
        known = self.users_by_name.get(name)
        if known is None:
            known = self.users_by_name[name] = UserFlow(self)
        return known


class UserFlow(Flow):
    """Runs of one user, which are ordered by their priorities."""

    __slots__ = ("classes", "identity")

    def __init__(self, identity: IdentityFlow) -> None:
        super().__init__()
        self.identity = identity
        self.classes = tuple(map(PriorityClass, range(Priority.HIGH.rank + 1)))

    def next_class(self, now: float, ageing_s: float) -> PriorityClass:
        waiting = [each for each in self.classes if each.flows]
        return max(waiting, key=lambda each: (each.rank + (now - each.waits_since) // ageing_s, now - each.waits_since))


class SessionFlow(Flow):
    """Runs of one session in one priority class, served in the order in which they came."""

    __slots__ = ("priority_class", "queued", "tally", "user")

    def __init__(self, user: UserFlow, priority_class: PriorityClass, tally: Tally) -> None:
        super().__init__()
        self.tally = tally
        self.user = user
        self.priority_class = priority_class
        self.queued: deque[QueuedRun] = deque()

    def spent_by_owners(self, now: float) -> tuple[float, float]:
        """Return the seconds that its identity and its user have spent."""
        return self.user.identity.spent_by(now), self.user.spent_by(now)


class Account:
    """Flows to which the scheduler charges the device time of a session, one for each priority."""

    __slots__ = ("flows",)

    def __init__(self, user: UserFlow, tally: Tally) -> None:
        # Indexed by priority rank.
        self.flows = tuple(SessionFlow(user, each, tally) for each in user.classes)


class QueuedRun:
    """Run that waits for a slot, and also for memory if `needs_bytes` is not 0; `is_long` is known only then."""

    __slots__ = ("cancellation", "flow", "is_granted", "is_long", "needs_bytes", "on_grant", "signals", "wake")

    def __init__(
        self, flow: SessionFlow, cancellation: Cancellation, needs_bytes: int = 0, is_long: bool = False
    ) -> None:
        self.flow = flow
        self.cancellation = cancellation
        self.needs_bytes = needs_bytes
        self.is_long = is_long
        self.is_granted = False
        # Called before `wake` when the run is granted a slot.
        self.on_grant: Callable[[], object] = _nothing
        # Gets an item to wake the waiting thread. (threading.Event, written in Python, takes 15 times longer.)
        self.signals: SimpleQueue[None] = SimpleQueue()
        # Wakes the thread that waits for the run; callers may replace it.
        self.wake: Callable[[], None] = partial(self.signals.put, None)


class Flows:
    """Fair queues of identities, users and sessions. Not thread-safe.

    Identities get equal shares of the device's time, and the users of an identity get equal shares of its time. Of a
    user's runs, those of the highest priority class go first; a class rises by one rank for every `ageing_s` without a
    slot. Within a class the user's sessions get equal shares. Within a session runs go in the order in which they came.
    """

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._identities: FairQueue[IdentityFlow] = FairQueue()
        # An identity stays while one of its users does.
        self._identities_by_name: WeakValueDictionary[str, IdentityFlow] = WeakValueDictionary()
        self._identities_ahead: set[IdentityFlow] = set()

    def account(self, identity: str, user: str, tally: Tally) -> Account:
        """Return a new account for a session of one of the identity's users."""
        self._identities_ahead = set(filter(self._identities.is_ahead, self._identities_ahead))
        known = self._identities_by_name.get(identity)
        if known is None:
            known = self._identities_by_name[identity] = IdentityFlow()
        return Account(known.user(user), tally)

    @property
    def most_of_identity(self) -> int:
        """Number of waiting runs of the identity that has the most."""
        return max((each.waiting + each.memory_waits for each in self._identities_by_name.values()), default=0)

    def __iter__(self) -> Iterator[QueuedRun]:
        """Iterate over the runs that wait for a slot."""
        for identity in self._identities:
            for user in identity.users:
                for priority_class in user.classes:
                    for flow in priority_class.flows:
                        yield from flow.queued

    def enqueue(self, flow: SessionFlow, now: float) -> None:
        """Count one more waiting run of the flow."""
        if not flow.priority_class.flows:
            flow.priority_class.waits_since = now
        flow.priority_class.flows.enqueue(flow, now)
        flow.user.identity.users.enqueue(flow.user, now)
        self._identities.enqueue(flow.user.identity, now)

    def dequeue(self, flow: SessionFlow, now: float) -> None:
        """Remove one waiting run from the flow's count. If the run was granted a slot, call `start` first."""
        flow.priority_class.flows.dequeue(flow, now)
        flow.user.identity.users.dequeue(flow.user, now)
        self._identities.dequeue(flow.user.identity, now)
        self._remember_spending(flow.user)

    def start(self, flow: SessionFlow, now: float) -> None:
        """Start counting the device time of one of the flow's runs."""
        flow.priority_class.flows.start(flow, now)
        flow.user.identity.users.start(flow.user, now)
        self._identities.start(flow.user.identity, now)

    def stop(self, flow: SessionFlow, now: float) -> None:
        """Stop counting the device time of one of the flow's runs."""
        flow.priority_class.flows.stop(flow, now)
        flow.user.identity.users.stop(flow.user, now)
        self._identities.stop(flow.user.identity, now)
        self._remember_spending(flow.user)

    def charge(self, flow: SessionFlow, seconds: float, now: float) -> None:
        """Add `seconds` to the time that a flow has spent, for its run in a batch that had another flow's slot.

        The caller charges the other flow the same `seconds`, negated.
        """
        flow.priority_class.flows.charge(flow, seconds, now)
        flow.user.identity.users.charge(flow.user, seconds, now)
        self._identities.charge(flow.user.identity, seconds, now)
        self._remember_spending(flow.user)

    def take_next(self, identity: IdentityFlow, now: float) -> QueuedRun:
        """Remove the identity's next run from its queue and return it."""
        chosen = identity.users.next(now).next_class(now, self._ageing_s)
        chosen.waits_since = now
        return chosen.flows.next(now).queued.popleft()

    def next_identity(self, now: float) -> IdentityFlow | None:
        """Return the identity whose run starts next, or None. Runs that wait for memory don't count here."""
        return self._identities.next(now) if self._identities else None

    def _remember_spending(self, user: UserFlow) -> None:
        """Keep the flows of an idle user and identity that have spent more than new flows start with.

        Otherwise a client could return as a new user, with less spent.
        """
        identity = user.identity
        if not (user.running or user.waiting) and identity.users.is_ahead(user):
            identity.users_ahead.add(user)
        if not (identity.running or identity.waiting) and self._identities.is_ahead(identity):
            self._identities_ahead.add(identity)
