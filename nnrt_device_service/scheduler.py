"""Whose turn it is on the device."""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from types import TracebackType
from weakref import WeakValueDictionary

from nnrt_device_service.shares import Party, Shares
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import OutOfMemory, TimedOut


class _Class:
    """The runs of one user that have the same rank, and since when none of those waiting had a turn."""

    __slots__ = ("lines", "rank", "since")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lines: Shares[_Line] = Shares()
        self.since = 0.0


class _User(Party):
    """Whose runs priorities order among each other."""

    __slots__ = ("classes",)

    def __init__(self) -> None:
        super().__init__()
        self.classes = tuple(map(_Class, range(Priority.HIGH.rank + 1)))

    def next_class(self, now: float, ageing_s: float) -> _Class:
        waiting = [each for each in self.classes if each.lines]
        return max(waiting, key=lambda each: (each.rank + (now - each.since) // ageing_s, now - each.since))


class _Line(Party):
    """The runs of one session in one class that wait, first come first served."""

    __slots__ = ("its_class", "turns", "user")

    def __init__(self, user: _User, its_class: _Class) -> None:
        super().__init__()
        self.user = user
        self.its_class = its_class
        self.turns: deque[Turn] = deque()


class Account:
    """On whom the device time of a session counts."""

    __slots__ = ("_lines", "user")

    def __init__(self, user: _User) -> None:
        self.user: Hashable = user
        self._lines = [_Line(user, each) for each in user.classes]

    def line(self, priority: Priority) -> _Line:
        return self._lines[priority.rank]


class Turn:
    """A run's turn on the device. Entered once: waits for the turn, and holds it until the exit."""

    __slots__ = ("_scheduler", "cancellation", "counts", "granted", "line", "wake")

    # Made when it has to wait.
    wake: threading.Event

    def __init__(self, scheduler: "Scheduler", line: _Line, cancellation: Cancellation) -> None:
        self._scheduler = scheduler
        self.line = line
        self.cancellation = cancellation
        self.granted = False
        self.counts = False

    def __enter__(self) -> None:
        self._scheduler.acquire(self)
        try:
            self.cancellation.check()
        except BaseException:
            self._scheduler.release(self)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.release(self)


class Scheduler:
    """Lets a number of runs onto the device at a time, and chooses among the others.

    Users get even shares of the device's time. Of a user's runs those of the highest class go first, where a class
    rises by one for every `ageing_s` that it waits for a turn. Within a class the user's sessions get even shares, and
    within a session who came first is first. Only time for which somebody waits counts: nobody owes for having been
    alone.

    A run whose time is over or that is cancelled leaves the queue at once and never starts.
    """

    def __init__(
        self, slots: int, queued_runs: int, ageing_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = threading.Lock()
        self._slots = slots
        self._running: set[Turn] = set()
        self._queued = 0
        self._queued_runs = queued_runs
        self._ageing_s = ageing_s
        self._clock = clock
        self._shares: Shares[_User] = Shares()
        # A user lives as long as a session has an account with it, or has spent more than its share.
        self._users: WeakValueDictionary[str, _User] = WeakValueDictionary()
        self._ahead: set[_User] = set()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def is_free(self) -> bool:
        """Whether a run would not have to wait, as far as one can tell."""
        return len(self._running) < self._slots

    @property
    def queued(self) -> int:
        return self._queued

    def account(self, user: str) -> Account:
        """An account for a session of that user."""
        with self._lock:
            self._ahead = set(filter(self._shares.is_ahead, self._ahead))
            known = self._users.get(user)
            if known is None:
                known = self._users[user] = _User()
        return Account(known)

    def turn(self, account: Account, priority: Priority, cancellation: Cancellation) -> Turn:
        """A turn on the device, to be held by `with`, which waits for it.

        That raises OutOfMemory where too many wait already, and TimedOut or OperationFailed (cancelled).
        """
        return Turn(self, account.line(priority), cancellation)

    def acquire(self, turn: Turn) -> None:
        with self._lock:
            if len(self._running) < self._slots:  # Then nobody waits.
                self._running.add(turn)
                return
            self._enqueue(turn)
        try:
            turn.cancellation.on_cancel(turn.wake.set)
            turn.wake.wait(turn.cancellation.remaining)
        finally:
            is_granted = self._taken_out(turn)
        if not is_granted:
            turn.cancellation.check()
            raise TimedOut("the run's time was over before its turn came")

    def _taken_out(self, turn: Turn) -> bool:
        """Whether a turn that waits no longer was granted; else it leaves the queue."""
        with self._lock:
            if not turn.granted:
                turn.line.turns.remove(turn)
                self._leave(turn.line, self._clock())
            return turn.granted

    def release(self, turn: Turn) -> None:
        with self._lock:
            self._running.remove(turn)
            if not turn.counts:  # Then nobody waits.
                return
            now = self._clock()
            self._stop(turn.line, now)
            if self._queued:
                self._grant_next(now)

    def _enqueue(self, turn: Turn) -> None:
        if self._queued >= self._queued_runs:
            raise OutOfMemory(
                f"{self._queued} runs wait for the device, its limit; try again later,"
                " or raise the daemon's --queued-runs"
            )
        turn.wake = threading.Event()
        now, line = self._clock(), turn.line
        if not self._queued:
            for running in self._running:
                if not running.counts:
                    self._start(running, now)
        if not line.its_class.lines:
            line.its_class.since = now
        self._queued += 1
        line.turns.append(turn)
        line.its_class.lines.wait(line, now)
        self._shares.wait(line.user, now)

    def _grant_next(self, now: float) -> None:
        chosen = self._shares.next(now).next_class(now, self._ageing_s)
        chosen.since = now
        line = chosen.lines.next(now)
        turn = line.turns.popleft()
        self._running.add(turn)
        self._start(turn, now)
        self._leave(line, now)
        turn.granted = True
        turn.wake.set()

    def _start(self, turn: Turn, now: float) -> None:
        turn.counts = True
        turn.line.its_class.lines.start(turn.line, now)
        self._shares.start(turn.line.user, now)

    def _stop(self, line: _Line, now: float) -> None:
        line.its_class.lines.stop(line, now)
        self._shares.stop(line.user, now)
        self._remember(line.user)

    def _leave(self, line: _Line, now: float) -> None:
        self._queued -= 1
        line.its_class.lines.leave(line, now)
        self._shares.leave(line.user, now)
        self._remember(line.user)

    def _remember(self, user: _User) -> None:
        """Keep a user that becomes idle from coming back as a new one with less spent."""
        if not (user.running or user.waiting) and self._shares.is_ahead(user):
            self._ahead.add(user)
