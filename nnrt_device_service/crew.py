"""Few threads for many connections."""

import logging
import os
import select
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import count
from typing import Protocol

_log = logging.getLogger(__name__)

# What the one that leads may spend on a connection while all others wait.
PATIENCE_S = 0.005
# Threads that wait for the lead. More of them end.
_MOST_FOLLOWERS = 4


class Served(Protocol):
    """A connection."""

    @property
    def user(self) -> Hashable:
        """Whose it is: quick ones are served in turns of users, however many connections each has."""

    @property
    def session(self) -> Hashable:
        """What of the user's it belongs to: those share the turns of their user."""

    def fileno(self) -> int: ...

    def serve(self, hand_over: Callable[[], None]) -> bool:
        """Answer what has come, without waiting for more; whether the connection goes on. Calls `hand_over` before
        anything that may take long. What it raises ends the connection, and is logged."""

    def close(self) -> None:
        """It is served no more."""


class _Lead:
    """Being the one that waits for all connections."""

    __slots__ = ("is_lost", "served", "serving")

    def __init__(self) -> None:
        self.is_lost = False
        # The connection being served, and how many have been.
        self.serving: Served | None = None
        self.served = 0


class Crew:
    """Threads that serve connections, each one by at most one thread at a time.

    One thread leads: it waits for all connections, and does itself what is quick, so that small requests of any number
    of clients wake nobody. Before it does what may take long it hands the lead over to another one, which is woken or
    started. Where something took long that seemed quick, the deputy does so for it, after `PATIENCE_S`. (The pattern is
    Leader/Followers: Schmidt, Stal, Rohnert and Buschmann, Pattern-Oriented Software Architecture 2, 2000.)
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._connections: dict[int, Served] = {}
        # When sessions had their last turns, counted in turns.
        self._turns: weakref.WeakKeyDictionary[Hashable, int] = weakref.WeakKeyDictionary()
        self._turn = count(1)
        # Those that somebody serves who doesn't lead, and those of them that have been taken off the epoll.
        self._away: set[Served] = set()
        self._parked: set[Served] = set()
        self._lead = _Lead()
        self._leads = threading.Semaphore(0)
        self._followers = 0
        # Set where the deputy sleeps and there is something to watch over.
        self._watch = threading.Event()
        self._deputy_sleeps = False
        # Whether no more connections come, and whether the last one has gone.
        self._is_stopped = self._is_over = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        # With the last thread: until then one may wait there.
        weakref.finalize(self, os.close, self._wake).atexit = False
        self._epoll.register(self._wake, select.EPOLLIN)

    def start(self) -> None:
        """Raises RuntimeError where the process has no threads left."""
        self._start(self._work, self._lead)
        self._start(self._watch_over)

    def add(self, connection: Served) -> None:
        """Serve a connection from now on, and close it when it ends; at once where the crew has ended, or can't."""
        try:
            with self._lock:
                if not self._is_over:
                    fd = connection.fileno()
                    self._epoll.register(fd, select.EPOLLIN)
                    self._connections[fd] = connection
                    return
        except OSError as error:  # The host waits for too much.
            _log.warning("%s: a connection can't be served: %s", self._name, error)
        self._close(connection)

    def stop(self) -> None:
        """Take no more connections, and end with the last of them."""
        with self._lock:
            self._is_stopped = True
            self._end_with_the_last()

    def _end_with_the_last(self) -> None:
        if self._is_stopped and not self._connections:
            self._is_over = True
            self._leads.release(_MOST_FOLLOWERS)
            self._watch.set()
            os.eventfd_write(self._wake, 1)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, name=self._name, daemon=True).start()

    def _work(self, lead: _Lead | None) -> None:
        while lead is not None:
            hand_over = partial(self._hand_over, lead)
            while not (lead.is_lost or self._is_over):
                self._serve_ready(lead, hand_over)
            lead = self._next_lead()

    def _next_lead(self) -> _Lead | None:
        """Wait to lead; None where enough others do."""
        with self._lock:
            if self._followers >= _MOST_FOLLOWERS or self._is_over:
                return None
            self._followers += 1
        self._leads.acquire()
        return None if self._is_over else self._lead

    def _serve_ready(self, lead: _Lead, hand_over: Callable[[], None]) -> None:
        ready = [fd for fd, _ in self._epoll.poll()]
        for fd in ready if len(ready) == 1 else self._in_turn(ready):
            connection = self._begun(lead, fd)
            if connection is None:
                continue
            try:
                goes_on = connection.serve(hand_over)
            except BaseException:  # SystemExit, too, is the connection's affair: others are served all the same.
                _log.exception("%s: a connection could not be served", self._name)
                goes_on = False
            if not self._finish(lead, connection, goes_on):
                self._close(connection)
            if lead.is_lost:
                return

    def _in_turn(self, ready: Sequence[int]) -> Sequence[int]:
        """Those that are served before the others are looked at again: one of each user."""
        found = [(self._connections.get(fd), fd) for fd in ready]
        if len({connection.user for connection, _ in found if connection is not None}) < 2:
            return ready
        users: defaultdict[Hashable, dict[Hashable, int]] = defaultdict(dict)
        turns = []
        for connection, fd in found:
            if connection is None or connection in self._away:  # Nothing is served there.
                turns.append(fd)
            else:
                users[connection.user].setdefault(connection.session, fd)
        for sessions in users.values():
            session = min(sessions, key=lambda one: self._turns.get(one, 0))
            self._turns[session] = next(self._turn)
            turns.append(sessions[session])
        return turns

    def _begun(self, lead: _Lead, fd: int) -> Served | None:
        """The connection of a descriptor, which is now being served; None where another thread is at it."""
        with self._lock:
            connection = self._connections.get(fd)
            if connection is None:
                return None
            if connection in self._away:  # Until it is back, its being ready would only keep this thread busy.
                self._epoll.unregister(fd)
                self._parked.add(connection)
                return None
            lead.serving = connection
        if self._deputy_sleeps:
            self._deputy_sleeps = False
            self._watch.set()
        return connection

    def _finish(self, lead: _Lead, connection: Served, goes_on: bool) -> bool:
        """The connection has been served; whether it is still one of those that are."""
        with self._lock:
            lead.serving = None
            lead.served += 1
            is_parked = False
            if lead.is_lost:
                self._away.discard(connection)
                is_parked = connection in self._parked
                self._parked.discard(connection)
            if goes_on:
                if is_parked:
                    self._epoll.register(connection.fileno(), select.EPOLLIN)
                return True
            if not is_parked:
                self._epoll.unregister(connection.fileno())
            del self._connections[connection.fileno()]
            self._end_with_the_last()
        return False

    def _close(self, connection: Served) -> None:
        try:
            connection.close()
        except Exception:
            _log.exception("%s: a connection could not be closed", self._name)

    def _hand_over(self, lead: _Lead, served: int | None = None) -> None:
        """Let another thread lead; `served` as the deputy saw it, if it still is so."""
        with self._lock:
            if lead.is_lost or lead.serving is None or served not in (None, lead.served):
                return
            self._away.add(lead.serving)
            try:
                self._appoint()
            except RuntimeError as error:  # The process has no thread left. It goes on leading.
                self._away.discard(lead.serving)
                if served is None:  # The deputy asks again and again.
                    _log.warning("%s: no thread can be started (%s); others wait", self._name, error)
            else:
                lead.is_lost = True

    def _appoint(self) -> None:
        following = _Lead()
        if self._followers:
            self._followers -= 1
            self._lead = following
            self._leads.release()
        else:
            self._start(self._work, following)
            self._lead = following

    def _watch_over(self) -> None:
        """Take the lead from who has served the same connection for too long."""
        while not self._is_over:
            lead = self._lead
            served = lead.served
            serving = lead.serving  # None where it goes to sleep below, which must not keep a connection alive.
            time.sleep(PATIENCE_S)
            if lead.serving is not None:
                if lead.serving is serving:
                    self._hand_over(lead, served)
            elif lead is self._lead and served == lead.served:
                self._deputy_sleeps = True
                if self._lead.serving is None:  # Else who leads has not seen that it sleeps.
                    self._watch.wait()
                    self._watch.clear()
                self._deputy_sleeps = False
