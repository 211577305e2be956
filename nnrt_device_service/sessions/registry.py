"""Registry of the daemon's sessions: attached ones, detached ones whose clients may come back, expired ones."""

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nnrt_device_service.access.counters import Counters, Tally, Usage
from nnrt_device_service.host.steps import take_each
from nnrt_device_service.memory.freeing import Freeing
from nnrt_device_service.memory.memory_budget import SharedBudget
from nnrt_device_service.sessions.session import MEMORY_KINDS, Session
from nnrt_device_service.settings import LimitReached, Settings
from nnrt_hdi.access.identity import ANYBODY, Identity, Role
from nnrt_hdi.counters import DeviceCounters
from nnrt_hdi.errors import OperationForbidden, UnknownHandle

_log = logging.getLogger(__name__)

# One in this many sessions is reserved for clients that administer the daemon.
_SESSIONS_PER_RESERVED = 16
# Seconds that a daemon that ends waits for sessions that other threads are closing.
CLOSE_S = 1.0


class _Entry:
    """Session, and the function that ends its client's stream."""

    __slots__ = ("detached_at", "hang_up", "session")

    def __init__(self, session: Session, hang_up: Callable[[], object]) -> None:
        self.session = session
        self.hang_up: Callable[[], object] | None = hang_up
        self.detached_at = math.inf


class SessionRegistry:
    """All sessions of a daemon, by their unguessable ids.

    A session is attached to one stream, or detached and kept for its client until the lease is over.
    """

    def __init__(self, settings: Settings, held_bytes: int, freeing: Freeing) -> None:
        self._settings = settings
        self._freeing = freeing
        self.counters = Counters()
        # Budget of all sessions together, with a part for each identity.
        self.budget = SharedBudget(held_bytes, settings.share_of(held_bytes))
        self._lock = threading.Lock()
        self._sessions: dict[bytes, _Entry] = {}
        # Sessions that are to be closed, each with the cause.
        self._cut_off: deque[tuple[Session, str]] = deque()
        # Number of sessions that threads are closing now.
        self._closing = 0
        self._has_closed = threading.Condition(self._lock)
        # Most sessions of clients that don't administer the daemon.
        self._client_limit = settings.max_sessions - settings.max_sessions // _SESSIONS_PER_RESERVED

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> list[Session]:
        """Return the sessions that exist now."""
        return [entry.session for entry in list(self._sessions.values())]

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the bytes in use by kind; their sum is approximate, as sessions change meanwhile."""
        sizes = Counter[str]()
        for entry in list(self._sessions.values()):
            sizes.update(entry.session.bytes_by_kind())
        kinds = {kind: sizes[kind] for kind in MEMORY_KINDS}
        return {**kinds, "other": max(self.budget.used_bytes - sizes.total(), 0)}

    def open(self, client: str, hang_up: Callable[[], object], identity: Identity = ANYBODY) -> Session:
        """Open a session, whose stream `hang_up` ends.

        If a limit is reached, the session that has been detached longest is closed for it. Raises OutOfMemory if there
        is none.
        """
        with self._lock:
            evicted = self._find_evicted(identity)
            if evicted is not None:
                del self._sessions[evicted.session.id]
            usage = self.counters.open(identity)
            session = Session(self._settings, client, self._freeing, self.budget.share(str(identity)), identity, usage)
            session.on_closed = partial(self.counters.close, usage)
            self._sessions[session.id] = _Entry(session, hang_up)
        if evicted is not None:
            _log.info(
                "client %s has not come back; its session makes room for another",
                evicted.session.client,
                extra=evicted.session.log_fields,
            )
            evicted.session.close("it made room for another")
        return session

    def own_session(self, identity: Identity) -> Session:
        """Make a session for the daemon itself, which has no stream and doesn't count in the limits of sessions."""
        usage = self.counters.open(identity)
        budget = self.budget.share(str(identity))
        session = Session(self._settings, f"the {identity}", self._freeing, budget, identity, usage)
        session.on_closed = partial(self.counters.close, usage)
        return session

    def snapshot_counters(self, usage: Usage | None, under_way_ns: Mapping[Tally, int]) -> DeviceCounters:
        """Return the counters of one identity, or of all if `usage` is None.

        The counters include `under_way_ns`, the time that running work has spent on the device so far.
        """
        connections: Counter[str] = Counter()
        held_bytes: Counter[str] = Counter()
        with self._lock:
            entries = list(self._sessions.values())
        held_bytes.update(self.budget.by_identity())
        for entry in entries:
            session = entry.session
            connections[session.usage.identity] += session.calls.local_connection_count + (entry.hang_up is not None)
        return self.counters.snapshot(usage, connections, held_bytes, under_way_ns)

    def _find_evicted(self, identity: Identity) -> _Entry | None:
        """Return the session to close before the identity opens one, or None; raise OutOfMemory if all are attached."""
        most, everybody = self._settings.max_sessions, list(self._sessions.values())
        own = [entry for entry in everybody if entry.session.identity.is_same(identity)]
        is_full = len(everybody) >= (most if identity.role is Role.ADMINISTER else self._client_limit)
        has_its_share = len(own) >= self._settings.share_of(most)
        if not (is_full or has_its_share):
            return None
        longest_away = min(own if has_its_share else everybody, key=lambda entry: entry.detached_at)
        if longest_away.hang_up is None:
            return longest_away
        if is_full:
            setting = "--max-sessions"
            why = f"the daemon serves {len(everybody)} clients, its limit ({setting})"
        else:
            why = f"{identity} has {len(own)} sessions, its limit (--identity-share of --max-sessions)"
            setting = "--identity-share"
        raise LimitReached(f"{why}; close sessions, try again later, or raise it", setting)

    def find(self, session_id: bytes) -> Session:
        return self._entry(session_id).session

    def resume(self, session_id: bytes, hang_up: Callable[[], object], identity: Identity = ANYBODY) -> Session:
        """Attach a session to a new stream; end its former stream and its calls under way.

        Raises UnknownHandle, and OperationForbidden if another identity opened the session. (An identity that is only a
        host is not proven, and may change: the client may come from another address.)
        """
        with self._lock:
            entry = self._entry(session_id)
            opened_by = entry.session.identity
            if (opened_by.is_proven or identity.is_proven) and not opened_by.is_same(identity):
                raise OperationForbidden(f"another identity than {identity} opened this session; open one of your own")
            entry.session.identity = identity
            former, entry.hang_up, entry.detached_at = entry.hang_up, hang_up, math.inf
            entry.session.touch()
        if former is not None:
            former()
        for end in entry.session.calls.break_off():  # The client may not be able to end them itself.
            end()
        return entry.session

    def detach(self, session: Session, hang_up: Callable[[], object]) -> None:
        """Detach a session whose stream is over, unless its client is attached to another stream already."""
        with self._lock:
            entry = self._sessions.get(session.id)
            if entry is None or entry.hang_up != hang_up:
                return
            entry.hang_up, entry.detached_at = None, time.monotonic()
        _log.info("client %s is not connected any more", session.client, extra=session.log_fields)
        if not self._settings.lease_s:
            self.close(session, "the connection was lost")

    def close(self, session: Session, cause: str = "closed") -> None:
        """Close a session; `cause` is for the audit log."""
        with self._lock:
            self._sessions.pop(session.id, None)
        session.close(cause)

    def reset_silence(self) -> None:
        """Restart the heartbeat timeout of every session, because this process itself was suspended."""
        for entry in list(self._sessions.values()):
            entry.session.touch()

    def end_stalled_inputs(self) -> None:
        """End streams on which the next chunk of an input doesn't arrive, and free unused memory for chunked inputs."""
        for entry in list(self._sessions.values()):
            entry.session.chunked_inputs.end_stalled(self._settings.heartbeat_timeout_s)

    def hang_up_silent(self) -> Sequence[Session]:
        """End the streams of sessions that have been silent for too long, and return these sessions."""
        horizon = time.monotonic() - self._settings.heartbeat_timeout_s
        silent = [
            (entry.session, hang_up)
            for entry in list(self._sessions.values())
            if (hang_up := entry.hang_up) is not None and entry.session.last_heard < horizon
        ]
        for session, hang_up in silent:
            # Detach first: without a lease this ends the session. So if the client makes a call when it sees its stream
            # end, the call is refused instead of being cut off.
            take_each((partial(self.detach, session, hang_up), hang_up), f"hanging up on client {session.client}")
        return [session for session, _ in silent]

    def close_expired(self) -> Sequence[Session]:
        """Close the sessions whose leases are over, and return them."""
        horizon = time.monotonic() - self._settings.lease_s
        with self._lock:
            expired = [entry.session for entry in self._sessions.values() if entry.detached_at < horizon]
            for session in expired:
                del self._sessions[session.id]
        for session in expired:
            session.close("the client has not come back")
        return expired

    def cut_off(self, is_over: Callable[[Session], bool], cause: str) -> Sequence[Session]:
        """Cut off the sessions for which `is_over` is true, and return them.

        Their connections and runs end, and nothing more begins in them. `close_cut_off` frees what they own later, so
        cutting off one session doesn't wait until another is freed.
        """
        over = [entry for entry in list(self._sessions.values()) if is_over(entry.session)]
        for entry in over:
            with self._lock:
                self._sessions.pop(entry.session.id, None)
                self._cut_off.append((entry.session, cause))
            hang_up = [entry.hang_up] if entry.hang_up is not None else []
            take_each((*hang_up, entry.session.end), f"ending client {entry.session.client}")
        return [entry.session for entry in over]

    def close_cut_off(self) -> None:
        """Close all sessions that have been cut off."""
        while True:
            with self._lock:
                if not self._cut_off:
                    return
                session, cause = self._cut_off.popleft()
                self._closing += 1
            try:
                session.close(cause)
            finally:
                with self._lock:
                    self._closing -= 1
                    self._has_closed.notify_all()

    def hang_up_all(self) -> None:
        """Close every session, and wait at most CLOSE_S for those that other threads are closing.

        New sessions may still be opened.
        """
        self.cut_off(lambda _: True, "the daemon ended")
        self.close_cut_off()
        with self._lock:
            self._has_closed.wait_for(lambda: not self._closing, CLOSE_S)

    def _entry(self, session_id: bytes) -> _Entry:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise UnknownHandle(
                "no such session; it ended, or the daemon was restarted: load the model again"
            ) from None
