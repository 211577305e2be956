"""Order in which a reactor serves connections that are ready."""

import os
import select
import time
import weakref
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import chain, count, islice, zip_longest

from nnrt_device_service.transport.local.served import Event, ServedConnection

# Number of sessions whose requests find warm caches: four for each processor.
WARM = 4 * (os.cpu_count() or 1)
# Limits of a cohort: the turns of each connection, the seconds that it lasts, and the milliseconds without any request
# after which it ends.
_TURNS = 32
_COHORT_S = 0.02
_PAUSE_MS = 1


class _Cohort:
    """Connections that are served for a while before any others.

    If many clients take turns one by one, each finds the processors' caches cold and takes two or three times as long.
    (Larus and Parkes, Using Cohort Scheduling to Enhance Server Performance, 2002.)
    """

    def __init__(self, sessions: dict[int, Hashable]) -> None:
        """Make a cohort of these connections: their sessions by their descriptors."""
        self.sessions = sessions
        self._until = time.monotonic() + _COHORT_S
        # Number of turns that each has left.
        self._left = dict.fromkeys(sessions, _TURNS)
        self._few = len(self._left) // 4
        self._poll = select.poll()
        for fd in self._left:
            self._poll.register(fd, select.POLLIN)

    def wait_ready(self) -> Sequence[Event]:
        """Wait until connections are ready and return their events, or none if the cohort is over.

        It is over when all but a few connections have had their turns, its time is up, or no request came for
        _PAUSE_MS.
        """
        is_over = len(self._left) <= self._few or time.monotonic() >= self._until
        return () if is_over else self._poll.poll(_PAUSE_MS)

    def count(self, events: Sequence[Event]) -> None:
        """Count one turn of each of these connections."""
        for fd, _ in events:
            left = self._left.get(fd, 0)
            if left > 1:
                self._left[fd] = left - 1
            elif left:
                del self._left[fd]
                self._poll.unregister(fd)

    def turns_taken(self, fd: int) -> int:
        """Return how many turns a connection has had."""
        return _TURNS - self._left.get(fd, 0)


class Turns:
    """Chooser among ready connections: one request of each user at a time, and a cohort if there are many sessions."""

    def __init__(self, connections: Mapping[int, ServedConnection], paused: Collection[ServedConnection]) -> None:
        """Choose among the connections, which are given by their descriptors, except those in `paused`."""
        self._connections = connections
        self._paused = paused
        # Cohort that is served now while others wait, if any.
        self.cohort: _Cohort | None = None
        # Whether the latest requests were answered in batches. Then no cohort is made: larger batches are better.
        self.has_joined = False
        # Number of the choice in which each session was last chosen among those of its user.
        self._last_chosen: weakref.WeakKeyDictionary[Hashable, int] = weakref.WeakKeyDictionary()
        self._choices = count(1)
        # Turns that sessions have had in cohorts. A new session counts as having had `_least_turns`.
        self._turns: weakref.WeakKeyDictionary[Hashable, int] = weakref.WeakKeyDictionary()
        self._least_turns = 0

    def next_events(self, cohort: _Cohort, epoll: select.epoll) -> Sequence[Event]:
        """Wait for events of a cohort, or of all connections if the cohort is over."""
        if not self.has_joined and (ready := cohort.wait_ready()):
            return ready
        self._end(cohort)
        return epoll.poll()

    def _end(self, cohort: _Cohort) -> None:
        """End a cohort, count its sessions' turns, and keep no reference to its sessions."""
        self.cohort = None
        while cohort.sessions:
            fd, session = cohort.sessions.popitem()
            self._turns[session] = self._turns_of(session) + cohort.turns_taken(fd)

    def _turns_of(self, session: Hashable) -> int:
        return max(self._turns.get(session, 0), self._least_turns)

    def choose(self, ready: Sequence[Event]) -> Sequence[Event]:
        """Return the events to serve before the epoll is asked again."""
        if len(ready) > WARM and self.cohort is None and not self.has_joined:
            ready = self._choose_cohort(ready)
        return self._choose_one_per_user(ready)

    def _choose_cohort(self, ready: Sequence[Event]) -> Sequence[Event]:
        """Make a cohort of at most WARM sessions, equally many of each user, and return its events.

        If there are no more sessions than that, make none and return all events.
        """
        users, idle = self._by_user(ready)
        if sum(map(len, users.values())) <= WARM:
            return ready
        by_turns = (sorted(sessions.items(), key=lambda each: self._turns_of(each[0])) for sessions in users.values())
        chosen = list(islice(filter(None, chain.from_iterable(zip_longest(*by_turns))), WARM))
        self._least_turns = min(self._turns_of(session) for session, _ in chosen)
        self.cohort = _Cohort({fd: session for session, events in chosen for fd, _ in events})
        return [*chain.from_iterable(events for _, events in chosen), *idle]

    def _choose_one_per_user(self, ready: Sequence[Event]) -> Sequence[Event]:
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
        """Group events by user and session; also return the events of connections that aren't served now."""
        users: defaultdict[Hashable, dict[Hashable, list[Event]]] = defaultdict(dict)
        idle = []
        for event in ready:
            connection = self._connections.get(event[0])
            if connection is None or connection in self._paused:
                idle.append(event)
            else:
                users[connection.user].setdefault(connection.session, []).append(event)
        return users, idle
