"""Reactor: few threads that serve many connections."""

import logging
import os
import select
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import partial
from queue import SimpleQueue

from nnrt_device_service.host.threads import start_thread
from nnrt_device_service.transport.local.served import QUICK_NS, Batcher, Event, HandOver, ServedConnection
from nnrt_device_service.transport.local.turns import Turns
from nnrt_hdi.errors import OutOfMemory

_log = logging.getLogger(__name__)

# Work shorter than _SHORT_NS wakes no other thread if the latest _ALONE requests came from one connection: the other
# thread would probably have nothing to do.
_SHORT_NS = 2_000_000
_ALONE = 16
# Seconds that the leader may spend on one connection while all others wait.
PATIENCE_S = 0.005
# Most threads that wait to lead; others end.
_MOST_FOLLOWERS = 4


class _Leader:
    """State of the leading thread, from when it begins to lead until it has handed over."""

    __slots__ = ("has_handed_over", "joined", "served", "serving")

    def __init__(self, joined: "defaultdict[Batcher, list[ServedConnection]]") -> None:
        self.has_handed_over = False
        # Connections being served now, and how many times `serving` has been served so far.
        self.serving: Sequence[ServedConnection] = ()
        self.served = 0
        # Connections that wait to be answered together.
        self.joined = joined


class Reactor:
    """Threads that serve connections, each connection by at most one thread at a time.

    One thread leads: it waits for all connections and does quick work itself, so that small requests of any number of
    clients wake no other thread. It also does short work if no other connection has sent anything lately. Before work
    that may take long it hands over: it wakes or starts another thread, which leads from then on. If work that seemed
    quick takes longer than `PATIENCE_S`, the watchdog thread hands over for it. (This is the pattern Leader/Followers:
    Schmidt, Stal, Rohnert and Buschmann, Pattern-Oriented Software Architecture 2, 2000.)
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._connections: dict[int, ServedConnection] = {}
        # Whether only one connection was ready when the leader last waited, so no other is served after it.
        self.has_found_one = False
        # Connections that the leader must not serve now, with the number of reasons: another thread serves them, or
        # `set_aside` was called.
        self._paused: dict[ServedConnection, int] = {}
        # The connections in `_paused` that are not registered with the epoll.
        self._unregistered: set[ServedConnection] = set()
        self._turns = Turns(self._connections, self._paused)
        self._leader = _Leader(defaultdict(list))
        # Descriptor that was served last, and how many times in a row before that.
        self._latest_fd, self._streak = -1, 0
        # Gets an item for each follower that is to lead. (A threading.Semaphore takes twice as long.)
        self._promotions: SimpleQueue[None] = SimpleQueue()
        self._followers = 0
        # Set to wake the watchdog when a connection is being served again.
        self._watchdog_wakes = threading.Event()
        self._watchdog_sleeps = False
        # Whether `stop` has been called, and whether the last connection has ended since.
        self._is_stopped = self._is_over = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        # Closed when the reactor is garbage collected: until then a thread may wait on it.
        weakref.finalize(self, os.close, self._wake).atexit = False
        self._epoll.register(self._wake, select.EPOLLIN)

    def start(self) -> None:
        """Start the leader and the watchdog; raise OutOfMemory if the process has no threads left."""
        start_thread(partial(self._work, self._leader), self._name)
        start_thread(self._watch_over, self._name)

    def add(self, connection: ServedConnection) -> None:
        """Serve a connection until it ends, and then close it; close it at once if the reactor can't serve it."""
        try:
            with self._lock:
                if not self._is_over:
                    fd = connection.fileno()
                    self._epoll.register(fd, select.EPOLLIN)
                    self._connections[fd] = connection
                    return
        except OSError as error:  # Too many epoll registrations.
            _log.warning("%s: a connection can't be served: %s", self._name, error)
        self._close(connection)

    def set_aside(self, connection: ServedConnection) -> None:
        """Stop serving a connection until `take_back`. Its `serve` may call this."""
        with self._lock:
            self._pause((connection,))

    def take_back(self, connection: ServedConnection) -> None:
        """Serve a connection again after `set_aside`. Any thread may call this."""
        with self._lock:
            self._unpause((connection,))

    def _pause(self, connections: Sequence[ServedConnection]) -> None:
        for connection in connections:
            self._paused[connection] = self._paused.get(connection, 0) + 1

    def _unpause(self, connections: Sequence[ServedConnection]) -> None:
        for connection in connections:
            self._paused[connection] -= 1
            if self._paused[connection]:
                continue
            del self._paused[connection]
            if connection in self._unregistered:
                self._unregistered.remove(connection)
                self._epoll.register(connection.fileno(), select.EPOLLIN)

    def stop(self) -> None:
        """End the threads when the last connection has ended."""
        with self._lock:
            self._is_stopped = True
            self._end_with_the_last()

    def _end_with_the_last(self) -> None:
        if self._is_stopped and not self._connections:
            self._is_over = True
            for _ in range(_MOST_FOLLOWERS):
                self._promotions.put(None)
            self._watchdog_wakes.set()
            os.eventfd_write(self._wake, 1)

    def _work(self, leader: _Leader | None) -> None:
        while leader is not None:
            self._lead(leader)
            leader = self._next_leader()

    def _next_leader(self) -> _Leader | None:
        """Wait until this thread is to lead; return None if it is to end."""
        with self._lock:
            if self._followers >= _MOST_FOLLOWERS or self._is_over:
                return None
            self._followers += 1
        self._promotions.get()
        return None if self._is_over else self._leader

    def _lead(self, leader: _Leader) -> None:
        """Serve all connections until another thread leads. One function, for speed."""
        hand_over, turns = partial(self._hand_over_if_long, leader), self._turns
        if leader.joined:
            self._answer_joined(leader, hand_over)
        while not (leader.has_handed_over or self._is_over):
            # Drop the references to the latest connection before waiting for the next request.
            connection: ServedConnection | None = None
            goes_on: bool | Batcher = False
            cohort = turns.cohort
            ready: Sequence[Event] = self._epoll.poll() if cohort is None else turns.next_events(cohort, self._epoll)
            chosen = ready if len(ready) == 1 else turns.choose(ready)
            if (cohort := turns.cohort) is not None:
                cohort.count(chosen)
            self.has_found_one = len(ready) == 1 and cohort is None
            for fd, _ in chosen:
                with self._lock:
                    connection = self._connections.get(fd)
                    if connection in self._paused:  # While it is ready, `poll` would return at once again and again.
                        if connection not in self._unregistered:
                            self._epoll.unregister(fd)
                            self._unregistered.add(connection)
                        connection = None
                    if connection is None:
                        continue
                    leader.serving = (connection,)
                if self._watchdog_sleeps:
                    self._watchdog_sleeps = False
                    self._watchdog_wakes.set()
                self._streak = self._streak + 1 if fd == self._latest_fd else 0
                self._latest_fd = fd
                try:
                    goes_on = connection.serve(hand_over)
                except BaseException:  # Even SystemExit ends only this connection.
                    _log.exception("%s: a connection could not be served", self._name)
                    goes_on = False
                if isinstance(goes_on, bool):
                    self._finish(leader, (connection,), () if goes_on else (connection,))
                else:
                    self._join(leader, connection, goes_on)
                if leader.has_handed_over:
                    break
            turns.has_joined = bool(leader.joined)
            if leader.joined:
                self._answer_joined(leader, hand_over)

    def _answer_joined(self, leader: _Leader, hand_over: HandOver) -> None:
        """Answer the connections in `leader.joined`, except those that the next leader takes over meanwhile."""
        while leader.joined:
            with self._lock:
                batcher = next(iter(leader.joined))
                leader.serving = connections = leader.joined.pop(batcher)
            if self._watchdog_sleeps:
                self._watchdog_sleeps = False
                self._watchdog_wakes.set()
            try:
                ended = batcher.answer(connections, hand_over)
            except BaseException:
                _log.exception("%s: %d connections could not be served", self._name, len(connections))
                ended = connections
            self._finish(leader, connections, ended)

    def _join(self, leader: _Leader, connection: ServedConnection, batcher: Batcher) -> None:
        """Note that `batcher` will answer the connection together with others."""
        with self._lock:
            leader.serving = ()
            leader.served += 1
            leader.joined[batcher].append(connection)

    def _finish(self, leader: _Leader, served: Sequence[ServedConnection], ended: Collection[ServedConnection]) -> None:
        """Note that connections have been served, and close those that have ended."""
        with self._lock:
            leader.serving = ()
            leader.served += 1
            if leader.has_handed_over:
                self._unpause(served)
            for connection in ended:
                self._epoll.unregister(connection.fileno())
                del self._connections[connection.fileno()]
            if ended:
                self._end_with_the_last()
        for connection in ended:
            self._close(connection)

    def _close(self, connection: ServedConnection) -> None:
        try:
            connection.close()
        except Exception:
            _log.exception("%s: a connection could not be closed", self._name)

    def _hand_over_if_long(self, leader: _Leader, usual_ns: int | None) -> None:
        """Let another thread lead if the next work usually takes long; `usual_ns` is None if that is not known."""
        if usual_ns is None or usual_ns >= (_SHORT_NS if self._streak >= _ALONE else QUICK_NS):
            self._hand_over(leader)

    def _hand_over(self, leader: _Leader, served: int | None = None) -> None:
        """Let another thread lead, if the leader still leads and serves.

        The watchdog passes the `served` count that it saw: if it has changed, nothing happens.
        """
        with self._lock:
            if leader.has_handed_over or not leader.serving or served not in (None, leader.served):
                return
            self._pause(leader.serving)
            try:
                self._appoint(_Leader(leader.joined))
            except OutOfMemory as error:  # No thread is left, so this one goes on leading.
                self._unpause(leader.serving)
                if served is None:  # Not from the watchdog, which tries again and again.
                    _log.warning("%s: %s; other connections wait", self._name, error)
            else:
                leader.has_handed_over = True
                leader.joined = defaultdict(list)

    def _appoint(self, following: _Leader) -> None:
        if self._followers:
            self._followers -= 1
            self._leader = following
            self._promotions.put(None)
        else:
            start_thread(partial(self._work, following), self._name)
            self._leader = following

    def _watch_over(self) -> None:
        """Hand over for a leader that has served the same connections for too long. Runs in the watchdog thread."""
        while not self._is_over:
            leader = self._leader
            served = leader.served
            serving = leader.serving  # Empty whenever this thread waits below, so it keeps no connection alive.
            time.sleep(PATIENCE_S)
            if leader.serving:
                if leader.serving is serving:
                    self._hand_over(leader, served)
            elif leader is self._leader and served == leader.served:
                self._watchdog_sleeps = True
                if not self._leader.serving:  # Else the leader may not have seen that the watchdog sleeps.
                    self._watchdog_wakes.wait()
                    self._watchdog_wakes.clear()
                self._watchdog_sleeps = False
