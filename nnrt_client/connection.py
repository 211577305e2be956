"""One client's session with one daemon: opened, kept when its line is lost, and declared dead in exactly one place."""

import atexit
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeVar

import grpc

from nnrt_client import fork
from nnrt_client.endpoint import Endpoint
from nnrt_client.line import Exchange, Line
from nnrt_client.savings import Compressor
from nnrt_client.settings import Settings
from nnrt_hdi import wire
from nnrt_hdi.backend import DeviceState
from nnrt_hdi.compression import FEATURE
from nnrt_hdi.errors import ConnectionFailed, NnrtError, TimedOut, UnavailableDevice
from nnrt_hdi.v2 import device_pb2_grpc, prepared_model_pb2_grpc

_log = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")

# Signs of life per heartbeat timeout: one may be lost or late without anybody being taken for dead.
_BEATS_PER_TIMEOUT = 4
_MIN_INTERVAL_S = 0.02
# Between attempts to find a lost daemon again; doubled each time.
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
# What all sessions together get to say goodbye at the end of the interpreter.
_FAREWELL_S = 0.5

# Calls that may be made again when their connection was lost, for to the daemon twice is once.
_REPEATABLE = {
    "/nnrt_hdi.v2.NnrtDevice/GetDeviceStatus",
    "/nnrt_hdi.v2.NnrtDevice/GetSupportedOperation",
    "/nnrt_hdi.v2.NnrtDevice/ReleaseBuffer",
    "/nnrt_hdi.v2.PreparedModel/CancelRuns",
    "/nnrt_hdi.v2.PreparedModel/ExportModelCache",
    "/nnrt_hdi.v2.PreparedModel/GetInputDimRanges",
    "/nnrt_hdi.v2.PreparedModel/Release",
}
_TRIES = 3

_CUT_OFF = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class Connection(fork.LockOwner):
    """A session with a daemon instance. Once it is over it stays over; a new Connection may find a new instance.

    The session outlives its line. When that is lost, or silent for too long, a new one is tried for
    `reconnect_timeout_s`: either the daemon still knows the session, and everything goes on, or the daemon is dead.
    Calls made meanwhile wait for that verdict.

    Every RPC goes through `call` or `stream`, which give it a deadline and translate what goes wrong.
    """

    def __init__(self, address: str, settings: Settings) -> None:
        """Open a session. Raises ConnectionFailed where no daemon answers in time, or what the daemon refuses with."""
        fork.require_original_process()
        fork.spoil_children()
        self.address = address
        self.settings = settings
        self.death: NnrtError | None = None
        self.welcome: Any = None
        self.state = DeviceState()
        self.uploads = 0
        # Where chunks are compressed, on both sides' word.
        self.compressor: Compressor | None = None
        self.metadata: tuple[tuple[str, bytes], ...] = ()
        # How often the session has been attached to a line, and whether it is.
        self.attachment = 0
        self.is_attached = False
        self._is_closing = False
        self._is_leaving = False
        self._ending_thread = 0
        self._why_lost = ""
        self._calls: set[Any] = set()
        self._on_death: list[Callable[[NnrtError], None]] = []
        self._on_attached: list[Callable[[], None]] = []
        self._interval_s = settings.connect_timeout_s
        self._run_ids = count(1)
        super().__init__()
        self._line = Line(address, settings)
        # The line that is listened to, and until when something must have been heard on it.
        self._listening: tuple[Line, float] = self._line, math.inf
        exchange = Exchange(lambda: self._line.channel)
        self.device = device_pb2_grpc.NnrtDeviceStub(exchange)
        self.models = prepared_model_pb2_grpc.PreparedModelStub(exchange)
        self._attending = threading.Thread(target=self._attend, name=f"nnrt-session {address}", daemon=True)
        self._attending.start()
        self.info = wire.device_info(self._awaited_welcome().device)

    def make_locks(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # One upload at a time, for two could bring the same bytes; `uploads` counts them.
        self.uploading = threading.Lock()
        self._over = threading.Event()
        self._welcomed = threading.Event()
        self._settled = threading.Event()

    @property
    def is_alive(self) -> bool:
        return not self._over.is_set()

    def next_run_id(self) -> int:
        """A number that no other run of the session has."""
        return next(self._run_ids)

    def call(self, method: Callable[..., ReplyT], request: Any, timeout_s: float, what: str) -> ReplyT:
        """One RPC with one reply. Made again if the connection was lost and the RPC may be repeated."""
        deadline = time.monotonic() + timeout_s
        tries = _TRIES if method.path in _REPEATABLE else 1  # type: ignore[attr-defined]
        while True:
            tries -= 1
            try:
                with self.translated(what, timeout_s):
                    remaining_s = max(deadline - time.monotonic(), 0.0)
                    started = method.future(request, timeout=remaining_s, metadata=self.metadata)  # type: ignore[attr-defined]
                    with self._cancelled_with_the_line(started):
                        return started.result()  # type: ignore[no-any-return]
            except ConnectionFailed:
                if not tries or time.monotonic() >= deadline:
                    raise

    def stream(self, method: Callable[..., Any], request: Any, timeout_s: float, what: str) -> Iterator[Any]:
        """One RPC with many replies, translated while they are read."""
        with self.translated(what, timeout_s):
            started = method(request, timeout=timeout_s, metadata=self.metadata)
            with self._cancelled_with_the_line(started):
                yield from started

    def tell(self, method: Callable[..., Any], request: Any) -> None:
        """An RPC whose outcome doesn't matter, if the session is attached; waits a moment for it."""
        if self.is_attached:
            # ValueError is gRPC's way to say that the channel was closed meanwhile.
            with suppress(grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError, ValueError):
                started = method.future(request, timeout=self.settings.query_timeout_s, metadata=self.metadata)  # type: ignore[attr-defined]
                started.result(self.settings.verdict_timeout_s)

    def start(self, method: Callable[..., Any], request: Any) -> Any:
        """Begin a call that lasts as long as the caller likes; whoever reads it asks `verdict` about its end.

        Waits for nothing; on a line that is lost the call breaks off like one begun before. Raises UnavailableDevice.
        """
        self.require_alive()
        try:
            return method(request, metadata=self.metadata)
        except ValueError as error:  # gRPC's way to say that the channel was closed meanwhile.
            self.require_alive()
            raise ConnectionFailed("the connection was lost", place=self.place) from error

    @contextmanager
    def _cancelled_with_the_line(self, call: Any) -> Iterator[None]:
        """Give a call up with its line: gRPC waits until a stopped daemon takes the bytes of a request."""
        self._calls.add(call)
        try:
            if not self.is_alive:
                call.cancel()
            yield
        finally:
            self._calls.discard(call)

    @contextmanager
    def translated(self, what: str, timeout_s: float | None = None) -> Iterator[None]:
        """Turn a gRPC failure inside the block into NNRt's. Waits before it while a verdict is out."""
        since = self.attachment
        if not self.is_attached:
            since = self._await_verdict(what)
        try:
            yield
        except grpc.RpcError as error:
            error.__traceback__ = (
                None  # The error is the call: in a cycle, it would keep all frames up to the caller's.
            )
            raise self.verdict(error, what, timeout_s, since) from error
        except (grpc.FutureCancelledError, ValueError) as error:  # The call, or its channel, was closed with the line.
            if death := self._sentence(since):
                raise death from error
            if self.attachment == since:
                raise
            raise ConnectionFailed(f"{what} broke off: the connection was lost", place=self.place) from error

    def verdict(self, failure: Any, what: str, timeout_s: float | None = None, since: int | None = None) -> NnrtError:
        """What a failed RPC means: what the daemon says, or the daemon's death, or trouble on the way.

        `since` is the attachment during which the RPC began.
        """
        if error := wire.error_detail_of(failure):
            return error
        status = failure.code()
        if status in _CUT_OFF:
            return self._sentence(self.attachment if since is None else since) or ConnectionFailed(
                f"{what} broke off: {failure.details()}", place=self.place
            )
        if status is grpc.StatusCode.DEADLINE_EXCEEDED and timeout_s is not None:
            return TimedOut(f"no answer within {timeout_s:g} s (deadline of {what})", place=self.place)
        return wire.error_of_status(failure).at(self.place)

    @staticmethod
    def was_cut_off(failure: Any) -> bool:
        """Whether a failed RPC said nothing of why it ended."""
        return wire.error_detail_of(failure) is None and failure.code() in _CUT_OFF

    def _sentence(self, since: int) -> NnrtError | None:
        """Wait until it is decided what became of the line of an attachment; the session's death, if that is it."""
        with self._changed:
            # The session's stream breaks at about the same moment if the line is lost.
            self._changed.wait_for(
                lambda: self.death is not None or self.attachment != since or not self.is_attached,
                self.settings.verdict_timeout_s,
            )
            self._changed.wait_for(lambda: self.death is not None or self.is_attached, self._patience_s)
        return self.death.copy() if self.death else None

    def _await_verdict(self, what: str) -> int:
        """Wait until the session is attached again; the attachment. Raises the session's death."""
        with self._changed:
            self._changed.wait_for(lambda: self.death is not None or self.is_attached, self._patience_s)
            self.require_alive()
            if not self.is_attached:
                raise ConnectionFailed(f"the connection is lost ({what} was not begun)", place=self.place)
            return self.attachment

    @property
    def _patience_s(self) -> float:
        return self.settings.reconnect_timeout_s + self.settings.verdict_timeout_s

    @property
    def place(self) -> str:
        return f"daemon at {self.address}"

    def require_alive(self) -> None:
        """Raise the error this session ended with, if it has."""
        if self.death is not None:
            raise self.death.copy()

    def on_death(self, listener: Callable[[NnrtError], None]) -> None:
        """Call this once when the session ends; at once if it already has."""
        with self._lock:
            if self.death is None:
                self._on_death.append(listener)
                return
        listener(self.death)

    def on_attached(self, listener: Callable[[], None]) -> None:
        """Call this whenever the session has been attached to another line."""
        self._on_attached.append(listener)

    def close(self) -> None:
        """Say goodbye, so that the daemon frees everything at once. Idempotent.

        When this returns, those who listen to the session's death have been told, and its line is closed.
        """
        if self.is_attached:
            self._is_closing = True
            self._line.say_goodbye()
            self._over.wait(self.settings.verdict_timeout_s)
        self._end(UnavailableDevice("the session was closed", place=self.place))
        if fork.is_child():
            return
        patience_s = self.settings.verdict_timeout_s
        # Another thread may be ending it.
        if self._ending_thread != threading.get_ident() and self._settled.wait(patience_s):
            self._line.wait_closed(patience_s)

    # ---- the session's stream

    def _awaited_welcome(self) -> Any:
        if not self._welcomed.wait(self.settings.connect_timeout_s):
            self._end(
                ConnectionFailed(
                    f"no answer within {self.settings.connect_timeout_s:g} s (opening a session)", place=self.place
                )
            )
        self.require_alive()
        return self.welcome

    def _attend(self) -> None:
        """Listen to the session's line; when it is lost, find the daemon again, until there is a verdict."""
        try:
            death = self._listen(self._line)
            while death is None and not self._is_leaving:
                death = self._recover()
        except Exception as error:  # Such as no descriptors left. Nobody else would end what is in flight.
            _log.exception("%s: looking after the session failed", self.place)
            death = UnavailableDevice(f"its session could not be kept: {error!r}; build again", place=self.place)
        if death is not None:
            self._end(death)

    def _listen(self, line: Line) -> NnrtError | None:
        """Read a line to its end: why the session is over, None if only the line is."""
        try:
            for reply in line.replies:
                if reply.HasField("welcome"):
                    if death := self._attach(line, reply.welcome):
                        return death
                elif reply.HasField("beat"):
                    self.state = wire.device_state(reply.beat.state)
                self._listening = line, time.monotonic() + self.settings.heartbeat_timeout_s
        except grpc.RpcError as error:
            if self._is_closing:
                return UnavailableDevice("the session was closed", place=self.place)
            told = wire.error_detail_of(error)
            if self.welcome is None:
                return told or ConnectionFailed(f"no daemon answers: {error.details()}", place=self.place)
            if told is not None:
                return UnavailableDevice(f"it is gone: {told.message}", place=self.place)
            if line is self._line:
                self._why_lost = line.given_up or f"the connection broke: {error.details()}"
            return None
        if self._is_leaving:
            return None
        ending = "the session was closed" if self._is_closing else "it ended the session"
        return UnavailableDevice(ending, place=self.place)

    def _attach(self, line: Line, welcome: Any) -> NnrtError | None:
        """The daemon welcomes us on a line. Returns the session's death if it is not the one that was to be resumed."""
        if self.welcome is None:
            return self._begin(line, welcome)
        if welcome.session_id != self.welcome.session_id:
            line.say_goodbye()
            return UnavailableDevice("it is gone: another one answers in its place", place=self.place)
        line.beat_every(self._interval_s)
        with self._changed:
            lost, self._line = self._line, line
            self.attachment += 1
            self.is_attached = self.death is None
            self._changed.notify_all()
        for call in list(self._calls):
            call.cancel()
        lost.close()
        _log.info("%s: found again, nothing is lost", self.place)
        for listener in list(self._on_attached):
            listener()
        return None

    def _begin(self, line: Line, welcome: Any) -> NnrtError | None:
        """The session begins, unless its Welcome comes too late. Returns like `_attach`."""
        self.metadata = ((wire.SESSION_METADATA, welcome.session_id),)
        timeout_s = min(self.settings.heartbeat_timeout_s, welcome.heartbeat_timeout_ms / 1000)
        self._interval_s = max(timeout_s / _BEATS_PER_TIMEOUT, _MIN_INTERVAL_S)
        line.beat_every(self._interval_s)
        self._listening = line, time.monotonic() + self.settings.heartbeat_timeout_s
        with self._changed:
            if self.death is not None:
                return self.death
            self.welcome = welcome
            if FEATURE in welcome.features:
                self.compressor = Compressor()
            self.is_attached = True
            _farewells.add(self)
        threading.Thread(target=self._watch, name=f"nnrt-watch {self.address}", daemon=True).start()
        self._welcomed.set()
        self._endpoint = Endpoint(self.address)
        return None

    def _recover(self) -> NnrtError | None:
        """Try to resume the session on new lines, and listen to the one on which that works. Returns like `_listen`."""
        grace_s = self.settings.reconnect_timeout_s if self.welcome.lease_ms else 0.0
        until = time.monotonic() + grace_s
        with self._changed:
            self.is_attached = False
            self._changed.notify_all()
        _log.info("%s: %s", self.place, self._why_lost)
        attachment, pause_s = self.attachment, _FIRST_PAUSE_S
        while (remaining_s := until - time.monotonic()) > 0:
            line = Line(self.address, self.settings, self.welcome.session_id)
            with self._changed:
                self._listening = line, until
                self._changed.notify_all()  # `_watch` has something to wait for.
            if self._over.is_set():
                line.close()
                break
            death = self._listen(line)
            if death is not None or self.attachment != attachment:
                return death
            line.close()
            if self._endpoint.refuses(remaining_s):
                return UnavailableDevice(
                    f"it is gone: {self._why_lost}, and nobody listens there any more; build again, there or elsewhere",
                    place=self.place,
                )
            self._over.wait(max(min(pause_s, until - time.monotonic()), 0.0))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        if not grace_s:
            return UnavailableDevice(f"it is gone: {self._why_lost}; build again, there or elsewhere", place=self.place)
        return UnavailableDevice(
            f"{self._why_lost}; it did not answer again within {grace_s:g} s (reconnect_timeout_s) and counts as dead",
            place=self.place,
        )

    def _watch(self) -> None:
        """Give up the line on which nothing is heard. In a thread of its own, for the one that sends beats waits while
        a stopped daemon takes no bytes."""
        timeout_s = self.settings.heartbeat_timeout_s
        while self.is_alive:
            with self._changed:
                looked_at = time.monotonic()
                line, until = awaited = self._listening
                self._changed.wait(min(max(until - looked_at, 0.0), self._interval_s))
            now = time.monotonic()
            if self._listening is not awaited:
                continue  # Something was heard.
            if now - looked_at > 2 * self._interval_s:
                self._listening = (
                    line,
                    now + timeout_s,
                )  # This process stood still, so it could not have heard anything.
            elif now >= until:
                self._listening = line, math.inf
                silence_s = now - until + timeout_s
                line.give_up(f"it has been silent for {silence_s:.1f} s (heartbeat_timeout_s is {timeout_s:g})")

    def _end(self, reason: NnrtError) -> None:
        """The one place where a session ends. What was in flight gets the reason."""
        with self._changed:
            if self.death is not None:
                return
            self.death = reason
            self.is_attached = False
            listeners, self._on_death = self._on_death, []
            self._over.set()
            self._changed.notify_all()
        self._welcomed.set()
        _farewells.discard(self)
        _log.info("session over: %s", reason)
        self._ending_thread = threading.get_ident()
        for call in list(self._calls):
            call.cancel()
        for listener in listeners:
            try:
                listener(reason)
            except Exception:
                _log.exception("what follows the end of a session failed")
        self._listening[0].close()
        self._line.close()
        self._settled.set()

    def enter_child(self, reason: NnrtError) -> None:
        self._on_death.clear()
        self._on_attached.clear()
        self.is_attached = False
        self.death = self.death or reason.at(self.place)
        for event in (self._over, self._welcomed, self._settled):
            event.set()

    def leave(self) -> None:
        """Say goodbye without ending anything here: the interpreter ends, and callbacks are no longer made."""
        self._is_leaving = True
        self._line.say_goodbye()

    def wait_left(self, timeout_s: float) -> None:
        """Wait until the daemon has answered the goodbye of `leave`."""
        self._attending.join(timeout_s)


# The sessions that are open.
_farewells: set[Connection] = set()


@atexit.register
def _take_leave() -> None:
    """Let the daemons free at once what this process leaves open."""
    leaving = [connection for connection in list(_farewells) if connection.is_attached]
    for connection in leaving:
        connection.leave()
    deadline = time.monotonic() + _FAREWELL_S
    for connection in leaving:
        connection.wait_left(max(deadline - time.monotonic(), 0.0))
