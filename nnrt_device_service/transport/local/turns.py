"""Whose turn it is among connections that are ready."""

import os
import select
import time
import weakref
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import chain, count, islice, zip_longest

from nnrt_device_service.transport.local.served import Event, Served

# Clients whose requests find warm caches: so many for each processor that they share.
WARM = 4 * (os.cpu_count() or 1)
# How many times each is served while no others are looked at, how long that lasts at most, and how long nothing may
# come of them, in ms.
_TURNS = 32
_COHORT_S = 0.02
_PAUSE_MS = 1


class _Cohort:
    """Connections that are served for a while before any others are looked at.

    Where many clients take turns one by one, each finds the processors' caches cold, and takes two or three times as
    long for what it does. (Larus and Parkes, Using Cohort Scheduling to Enhance Server Performance, 2002.)
    """

    def __init__(self, sessions: dict[int, Hashable]) -> None:
        """`sessions` of the connections, by their descriptors."""
        self.sessions = sessions
        self._until = time.monotonic() + _COHORT_S
        # How many times each is still served.
        self._left = dict.fromkeys(sessions, _TURNS)
        self._few = len(self._left) // 4
        self._poll = select.poll()
        for fd in self._left:
            self._poll.register(fd, select.POLLIN)

    def ready(self) -> Sequence[Event]:
        """Wait for some to be ready; none where all but few have had their turns, or nothing comes of them."""
        is_over = len(self._left) <= self._few or time.monotonic() >= self._until
        return () if is_over else self._poll.poll(_PAUSE_MS)

    def count(self, events: Sequence[Event]) -> None:
        """These have their turns."""
        for fd, _ in events:
            left = self._left.get(fd, 0)
            if left > 1:
                self._left[fd] = left - 1
            elif left:
                del self._left[fd]
                self._poll.unregister(fd)

    def had(self, fd: int) -> int:
        """Give how many times it has been served."""
        return _TURNS - self._left.get(fd, 0)


class Turns:
    """Chooses among connections that are ready: one request of each user at a time, and of many sessions few for a
    while."""

    def __init__(self, connections: Mapping[int, Served], away: Collection[Served]) -> None:
        """Of connections, by their descriptors, some are away, and not served now."""
        self._connections = connections
        self._away = away
        # Those that are served while others wait.
        self.cohort: _Cohort | None = None
        # Whether some were answered together of late: the more are ready then, the better.
        self.has_joined = False
        # When sessions were last chosen among those of their users, counted in choices.
        self._last_chosen: weakref.WeakKeyDictionary[Hashable, int] = weakref.WeakKeyDictionary()
        self._choices = count(1)
        # How many turns sessions have had in cohorts. Whoever comes now counts as having had the least.
        self._turns: weakref.WeakKeyDictionary[Hashable, int] = weakref.WeakKeyDictionary()
        self._least_turns = 0

    def next_of(self, cohort: _Cohort, epoll: select.epoll) -> Sequence[Event]:
        """Those of a cohort that are ready, or of all where it has had its turn."""
        if not self.has_joined and (ready := cohort.ready()):
            return ready
        self._end(cohort)
        return epoll.poll()

    def _end(self, cohort: _Cohort) -> None:
        """Have all be looked at again, and keep no session of the cohort alive."""
        self.cohort = None
        while cohort.sessions:
            fd, session = cohort.sessions.popitem()
            self._turns[session] = self._turns_of(session) + cohort.had(fd)

    def _turns_of(self, session: Hashable) -> int:
        return max(self._turns.get(session, 0), self._least_turns)

    def chosen(self, ready: Sequence[Event]) -> Sequence[Event]:
        """Those that are served before the others are looked at again."""
        if len(ready) > WARM and self.cohort is None and not self.has_joined:
            ready = self._of_few_sessions(ready)
        return self._one_of_each_user(ready)

    def _of_few_sessions(self, ready: Sequence[Event]) -> Sequence[Event]:
        """Have those of few sessions, of each user's as many, be served alone for a while; all where there are few."""
        users, idle = self._by_user(ready)
        if sum(map(len, users.values())) <= WARM:
            return ready
        by_turns = (sorted(sessions.items(), key=lambda each: self._turns_of(each[0])) for sessions in users.values())
        chosen = list(islice(filter(None, chain.from_iterable(zip_longest(*by_turns))), WARM))
        self._least_turns = min(self._turns_of(session) for session, _ in chosen)
        self.cohort = _Cohort({fd: session for session, events in chosen for fd, _ in events})
        return [*chain.from_iterable(events for _, events in chosen), *idle]

    def _one_of_each_user(self, ready: Sequence[Event]) -> Sequence[Event]:
        found = [self._connections.get(fd) for fd, _ in ready]
        if len({connection.user for connection in found if connection is not None}) < 2:
            return ready
        users, chosen = self._by_user(ready)
        for sessions in users.values():
            session, events = min(sessions.items(), key=lambda each: self._last_chosen.get(each[0], 0))
            self._last_chosen[session] = next(self._choices)
            chosen.append(events[0])
        return chosen

    def _by_user(self, ready: Sequence[Event]) -> tuple[dict[Hashable, dict[Hashable, list[Event]]], list[Event]]:
        """Those of each session of each user, and those where nothing is served."""
        users: defaultdict[Hashable, dict[Hashable, list[Event]]] = defaultdict(dict)
        idle = []
        for event in ready:
            connection = self._connections.get(event[0])
            if connection is None or connection in self._away:
                idle.append(event)
            else:
                users[connection.user].setdefault(connection.session, []).append(event)
        return users, idle
