"""One client's session: it owns what the client made and frees it when the client goes."""

import logging
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from types import TracebackType
from typing import NamedTuple

from typing_extensions import Self

from nnrt_device_service.arrivals import Arrivals
from nnrt_device_service.buffers import BufferPool
from nnrt_device_service.constants import ConstantPool
from nnrt_device_service.memory import MemoryBudget
from nnrt_device_service.runs import Runs
from nnrt_device_service.scheduler import Account
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import OperationForbidden, OutOfMemory, UnavailableDevice, UnknownHandle
from nnrt_hdi.tensor import TensorSpec

_log = logging.getLogger(__name__)

# How long a stream that was cancelled may take to end before it counts against the limit.
_STREAM_END_S = 1.0
# Of the compilations that were given up, the latest so many are remembered, for they may still end.
_REMEMBERED_REQUESTS = 1024


class Origin(IntEnum):
    """Where a prepared model came from: a compilation, buffers of the client, or the store. The wire's numbers."""

    COMPILED = 0
    RESTORED = 1
    STORED = 2


class Peer(NamedTuple):
    """A process on this host, as the kernel names it."""

    pid: int
    user_id: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model in a session, ready to run."""

    model_id: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    origin: Origin


class HeldModel:
    """A prepared model of a session. Closed when it has been released and its last run has ended.

    A context manager that keeps it open for a block, any number of them at a time.
    """

    __slots__ = ("_lock", "_on_closed", "_users", "prepared", "priority", "usual_ns")

    def __init__(
        self, prepared: PreparedModel, on_closed: Callable[[], None], priority: Priority = Priority.NONE
    ) -> None:
        self.prepared = prepared
        self.priority = priority
        # How long its runs take on the device, at most as a rule; 0 where that isn't known.
        self.usual_ns = 0
        self._on_closed = on_closed
        self._lock = threading.Lock()
        self._users = 1

    def __enter__(self) -> Self:
        with self._lock:
            if not self._users:
                raise UnknownHandle("the model has been released")
            self._users += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give up one use; the session itself is the first. A backend that can't close is logged: nobody can help."""
        with self._lock:
            self._users -= 1
            last = not self._users
        if last:
            try:
                self.prepared.close()
            except Exception:
                _log.exception("the backend failed to close a model")
            finally:
                self._on_closed()


class _Running:
    """Has a run among those that end with their session. On the way of every run: no generator."""

    __slots__ = ("_all", "_cancellation", "_session")

    def __init__(self, everything: set[Cancellation], session: "Session", cancellation: Cancellation) -> None:
        self._all = everything
        self._session = session
        self._cancellation = cancellation

    def __enter__(self) -> None:
        self._all.add(self._cancellation)
        if not self._session.is_open:
            self._cancellation.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.discard(self._cancellation)


class Session:
    """Models, buffers, uploads and runs of one client."""

    # Given when the client has said whose it is; no call can name the session before.
    account: Account

    def __init__(self, settings: Settings, client: str) -> None:
        self.id = secrets.token_bytes(16)
        self.client = client
        # Whether its client asks for that; what it sends compressed is taken in any case.
        self.wants_compression = False
        # The process at the other end of the side channel, once it has attached itself.
        self.side_peer: Peer | None = None
        self.last_heard = time.monotonic()
        self.budget = MemoryBudget(settings.session_bytes)
        self.constants = ConstantPool(self.budget)
        self.buffers = BufferPool(self.budget, settings.session_buffers)
        self.arrivals = Arrivals(self.budget)
        self.runs = Runs(self.budget)
        self._settings = settings
        self._lock = threading.Lock()
        self._stream_ended = threading.Condition(self._lock)
        self.is_open = True
        self._model_ids = count(1)
        self._models: dict[int, HeldModel] = {}
        self._prepared_by: dict[bytes, Prepared] = {}
        self._given_up: dict[bytes, None] = {}
        self._running: set[Cancellation] = set()
        self._on_close: set[Callable[[], object]] = set()
        self._side_connections: set[tuple[Callable[[], object]]] = set()
        self._under_way: Counter[str] = Counter()
        self._streams = 0
        self._streams_waiting = 0

    def attach(self, peer: Peer) -> None:
        """The process that the session's side channel leads to. Raises OperationForbidden for another one later."""
        with self._lock:
            if self.side_peer not in (None, peer):
                raise OperationForbidden("another process is attached to this session's side channel")
            self.side_peer = peer

    def touch(self) -> None:
        """The client has given a sign of life."""
        self.last_heard = time.monotonic()

    # ---- models

    def add_model(
        self, prepared: PreparedModel, on_closed: Callable[[], None], priority: Priority = Priority.NONE
    ) -> int:
        """Own a prepared model; its id. Raises OutOfMemory beyond the limit, UnavailableDevice after the end."""
        held = HeldModel(prepared, on_closed, priority)
        try:
            with self._lock:
                self._require_open()
                if len(self._models) >= self._settings.session_models:
                    raise OutOfMemory(
                        f"this session has {len(self._models)} prepared models, its limit;"
                        " release one, or raise the daemon's --session-models"
                    )
                model_id = next(self._model_ids)
                self._models[model_id] = held
        except BaseException:
            held.release()
            raise
        return model_id

    def model(self, model_id: int) -> HeldModel:
        if (held := self._models.get(model_id)) is None:
            raise UnknownHandle(f"this session has no model {model_id}")
        return held

    def find_model(self, model_id: int) -> HeldModel | None:
        """The same; None where there is none."""
        return self._models.get(model_id)

    def release_model(self, model_id: int) -> None:
        """Forget a model, if it exists."""
        with self._lock:
            held = self._models.pop(model_id, None)
            self._prepared_by = {key: made for key, made in self._prepared_by.items() if made.model_id != model_id}
        if held:
            held.release()
            self.buffers.release_all_of(model_id)

    def adopt_exported(self, model_id: int, parts: Sequence[memoryview]) -> list[int]:
        """Buffers that hold what a model exported, at most as long as the session holds the model."""
        buffer_ids = self.buffers.adopt_all(parts, owner=model_id)
        if model_id not in self._models:
            self.buffers.release_all_of(model_id)
            raise UnknownHandle("the model has been released")
        return buffer_ids

    def remember(self, request_id: bytes, made: Prepared) -> None:
        """Which compilation made a model, for a client that asks again because it lost the answer, or gives it up."""
        with self._lock:
            if request_id and made.model_id in self._models:
                self._prepared_by[request_id] = made
            is_given_up = request_id in self._given_up
        if is_given_up:
            self.release_model(made.model_id)

    def give_up(self, request_id: bytes) -> None:
        """Release what a compilation has made, or is about to make."""
        with self._lock:
            made = self._prepared_by.get(request_id)
            self._given_up[request_id] = None
            while len(self._given_up) > _REMEMBERED_REQUESTS:
                del self._given_up[next(iter(self._given_up))]
        if made:
            self.release_model(made.model_id)

    def prepared_by(self, request_id: bytes) -> Prepared | None:
        """The model that a compilation has made already."""
        return self._prepared_by.get(request_id)

    # ---- what runs on behalf of the client

    def running(self, cancellation: Cancellation) -> "_Running":
        """Cancel this if the session ends before the block does."""
        return _Running(self._running, self, cancellation)

    def call(self, end: Callable[[], object]) -> AbstractContextManager[None]:
        """Count a call that is no stream, and call `end` if the session ends first. Raises OutOfMemory beyond the
        limit."""
        return self._counted("calls", self._settings.session_calls, "--session-calls", end)

    def attendance(self, end: Callable[[], object]) -> AbstractContextManager[None]:
        """The same for a call that looks after runs. There are places for as many as there can be runs on streams, so
        that they depend on no other call."""
        return self._counted("calls for runs", self._settings.session_streams, "--session-streams", end)

    @contextmanager
    def side_connection(self, end: Callable[[], object]) -> Iterator[None]:
        """The same for a connection of the side channel: one for each stream, and one to share memory on. One that
        `break_off` has ended counts no more, though a run on it may go on."""
        place = (end,)
        with self._lock:
            self._require_open()
            if len(self._side_connections) > self._settings.session_streams:
                raise OutOfMemory(
                    f"this session has {len(self._side_connections)} connections to the side channel, its limit; use"
                    " fewer, or raise the daemon's --session-streams"
                )
            self._side_connections.add(place)
        try:
            yield
        finally:
            with self._lock:
                self._side_connections.discard(place)

    @contextmanager
    def _counted(self, what: str, limit: int, flag: str, end: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            self._require_open()
            if self._under_way[what] >= limit:
                raise OutOfMemory(
                    f"this session has {self._under_way[what]} {what} under way, its limit; make fewer at a time,"
                    f" or raise the daemon's {flag}"
                )
            self._under_way[what] += 1
            self._on_close.add(end)
        try:
            yield
        finally:
            with self._lock:
                self._under_way[what] -= 1
                self._on_close.discard(end)

    @contextmanager
    def open_stream(self, end: Callable[[], object]) -> Iterator[None]:
        """Count a stream of any kind, and call `end` if the session ends first. Raises OutOfMemory beyond the limit."""
        with self._lock:
            self._await_ending_streams()
            self._require_open()
            if self._streams >= self._settings.session_streams:
                raise OutOfMemory(
                    f"this session has {self._streams} streams open, its limit; use fewer at a time,"
                    " or raise the daemon's --session-streams"
                )
            self._streams += 1
            self._on_close.add(end)
        try:
            yield
        finally:
            with self._lock:
                self._streams -= 1
                self._on_close.discard(end)
                self._stream_ended.notify()

    def _await_ending_streams(self) -> None:
        """A client may open a stream the moment it has cancelled another, which is still on its way out here."""
        limit = self._settings.session_streams
        if self._streams >= limit and self._streams_waiting < limit:
            self._streams_waiting += 1
            self._stream_ended.wait_for(lambda: self._streams < limit, _STREAM_END_S)
            self._streams_waiting -= 1

    def break_off(self) -> None:
        """End the calls under way: their client has another connection now, and may not be able to end them itself."""
        with self._lock:
            endings = [*self._on_close, *(end for (end,) in self._side_connections)]
            self._side_connections.clear()
        for end in endings:
            end()

    def close(self) -> None:
        """Free everything. Runs in flight are cancelled; what they use is freed when they end. Idempotent."""
        with self._lock:
            if not self.is_open:
                return
            self.is_open = False
            models, self._models = self._models, {}
            endings = [*self._on_close, *(end for (end,) in self._side_connections)]
            self._on_close.clear()
        # The calls first: to its client a run cut off is a death, not a run that the device cancelled.
        for end in endings:
            end()
        for cancellation in list(self._running):
            cancellation.cancel()
        for held in models.values():
            held.release()
        self.runs.close()
        self.buffers.close()
        self.constants.clear()

    def _require_open(self) -> None:
        if not self.is_open:
            raise UnavailableDevice("the session has ended")


class _Entry:
    """A session and the stream its client is attached by."""

    __slots__ = ("detached_at", "hang_up", "session")

    def __init__(self, session: Session, hang_up: Callable[[], object]) -> None:
        self.session = session
        self.hang_up: Callable[[], object] | None = hang_up
        self.detached_at = math.inf


class Sessions:
    """All sessions of a daemon, by their unguessable id.

    A session is attached to one stream, or detached and kept for its client until the lease is over.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sessions: dict[bytes, _Entry] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def held_bytes(self) -> int:
        return sum(entry.session.budget.used_bytes for entry in list(self._sessions.values()))

    def open(self, client: str, hang_up: Callable[[], object]) -> Session:
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
            session = Session(self._settings, client)
            self._sessions[session.id] = _Entry(session, hang_up)
        if evicted is not None:
            _log.info("client %s has not come back; its session makes room for another", evicted.session.client)
            evicted.session.close()
        return session

    def of(self, session_id: bytes) -> Session:
        return self._entry(session_id).session

    def resume(self, session_id: bytes, hang_up: Callable[[], object]) -> Session:
        """Attach a session to a new stream; a stream it is still attached to is hung up, and calls are broken off.

        Raises UnknownHandle.
        """
        with self._lock:
            entry = self._entry(session_id)
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

    def tend_arrivals(self) -> None:
        """End the streams on which the rest of an input doesn't come, and free memory that was for others."""
        for entry in list(self._sessions.values()):
            entry.session.arrivals.tend(self._settings.heartbeat_timeout_s)

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

    def hang_up_all(self) -> None:
        """End every session; new ones may still come."""
        for entry in list(self._sessions.values()):
            if (hang_up := entry.hang_up) is not None:
                hang_up()
            self.close(entry.session)

    def _entry(self, session_id: bytes) -> _Entry:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise UnknownHandle("no such session; it ended, or the daemon was restarted: open a new one") from None
