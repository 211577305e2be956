"""One client's session with one daemon: the calls that are made in it, and the one place where it ends."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from typing import Any, Protocol, TypeVar

import grpc

from nnrt_client.session import fork
from nnrt_client.session.address import require_port
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.channel import Channel
from nnrt_client.session.compression import Compressor
from nnrt_client.session.daemon_clock import DaemonClock
from nnrt_client.session.errands import elsewhere
from nnrt_client.session.latch import Changes, Latch
from nnrt_client.session.local_socket import LocalSocket
from nnrt_client.session.reconnecting import Keeper
from nnrt_client.settings import Settings
from nnrt_client.tracing.choice import tracer_of
from nnrt_client.tracing.tracer import Metadata, SessionTracer, Site, Tracer
from nnrt_hdi import wire
from nnrt_hdi.backend import DeviceState
from nnrt_hdi.compression import FEATURE
from nnrt_hdi.errors import ConnectionFailed, NnrtError, TimedOut, UnavailableDevice
from nnrt_hdi.files.model_store import FEATURE as STORE_FEATURE
from nnrt_hdi.run_times import TRACES_FEATURE
from nnrt_hdi.v2 import session_pb2

_log = logging.getLogger(__name__)

# What all sessions together get to say goodbye at the end of the interpreter.
_FAREWELL_S = 0.5

# Calls that may be made again when their channel was lost, for to the daemon twice is once.
_REPEATABLE = {
    "NnrtDevice.GetCounters",
    "NnrtDevice.GetDeviceStatus",
    "NnrtDevice.GetSupportedOperation",
    "NnrtDevice.ReleaseBuffer",
    "PreparedModel.CancelRuns",
    "PreparedModel.ExportModelCache",
    "PreparedModel.GetInputDimRanges",
    "PreparedModel.Release",
}
_TRIES = 3
# Of a session's id where it must not stand whole.
_LABEL_LENGTH = 8

Guard = Callable[[Any], AbstractContextManager[object]]
# The guard of a call that nobody but the session ends.
unguarded: Guard = nullcontext


class Part(Protocol):
    """Something of an upper layer that every session has one of, and that ends with it."""

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until all is over that the end of the session ends."""


PartT = TypeVar("PartT", bound=Part)


class Session(fork.LockOwner):
    """A session with a daemon instance. Once it is over it stays over; a new Session may find a new instance.

    The session outlives its channel. When that is lost, or silent for too long, a new one is tried for
    `reconnect_timeout_s`: either the daemon still knows the session, and everything goes on, or the daemon is dead.
    Calls made meanwhile wait for that verdict.

    Every RPC goes through `call`, `stream`, `tell` or `start`: they name it ("NnrtDevice.AllocateBuffer"), give it a
    deadline and translate what goes wrong. A `guard` is entered with each call while it is under way; what it raises in
    place of gRPC's error is what the caller gets.
    """

    # From the daemon, when the session begins.
    welcome: session_pb2.Welcome

    def __init__(self, address: str, settings: Settings, callbacks: ThreadPoolExecutor) -> None:
        """Open a session. Raises ConnectionFailed where no daemon answers in time, InvalidParameter for an address
        without a port, or what the daemon refuses with.

        What applications want to be called about is called in `callbacks`.
        """
        fork.require_original_process()
        fork.spoil_children()
        require_port(address)
        self.address = address
        self.settings = settings
        self.callbacks = callbacks
        self.death: NnrtError | None = None
        self.state = DeviceState()
        self.clock = DaemonClock()
        # How many uploads there have been, one at a time: two could bring the same bytes.
        self.uploads = 0
        # Of what the daemon is asked to keep of runs.
        self.description_numbers = count(1)
        # Where chunks are compressed, on both sides' word.
        self.compressor: Compressor | None = None
        self.metadata: Metadata = ()
        # None where nobody is told of runs.
        self.tracer: SessionTracer | None = None
        # How often the session has been attached to a channel, and whether it is.
        self.attachment = 0
        self.is_attached = False
        self.is_closing = False
        self._channel: Channel | None = None
        self._changes = Changes()
        self._over = Latch()
        self._settled = Latch()
        self._ending_thread = 0
        self._parts: dict[type[Any], Any] = {}
        self._on_death: list[Callable[[NnrtError], None]] = []
        self._on_attached: list[Callable[[], None]] = []
        super().__init__()
        self._keeper = Keeper(self)
        try:
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
        self._lock = threading.RLock()
        self._making_parts = threading.Lock()
        self.uploading = threading.Lock()

    @property
    def place(self) -> str:
        """The daemon, for messages."""
        return f"daemon at {self.address}"

    @property
    def is_alive(self) -> bool:
        return self.death is None

    def require_alive(self) -> None:
        """Raise the error this session ended with, if it has."""
        if self.death is not None:
            raise self.death.copy()

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

    # ---- calls

    def call(self, name: str, request: Any, timeout_s: float, guard: Guard = unguarded) -> Any:
        """Make one RPC with one reply; make it again if its channel was lost and the RPC may be repeated."""
        with self._traced(name) as metadata:
            return elsewhere(self._call, name, request, timeout_s, guard, metadata)

    def _traced(self, name: str) -> AbstractContextManager[Metadata]:
        return nullcontext(()) if self.tracer is None else self.tracer.calling(name)

    def _call(self, name: str, request: Any, timeout_s: float, guard: Guard, metadata: Metadata) -> Any:
        deadline = time.monotonic() + timeout_s
        tries = _TRIES if name in _REPEATABLE else 1
        while True:
            tries -= 1
            try:
                with self._on_channel(name, timeout_s) as channel:
                    remaining_s = max(deadline - time.monotonic(), 0.0)
                    begun = channel.method(name).future(
                        request, timeout=remaining_s, metadata=(*self.metadata, *metadata)
                    )
                    with channel.holding(begun), guard(begun):
                        return begun.result()
            except ConnectionFailed:
                if not tries or time.monotonic() >= deadline:
                    raise

    def stream(self, name: str, request: Any, timeout_s: float, guard: Guard = unguarded) -> Generator[Any, None, None]:
        """Make one RPC with many replies, translated while they are read. For threads of ours."""
        with self._traced(name) as metadata, self._on_channel(name, timeout_s) as channel:
            begun = channel.method(name)(request, timeout=timeout_s, metadata=(*self.metadata, *metadata))
            with channel.holding(begun), guard(begun):
                yield from begun

    def tell(self, name: str, request: Any) -> None:
        """Make an RPC whose outcome doesn't matter, if the session is attached; waits a moment for it."""
        if self.is_attached:
            elsewhere(self._tell, name, request)

    def _tell(self, name: str, request: Any) -> None:
        channel = self._channel
        if channel is None:
            return
        # ValueError is gRPC's way to say that the channel was closed meanwhile.
        with suppress(grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError, ValueError):
            begun = channel.method(name).future(request, timeout=self.settings.query_timeout_s, metadata=self.metadata)
            begun.result(self.settings.verdict_timeout_s)

    def start(self, name: str, request: Any) -> Any:
        """Begin a call that lasts as long as the caller likes; whoever reads it asks `verdict` about its end.

        Waits for nothing; on a channel that is lost the call breaks off like one begun before. Raises
        UnavailableDevice, or ConnectionFailed. For threads of ours.
        """
        self.require_alive()
        assert self._channel is not None
        try:
            return self._channel.method(name)(request, metadata=self.metadata)
        except ValueError as error:  # gRPC's way to say that the channel was closed meanwhile.
            self.require_alive()
            raise ConnectionFailed("the connection was lost", place=self.place) from error

    @contextmanager
    def _on_channel(self, name: str, timeout_s: float) -> Iterator[Channel]:
        """Give a call its channel, and turn its failure into NNRt's. Waits before it while a verdict is out."""
        since = self._await_attached(name)
        channel = self._channel
        assert channel is not None
        try:
            yield channel
        except grpc.RpcError as error:
            raise self.verdict(BrokenCall.of(error), name, timeout_s, since) from error
        except (grpc.FutureCancelledError, ValueError) as error:  # The call, or its channel, was closed.
            if isinstance(error, ValueError) and not channel.is_lost:
                raise
            raise self.verdict(BrokenCall("the connection was lost"), name, timeout_s, since) from error

    def verdict(
        self, broken: BrokenCall, name: str, timeout_s: float | None = None, since: int | None = None
    ) -> NnrtError:
        """Tell what a failed RPC means: what the daemon says, or the daemon's death, or trouble on the way.

        Waits until it is decided what becomes of the channel. `since` is the attachment during which the RPC began.
        """
        if broken.is_late and timeout_s is not None:
            return TimedOut(f"no answer within {timeout_s:g} s (deadline of {name})", place=self.place)
        if broken.error is not None:
            return broken.error.copy() if broken.is_told else broken.error.at(self.place)
        return self._sentence(self.attachment if since is None else since) or ConnectionFailed(
            f"{name} broke off: {broken.details}", place=self.place
        )

    def _sentence(self, since: int) -> NnrtError | None:
        """Wait until it is decided what became of an attachment's channel; give the session's death, if that is it."""
        # The session's stream breaks at about the same moment if the channel is lost.
        self._changes.wait_for(
            lambda: self.death is not None or self.attachment != since or not self.is_attached,
            self.settings.verdict_timeout_s,
        )
        self._changes.wait_for(lambda: self.death is not None or self.is_attached, self._patience_s)
        return self.death.copy() if self.death else None

    def _await_attached(self, name: str) -> int:
        """Wait until the session is attached; give the attachment. Raises the session's death."""
        if not self.is_attached:
            self._changes.wait_for(lambda: self.death is not None or self.is_attached, self._patience_s)
            self.require_alive()
            if not self.is_attached:
                raise ConnectionFailed(f"the connection is lost ({name} was not begun)", place=self.place)
        return self.attachment

    @property
    def keeps_models(self) -> bool:
        """Whether the daemon keeps what it compiles, for the next time."""
        return STORE_FEATURE in self.welcome.features

    @property
    def _patience_s(self) -> float:
        return self.settings.reconnect_timeout_s + self.settings.verdict_timeout_s

    # ---- the keeper's

    def begin(self, channel: Channel, welcome: session_pb2.Welcome) -> bool:
        """Take the daemon's welcome on a channel; false where the session is over already."""
        with self._lock:
            if self.death is not None:
                return False
            self._channel = channel
            self.welcome = welcome
            self.metadata = ((wire.SESSION_METADATA, welcome.session_id),)
            if FEATURE in welcome.features:
                self.compressor = Compressor()
            self.is_attached = True
            _farewells.add(self)
        self._changes.announce()
        return True

    def attach(self, channel: Channel) -> None:
        """Go on with the session on another channel. Only the calls of the one before are cancelled."""
        with self._lock:
            lost, self._channel = self._channel, channel
            self.attachment += 1
            self.is_attached = self.death is None
        self._changes.announce()
        if lost is not None:
            lost.close()
        if self.death is not None:
            channel.close()
        _log.info("%s: found again, nothing is lost", self.place)
        for listener in list(self._on_attached):
            listener()

    def detach(self, why: str) -> None:
        """Have calls wait: the channel is lost."""
        self.is_attached = False
        self._changes.announce()
        _log.info("%s: %s", self.place, why)

    # ---- the end

    def on_death(self, listener: Callable[[NnrtError], None]) -> None:
        """Call this once when the session ends; at once if it already has."""
        with self._lock:
            if self.death is None:
                self._on_death.append(listener)
                return
        listener(self.death)

    def on_attached(self, listener: Callable[[], None]) -> None:
        """Call this whenever the session has been attached to another channel."""
        self._on_attached.append(listener)

    def wait_over(self, timeout_s: float) -> bool:
        """Wait for the end of the session, so long at most; whether it is over."""
        return self._over.wait(timeout_s)

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
        self._on_death.clear()
        self._on_attached.clear()
        self._changes = Changes()
        self.is_attached = False
        self.death = self.death or reason.at(self.place)
        self._over.set()
        self._settled.set()

    def leave(self) -> None:
        """Say goodbye without ending anything here: the interpreter ends, and callbacks are no longer made."""
        self._keeper.is_leaving = True
        if self._channel is not None:
            self._channel.say_goodbye()

    @property
    def is_leaving(self) -> bool:
        """True while this process is about to end, and has said goodbye."""
        return self._keeper.is_leaving

    def wait_left(self, timeout_s: float) -> None:
        """Wait until the daemon has answered the goodbye of `leave`."""
        self._keeper.wait_ended(timeout_s)


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
        session.wait_left(max(deadline - time.monotonic(), 0.0))
