"""The sessions of a daemon: who is attached, who may come back, and whose time is over."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from nnrt_device_service.access.identity import ANYBODY, Identity
from nnrt_device_service.sessions.memory_budget import MemoryBudget
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.errors import OperationForbidden, OutOfMemory, UnknownHandle

_log = logging.getLogger(__name__)


class _Entry:
    """A session and the stream its client is attached by."""

    __slots__ = ("detached_at", "hang_up", "session")

    def __init__(self, session: Session, hang_up: Callable[[], object]) -> None:
        self.session = session
        self.hang_up: Callable[[], object] | None = hang_up
        self.detached_at = math.inf


class SessionRegistry:
    """All sessions of a daemon, by their unguessable id.

    A session is attached to one stream, or detached and kept for its client until the lease is over.
    """

    def __init__(self, settings: Settings, held_bytes: int) -> None:
        self._settings = settings
        self._held = MemoryBudget(held_bytes, whose="the daemon's", setting="--held-bytes")
        self._lock = threading.Lock()
        self._sessions: dict[bytes, _Entry] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def held_bytes(self) -> int:
        return self._held.used_bytes

    def open(self, client: str, hang_up: Callable[[], object], identity: Identity = ANYBODY) -> Session:
        """A new session; `hang_up` ends its stream. The detached session that has waited longest makes room for it.

        Raises OutOfMemory beyond the limit.
        """
        evicted = None
        with self._lock:
            if len(self._sessions) >= self._settings.max_sessions:
                evicted = min(self._sessions.values(), key=lambda entry: entry.detached_at)
                if evicted.hang_up is not None:
                    raise OutOfMemory(
                        f"the daemon serves {len(self._sessions)} clients, its limit; try again later,"
                        " or raise the daemon's --max-sessions"
                    )
                del self._sessions[evicted.session.id]
            session = Session(self._settings, client, self._held, identity)
            self._sessions[session.id] = _Entry(session, hang_up)
        if evicted is not None:
            _log.info("client %s has not come back; its session makes room for another", evicted.session.client)
            evicted.session.close()
        return session

    def of(self, session_id: bytes) -> Session:
        return self._entry(session_id).session

    def resume(self, session_id: bytes, hang_up: Callable[[], object], identity: Identity = ANYBODY) -> Session:
        """Attach a session to a new stream; a stream it is still attached to is hung up, and calls are broken off.

        Raises UnknownHandle, or OperationForbidden for another identity than that which opened it. (A client that is
        known by its host only may come from another address of it.)
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
        entry.session.break_off()
        return entry.session

    def detach(self, session: Session, hang_up: Callable[[], object]) -> None:
        """The session's stream is over: wait for its client, unless that is attached to another one already."""
        with self._lock:
            entry = self._sessions.get(session.id)
            if entry is None or entry.hang_up != hang_up:
                return
            entry.hang_up, entry.detached_at = None, time.monotonic()
        _log.info("client %s is not connected any more", session.client)
        if not self._settings.lease_s:
            self.close(session)

    def close(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)
        session.close()

    def forgive_silence(self) -> None:
        """Nobody could be heard: this process itself stood still."""
        for entry in list(self._sessions.values()):
            entry.session.touch()

    def tend_chunked_inputs(self) -> None:
        """End the streams on which the rest of an input doesn't come, and free memory that was for others."""
        for entry in list(self._sessions.values()):
            entry.session.chunked_inputs.tend(self._settings.heartbeat_timeout_s)

    def hang_up_silent(self) -> Sequence[Session]:
        """End the streams of sessions that have been silent for too long; which ones."""
        horizon = time.monotonic() - self._settings.heartbeat_timeout_s
        silent = [
            (entry.session, hang_up)
            for entry in list(self._sessions.values())
            if (hang_up := entry.hang_up) is not None and entry.session.last_heard < horizon
        ]
        for session, hang_up in silent:
            hang_up()
            self.detach(session, hang_up)
        return [session for session, _ in silent]

    def close_expired(self) -> Sequence[Session]:
        """End the sessions whose clients have not come back in time; which ones."""
        horizon = time.monotonic() - self._settings.lease_s
        with self._lock:
            expired = [entry.session for entry in self._sessions.values() if entry.detached_at < horizon]
            for session in expired:
                del self._sessions[session.id]
        for session in expired:
            session.close()
        return expired

    def close_if(self, is_over: Callable[[Session], bool]) -> Sequence[Session]:
        """End the sessions of which that is true; which ones."""
        over = [entry for entry in list(self._sessions.values()) if is_over(entry.session)]
        for entry in over:
            if (hang_up := entry.hang_up) is not None:
                hang_up()
            self.close(entry.session)
        return [entry.session for entry in over]

    def hang_up_all(self) -> None:
        """End every session; new ones may still come."""
        self.close_if(lambda _: True)

    def _entry(self, session_id: bytes) -> _Entry:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise UnknownHandle("no such session; it ended, or the daemon was restarted: open a new one") from None
