"""One client's session: it owns what the client made and frees it when the client goes."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from nnrt_device_service.buffers import BufferPool
from nnrt_device_service.constants import ConstantPool
from nnrt_device_service.memory import MemoryBudget
from nnrt_device_service.scheduler import Account
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import OutOfMemory, UnavailableDevice, UnknownHandle

_log = logging.getLogger(__name__)

# How long a stream that was cancelled may take to end before it counts against the limit.
_STREAM_END_S = 1.0


class HeldModel:
    """A prepared model of a session. Closed when it has been released and its last run has ended."""

    def __init__(
        self, prepared: PreparedModel, on_closed: Callable[[], None], priority: Priority = Priority.NONE
    ) -> None:
        self.prepared = prepared
        self.priority = priority
        self._on_closed = on_closed
        self._lock = threading.Lock()
        self._users = 1

    @contextmanager
    def in_use(self) -> Iterator[PreparedModel]:
        with self._lock:
            if not self._users:
                raise UnknownHandle("the model has been released")
            self._users += 1
        try:
            yield self.prepared
        finally:
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


class Session:
    """Models, buffers, uploads and runs of one client."""

    # Given when the client has said whose it is; no call can name the session before.
    account: Account

    def __init__(self, settings: Settings, client: str) -> None:
        self.id = secrets.token_bytes(16)
        self.client = client
        self.last_heard = time.monotonic()
        self.budget = MemoryBudget(settings.session_bytes)
        self.constants = ConstantPool(self.budget)
        self.buffers = BufferPool(self.budget)
        self._settings = settings
        self._lock = threading.Lock()
        self._stream_ended = threading.Condition(self._lock)
        self._is_open = True
        self._model_ids = count(1)
        self._models: dict[int, HeldModel] = {}
        self._running: set[Cancellation] = set()
        self._on_close: set[Callable[[], object]] = set()
        self._calls = 0
        self._streams = 0
        self._streams_waiting = 0

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
        try:
            return self._models[model_id]
        except KeyError:
            raise UnknownHandle(f"this session has no model {model_id}") from None

    def release_model(self, model_id: int) -> None:
        """Forget a model, if it exists."""
        with self._lock:
            held = self._models.pop(model_id, None)
        if held:
            held.release()

    # ---- what runs on behalf of the client

    @contextmanager
    def running(self, cancellation: Cancellation) -> Iterator[None]:
        """Cancel this if the session ends before the block does."""
        self._running.add(cancellation)
        try:
            if not self._is_open:
                cancellation.cancel()
            yield
        finally:
            self._running.discard(cancellation)

    @contextmanager
    def call(self, end: Callable[[], object]) -> Iterator[None]:
        """Count a call that is no stream, and call `end` if the session ends first. Raises OutOfMemory beyond the
        limit."""
        with self._lock:
            self._require_open()
            if self._calls >= self._settings.session_calls:
                raise OutOfMemory(
                    f"this session has {self._calls} calls under way, its limit; make fewer at a time,"
                    " or raise the daemon's --session-calls"
                )
            self._calls += 1
            self._on_close.add(end)
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
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

    def close(self) -> None:
        """Free everything. Runs in flight are cancelled; what they use is freed when they end. Idempotent."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            models, self._models = self._models, {}
            endings, self._on_close = self._on_close, set()
        # The calls first: to its client a run cut off is a death, not a run that the device cancelled.
        for end in endings:
            end()
        for cancellation in list(self._running):
            cancellation.cancel()
        for held in models.values():
            held.release()
        self.buffers.clear()
        self.constants.clear()

    def _require_open(self) -> None:
        if not self._is_open:
            raise UnavailableDevice("the session has ended")


class Sessions:
    """All sessions of a daemon, by their unguessable id."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sessions: dict[bytes, tuple[Session, Callable[[], object]]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def held_bytes(self) -> int:
        return sum(session.budget.used_bytes for session, _ in list(self._sessions.values()))

    def open(self, client: str, hang_up: Callable[[], object]) -> Session:
        """A new session; `hang_up` ends its stream. Raises OutOfMemory beyond the limit."""
        with self._lock:
            if len(self._sessions) >= self._settings.max_sessions:
                raise OutOfMemory(
                    f"the daemon serves {len(self._sessions)} clients, its limit; try again later,"
                    " or raise the daemon's --max-sessions"
                )
            session = Session(self._settings, client)
            self._sessions[session.id] = session, hang_up
        return session

    def of(self, session_id: bytes) -> Session:
        try:
            return self._sessions[session_id][0]
        except KeyError:
            raise UnknownHandle("no such session; it ended, or the daemon was restarted: open a new one") from None

    def close(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)
        session.close()

    def forgive_silence(self) -> None:
        """Nobody could be heard: this process itself stood still."""
        for session, _ in list(self._sessions.values()):
            session.touch()

    def hang_up_silent(self) -> Sequence[Session]:
        """End the sessions that have been silent for too long; which ones."""
        horizon = time.monotonic() - self._settings.heartbeat_timeout_s
        silent = [entry for entry in list(self._sessions.values()) if entry[0].last_heard < horizon]
        for session, hang_up in silent:
            hang_up()
            self.close(session)
        return [session for session, _ in silent]

    def hang_up_all(self) -> None:
        for session, hang_up in list(self._sessions.values()):
            hang_up()
            self.close(session)
