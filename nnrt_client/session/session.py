"""One client's session with one daemon: how it begins, and the one place where it ends."""

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
from nnrt_client.session.errands import elsewhere
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

# What all sessions together get to say goodbye at the end of the interpreter.
_FAREWELL_S = 0.5

# Of a session's id where it must not stand whole.
_LABEL_LENGTH = 8


class Part(Protocol):
    """Something of an upper layer that every session has one of, and that ends with it."""

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until all is over that the end of the session ends."""


PartT = TypeVar("PartT", bound=Part)


class Session(Calls):
    """A session with a daemon instance. Once it is over it stays over; a new Session may find a new instance.

    The session outlives its channel. When that is lost, or silent for too long, a new one is tried for
    `reconnect_timeout_s`: either the daemon still knows the session, and everything goes on, or the daemon is dead.
    Calls made meanwhile wait for that verdict.
    """

    def __init__(self, address: str, settings: Settings, callbacks: ThreadPoolExecutor) -> None:
        """Open a session. Raises ConnectionFailed where no daemon answers in time, InvalidParameter for an address
        without a port, or what the daemon refuses with.

        What applications want to be called about is called in `callbacks`.
        """
        fork.require_original_process()
        fork.spoil_children()
        require_port(address)
        self.callbacks = callbacks
        # How many uploads there have been, one at a time: two could bring the same bytes.
        self.uploads = 0
        # Of what the daemon is asked to keep of runs.
        self.description_numbers = count(1)
        self._settled = Latch()
        self._ending_thread = 0
        self._parts: dict[type[Any], Any] = {}
        super().__init__(address, settings)
        self._keeper = Keeper(self, self.end)
        try:
            _farewells.add(self)
            self._keeper.start()
            self._await_welcome()
            self.info = wire.device_info(self.welcome.device)
            self.local_socket = LocalSocket.of(self)
            self.tracer = elsewhere(self._begin_tracing, tracer_of(settings.trace))
        except BaseException as error:
            self.end(error if isinstance(error, NnrtError) else UnavailableDevice("the session was not wanted"))
            # Who ends it starts a thread. If the interpreter ended meanwhile, that thread could crash Python 3.11.2.
            self._settled.wait(settings.verdict_timeout_s)
            raise

    def _make_locks(self) -> None:
        super()._make_locks()
        self._making_parts = threading.Lock()
        self.uploading = threading.Lock()

    def part(self, kind: type[PartT]) -> PartT:
        """Give the one object of a class that the session has; it is made of the session when it is first asked for."""
        found: PartT | None = self._parts.get(kind)
        return elsewhere(self._made_part, kind) if found is None else found

    def _made_part(self, kind: type[PartT]) -> PartT:
        with self._making_parts:
            if kind not in self._parts:
                self._parts[kind] = kind(self)  # type: ignore[call-arg]  # Each is made of its session.
            return self._parts[kind]  # type: ignore[no-any-return]

    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Have a thread for callbacks call this."""
        try:
            self.callbacks.submit(function, *arguments)
        except RuntimeError:  # The runtime has been closed meanwhile, and its threads with it.
            try:
                threading.Thread(target=function, args=arguments, name="nnrt-callback").start()
            except RuntimeError as error:  # Since Python 3.12, where the interpreter exits.
                _log.debug("nothing is called back: %s", error)

    # ---- the end

    def close(self) -> None:
        """Say goodbye, so that the daemon frees everything at once. Idempotent.

        When this returns, those who listen to the session's death have been told, and its channel is closed.
        """
        patience_s = self.settings.verdict_timeout_s
        if self.is_attached and self._channel is not None:
            self.is_closing = True
            self._channel.say_goodbye()
            self._over.wait(patience_s)
        self.end(UnavailableDevice("the session was closed", place=self.place))
        # Another thread may be ending it.
        if fork.is_child() or self._ending_thread == threading.get_ident():
            return
        if self._settled.wait(patience_s) and self._channel is not None:
            self._channel.wait_closed(patience_s)
        for part in list(self._parts.values()):
            part.wait_ended(patience_s)
        if self.tracer is not None:
            self.tracer.join(patience_s)

    def end(self, reason: NnrtError) -> None:
        """The one place where a session ends. What was in flight gets the reason. Idempotent."""
        if self.death is None:
            elsewhere(self._end, reason)

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
        _farewells.discard(self)
        _log.info("session over: %s", reason)
        try:
            for listener in listeners:
                try:
                    listener(reason)
                except Exception:
                    _log.exception("what follows the end of a session failed")
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
        """Say goodbye without ending anything here: the interpreter ends, and callbacks are no longer made."""
        self.is_leaving = True
        if self._channel is not None:
            self._channel.say_goodbye()


# The sessions that are open.
_farewells: set[Session] = set()


@atexit.register
def _take_leave() -> None:
    """Let the daemons free at once what this process leaves open."""
    leaving = [session for session in list(_farewells) if session.is_attached]
    for session in leaving:
        session.leave()
    deadline = time.monotonic() + _FAREWELL_S
    for session in leaving:
        session._keeper.wait_ended(max(deadline - time.monotonic(), 0.0))
