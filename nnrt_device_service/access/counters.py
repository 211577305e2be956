"""The one place where a daemon counts what it does, for each identity."""

import threading
import time
from collections import Counter, OrderedDict

from nnrt_device_service.access.identity import Identity
from nnrt_device_service.settings import LimitReached
from nnrt_hdi.counters import DeviceCounters, IdentityCounters
from nnrt_hdi.errors import NnrtError, OperationFailed, TimedOut, UnavailableDevice, UnknownHandle

# So many identities without a session are counted by themselves.
MOST_AWAY = 1024


class Tally:
    """Work that has left the device: how much of it succeeded, and the time that all of it was there.

    A scheduler counts it, under the lock that it has then anyway.
    """

    __slots__ = ("busy_ns", "done")

    def __init__(self) -> None:
        self.done = 0
        self.busy_ns = 0


class Usage:
    """What one identity has had."""

    def __init__(self, identity: str = "") -> None:
        self.identity = identity
        self.runs = Tally()
        self.compilations = Tally()
        # Those there have been, and those that there are. Only `Counters` changes them.
        self.opened_sessions = 0
        self.sessions = 0
        self._lock = threading.Lock()
        self._ended_runs: Counter[str] = Counter()
        self._models: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    def count_model(self, origin: str) -> None:
        """A model was prepared."""
        with self._lock:
            self._models[origin] += 1

    def count_error(self, error: NnrtError) -> None:
        """A call was answered with this."""
        with self._lock:
            self._errors[error.setting if isinstance(error, LimitReached) else error.code.name] += 1

    def count_ended_run(self, error: NnrtError, *, was_cancelled: bool) -> None:
        """A run gave this in place of outputs."""
        outcome = _outcome(error, was_cancelled)
        with self._lock:
            self._ended_runs[outcome] += 1
        if outcome != "cancelled":
            self.count_error(error)

    def add(self, other: "Usage") -> None:
        """Take over what another one has counted."""
        with self._lock, other._lock:
            for mine, its in ((self.runs, other.runs), (self.compilations, other.compilations)):
                mine.done += its.done
                mine.busy_ns += its.busy_ns
            self.opened_sessions += other.opened_sessions
            for counter, more in (
                (self._ended_runs, other._ended_runs),
                (self._models, other._models),
                (self._errors, other._errors),
            ):
                counter.update(more)

    def told(self, connections: int = 0, held_bytes: int = 0) -> IdentityCounters:
        with self._lock:
            runs = {"done": self.runs.done, **self._ended_runs}
            return IdentityCounters(
                self.identity,
                self.sessions,
                connections,
                held_bytes,
                self.opened_sessions,
                {outcome: count for outcome, count in runs.items() if count},
                self.runs.busy_ns / 1e9,
                dict(self._models),
                self.compilations.busy_ns / 1e9,
                dict(self._errors),
            )


class Counters:
    """What all identities have had.

    Clients without proof make up as many identities as they have addresses. So only those that get in are counted by
    themselves, and of those that have gone the latest; what the others had is added up.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        # In the order in which they opened their latest sessions.
        self._known: OrderedDict[str, Usage] = OrderedDict()
        self._others = Usage()
        self._away = 0

    def open(self, identity: Identity) -> Usage:
        """Count a session of an identity from now on, until `close`."""
        with self._lock:
            name = str(identity)
            usage = self._known.get(name)
            if usage is None:
                usage = self._known[name] = Usage(name)
            elif not usage.sessions:
                self._away -= 1
            self._known.move_to_end(name)
            usage.sessions += 1
            usage.opened_sessions += 1
            return usage

    def close(self, usage: Usage) -> None:
        """A session has ended."""
        with self._lock:
            usage.sessions -= 1
            if usage.sessions:
                return
            self._away += 1
            if self._away > MOST_AWAY:
                self._away -= 1
                longest_away = next(name for name, each in self._known.items() if not each.sessions)
                self._others.add(self._known.pop(longest_away))

    def of(self, identity: Identity | None) -> Usage:
        """The count for a call of an identity, known or not, that may have no session."""
        with self._lock:
            return self._others if identity is None else self._known.get(str(identity), self._others)

    def told(self, usage: Usage | None, connections: Counter[str], held_bytes: Counter[str]) -> DeviceCounters:
        """The counters of one identity, or of all; with what their sessions have now, by their names."""
        with self._lock:
            wanted = [*self._known.values(), self._others] if usage is None else [usage]
        told = (each.told(connections[each.identity], held_bytes[each.identity]) for each in wanted)
        return DeviceCounters(time.monotonic() - self._began, tuple(told))


def _outcome(error: NnrtError, was_cancelled: bool) -> str:
    if isinstance(error, TimedOut):
        return "timed_out"
    if was_cancelled:
        return "cancelled"
    is_fault = isinstance(error, OperationFailed | UnavailableDevice) and not isinstance(error, UnknownHandle)
    return "failed" if is_fault else "refused"
