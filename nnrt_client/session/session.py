"""Session of a client with one daemon process."""

import atexit
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Protocol, TypeVar

from nnrt_client.session import fork
from nnrt_client.session.address import require_port
from nnrt_client.session.calls import Calls
from nnrt_client.session.connection_state import CLOSED
from nnrt_client.session.errands import call_in_worker
from nnrt_client.session.latch import Latch
from nnrt_client.session.local_socket import LocalSocket
from nnrt_client.session.reconnecting import Keeper
from nnrt_client.settings import Settings
from nnrt_client.tracing.choice import tracer_of
from nnrt_client.tracing.tracer import SessionTracer, Site, Tracer
from nnrt_hdi import wire
from nnrt_hdi.errors import ConnectionFailed, NnrtError, UnavailableDevice
from nnrt_hdi.run_times import TRACES_FEATURE

_log = logging.getLogger(__name__)

# Limit for sending the goodbyes of all sessions when the interpreter exits.
_FAREWELL_S = 0.5

# Number of hex digits of a session's id in traces, which must not show the whole id.
_LABEL_LENGTH = 8


class Part(Protocol):
    """Object of an upper layer. Each session has at most one of a class, which ends with the session."""

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until the object's work has ended, after the session has."""


PartT = TypeVar("PartT", bound=Part)


class Session(Calls):
    """Session with one daemon process. A session that has ended is not opened again.

    The session outlives its channel. When the channel is lost, or silent for too long, the session tries new channels
    for `reconnect_timeout_s`. If the daemon still knows the session, everything goes on; otherwise the daemon counts as
    dead, and the session ends. RPCs made meanwhile wait for this decision.
    """

    def __init__(self, address: str, settings: Settings, callbacks: ThreadPoolExecutor) -> None:
        """Open a session. It calls callbacks of the application in threads of `callbacks`.

        Raises ConnectionFailed if no daemon answers in time, InvalidParameter for an address without a port, and the
        error with which the daemon refuses the session.
        """
        fork.require_original_process()
        fork.spoil_children()
        require_port(address)
        self.callbacks = callbacks
        # Number of uploads so far. `uploading` lets only one run at a time, because two could send the same bytes.
        self.uploads = 0
        # Numbers of the run descriptions that the daemon is asked to keep.
        self.description_numbers = count(1)
        self.sequence_ids = count(1)
        self._settled = Latch()
        self._ending_thread = 0
        self._parts: dict[type[Any], Any] = {}
        super().__init__(address, settings)
        self._keeper = Keeper(self, self.end)
        try:
            _open_sessions.add(self)
            self._keeper.start()
            self._await_welcome()
            self.info = wire.device_info(self.welcome.device)
            self.local_socket = LocalSocket.connect(self)
            self.tracer = call_in_worker(self._begin_tracing, tracer_of(settings.trace))
        except BaseException as error:
            self.end(error if isinstance(error, NnrtError) else UnavailableDevice("the session was not wanted"))
            # `end` starts a thread, which could crash Python 3.11.2 if the interpreter exited meanwhile.
            self._settled.wait(settings.verdict_timeout_s)
            raise

    def _make_locks(self) -> None:
        super()._make_locks()
        self._making_parts = threading.Lock()
        self.uploading = threading.Lock()

    def part(self, kind: type[PartT]) -> PartT:
        """Return the session's object of a class. The first call creates it."""
        found: PartT | None = self._parts.get(kind)
        return call_in_worker(self._make_part, kind) if found is None else found

    def _make_part(self, kind: type[PartT]) -> PartT:
        with self._making_parts:
            if kind not in self._parts:
                self._parts[kind] = kind(self)  # type: ignore[call-arg]  # Each class takes the session.
            return self._parts[kind]  # type: ignore[no-any-return]

    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Call `function` in a thread for callbacks."""
        try:
            self.callbacks.submit(function, *arguments)
        except RuntimeError:  # The runtime with its threads was closed meanwhile.
            try:
                threading.Thread(target=function, args=arguments, name="nnrt-callback").start()
            except RuntimeError as error:  # The interpreter is exiting (from Python 3.12 on).
                _log.debug("nothing is called back: %s", error)

    # ---- the end

    def close(self) -> None:
        """End the session, and ask the daemon to free everything at once. Idempotent.

        When this returns, the listeners to the session's death have been called, and its channel is closed, unless that
        takes longer than `verdict_timeout_s`.
        """
        patience_s = self.settings.verdict_timeout_s
        if self.is_attached and self._channel is not None:
            self.is_closing = True
            self._channel.say_goodbye()
            self._over.wait(patience_s)
        self.end(UnavailableDevice(CLOSED, place=self.place))
        # Wait below for another thread that may be ending the session, but not for this one.
        if fork.is_child() or self._ending_thread == threading.get_ident():
            return
        if self._settled.wait(patience_s) and self._channel is not None:
            self._channel.wait_closed(patience_s)
        for part in list(self._parts.values()):
            part.wait_ended(patience_s)
        if self.tracer is not None:
            self.tracer.join(patience_s)

    def end(self, reason: NnrtError) -> None:
        """End the session: everything in flight ends with `reason`. Idempotent.

        Every end of a session goes through this method.
        """
        if self.death is None:
            call_in_worker(self._end, reason)

    def _end(self, reason: NnrtError) -> None:
        with self._lock:
            if self.death is not None:
                return
            self._ending_thread = threading.get_ident()
            self.death = reason
            self.is_attached = False
            listeners, self._on_death = self._on_death, []
        self._over.set()
        self._changes.announce()
        _open_sessions.discard(self)
        _log.info("session over: %s", reason)
        try:
            for listener in listeners:
                try:
                    listener(reason)
                except Exception:
                    _log.exception("a listener to the end of a session failed")
        finally:
            self._keeper.close()
            if self._channel is not None:
                self._channel.close()
            if self.tracer is not None:
                self.tracer.end()
            self._settled.set()

    def _begin_tracing(self, tracer: Tracer | None) -> SessionTracer | None:
        if tracer is None:
            return None
        welcome = self.welcome
        return tracer.of_session(
            Site(
                self.info.device_name,
                self.address,
                welcome.session_id.hex()[:_LABEL_LENGTH],
                TRACES_FEATURE in welcome.features,
                self.info.capabilities.profiling,
            )
        )

    def _await_welcome(self) -> None:
        timeout_s = self.settings.connect_timeout_s
        if not self._changes.wait_for(lambda: self.is_attached or self.death is not None, timeout_s):
            self.end(ConnectionFailed(f"no answer within {timeout_s:g} s (opening a session)", place=self.place))
        self.require_alive()

    def _enter_child(self, reason: NnrtError) -> None:
        super()._enter_child(reason)
        self._settled.set()

    def leave(self) -> None:
        """Ask the daemon to end the session because the interpreter exits. The client's objects stay as they are."""
        self.is_leaving = True
        if self._channel is not None:
            self._channel.say_goodbye()


_open_sessions: set[Session] = set()


@atexit.register
def _say_goodbyes() -> None:
    """Ask the daemons to end all open sessions, because the interpreter exits, so that they free memory at once."""
    leaving = [session for session in list(_open_sessions) if session.is_attached]
    for session in leaving:
        session.leave()
    deadline = time.monotonic() + _FAREWELL_S
    for session in leaving:
        session._keeper.wait_ended(max(deadline - time.monotonic(), 0.0))
