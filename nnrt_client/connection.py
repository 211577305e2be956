"""One client's session with one daemon: opened, kept alive, and declared dead in exactly one place."""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from nnrt_client.settings import Settings
from nnrt_hdi import PROTOCOL_MINOR, __version__, wire
from nnrt_hdi.backend import DeviceState
from nnrt_hdi.errors import ConnectionFailed, NnrtError, TimedOut, UnavailableDevice
from nnrt_hdi.v2 import device_pb2_grpc, prepared_model_pb2_grpc, session_pb2, session_pb2_grpc

_log = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")

# Signs of life per heartbeat timeout: one may be lost or late without anybody being taken for dead.
_BEATS_PER_TIMEOUT = 4
_MIN_INTERVAL_S = 0.02


class Connection:
    """A session with a daemon instance. Once it is over it stays over; a new Connection may find a new instance.

    Every RPC goes through `call` or `stream`, which give it a deadline and translate what goes wrong.
    """

    def __init__(self, address: str, settings: Settings) -> None:
        """Open a session. Raises ConnectionFailed where no daemon answers in time, or what the daemon refuses with."""
        self.address = address
        self.settings = settings
        self.death: NnrtError | None = None
        self.state = DeviceState()
        # One upload at a time, for two could bring the same bytes; and how many there have been.
        self.uploading = threading.Lock()
        self.uploads = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._welcomed = threading.Event()
        self._settled = threading.Event()
        self._is_closing = False
        self._ending_thread = 0
        self._calls: set[Any] = set()
        self._on_death: list[Callable[[NnrtError], None]] = []
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._last_heard = time.monotonic()
        self._interval_s = settings.connect_timeout_s
        # Message sizes are the daemon's to limit (Welcome.limits); the client trusts the daemon it was told to use.
        self._channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                # A connection of its own: it ends when the session does.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
                *settings.channel_options,
            ],
        )
        self.device = device_pb2_grpc.NnrtDeviceStub(self._channel)
        self.models = prepared_model_pb2_grpc.PreparedModelStub(self._channel)
        self.metadata: tuple[tuple[str, bytes], ...] = ()
        self.welcome = self._open()
        self.info = wire.device_info(self.welcome.device)
        self.metadata = ((wire.SESSION_METADATA, self.welcome.session_id),)

    @property
    def is_alive(self) -> bool:
        return not self._over.is_set()

    def call(self, method: Callable[..., ReplyT], request: Any, timeout_s: float, what: str) -> ReplyT:
        """One RPC with one reply."""
        with self.translated(what, timeout_s):
            started = method.future(request, timeout=timeout_s, metadata=self.metadata)  # type: ignore[attr-defined]
            with self._cancelled_at_the_end(started):
                return started.result()  # type: ignore[no-any-return]

    def stream(self, method: Callable[..., Any], request: Any, timeout_s: float, what: str) -> Iterator[Any]:
        """One RPC with many replies, translated while they are read."""
        with self.translated(what, timeout_s):
            started = method(request, timeout=timeout_s, metadata=self.metadata)
            with self._cancelled_at_the_end(started):
                yield from started

    def start(self, method: Callable[..., Any], requests: Iterator[Any]) -> Any:
        """Begin a call that lasts as long as the caller likes; whoever reads it asks `verdict` about its end."""
        with self.translated("opening a stream"):
            return method(requests, metadata=self.metadata)

    @contextmanager
    def _cancelled_at_the_end(self, call: Any) -> Iterator[None]:
        """Give a call up when the session ends: gRPC waits until a stopped daemon takes the bytes of a request."""
        self._calls.add(call)
        try:
            if not self.is_alive:
                call.cancel()
            yield
        except grpc.FutureCancelledError:
            self.require_alive()
            raise
        finally:
            self._calls.discard(call)

    @contextmanager
    def translated(self, what: str, timeout_s: float | None = None) -> Iterator[None]:
        """Turn a gRPC failure inside the block into NNRt's."""
        self.require_alive()
        try:
            yield
        except grpc.RpcError as error:
            raise self.verdict(error, what, timeout_s) from error
        except ValueError:  # gRPC's way to say that the channel was closed meanwhile.
            self.require_alive()
            raise

    def verdict(self, failure: Any, what: str, timeout_s: float | None = None) -> NnrtError:
        """What a failed RPC means: what the daemon says, or the daemon's death, or trouble on the way."""
        if error := wire.error_detail_of(failure):
            return error
        status = failure.code()
        if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            # The session's stream breaks at about the same moment if the daemon is gone.
            if self._over.wait(self.settings.verdict_timeout_s):
                assert self.death is not None
                return self.death.copy()
            return ConnectionFailed(f"{what} broke off: {failure.details()}", place=self.place)
        if status is grpc.StatusCode.DEADLINE_EXCEEDED and timeout_s is not None:
            return TimedOut(f"no answer within {timeout_s:g} s (deadline of {what})", place=self.place)
        return wire.error_of_status(failure).at(self.place)

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

    def close(self) -> None:
        """Say goodbye, so that the daemon frees everything at once. Idempotent."""
        if self.is_alive:
            self._is_closing = True
            self._outbox.put(session_pb2.SessionRequest(goodbye=session_pb2.Goodbye()))
            self._over.wait(self.settings.verdict_timeout_s)
        self._end(UnavailableDevice("the session was closed", place=self.place))
        # Another thread may be ending it: when this returns, what was in flight has been told.
        patience_s = self.settings.verdict_timeout_s
        if self._ending_thread != threading.get_ident() and self._settled.wait(patience_s):
            self._closing.join(patience_s)

    # ---- the session's stream

    def _open(self) -> Any:
        """Send Hello and wait for Welcome; leaves a thread that reads the stream until it ends."""
        stub = session_pb2_grpc.DeviceSessionStub(self._channel)
        self._call = stub.Open(self._requests(), wait_for_ready=False)
        threading.Thread(target=self._read, name=f"nnrt-session {self.address}", daemon=True).start()
        self._welcomed.wait(self.settings.connect_timeout_s)
        if self.death is None and not self._welcomed.is_set():
            self._end(
                ConnectionFailed(
                    f"no answer within {self.settings.connect_timeout_s:g} s (opening a session)",
                    place=self.place,
                )
            )
        self.require_alive()
        return self._welcome

    def _requests(self) -> Iterator[Any]:
        """Hello, then beats until the session is over. Runs in a thread of gRPC's."""
        hello = session_pb2.Hello(
            protocol_minor=PROTOCOL_MINOR, client_name=f"nnrt-client {__version__}", user=str(os.getuid())
        )
        yield session_pb2.SessionRequest(hello=hello)
        sequence = 0
        while self.is_alive:
            try:
                last_words = self._outbox.get(timeout=self._interval_s)
            except queue.Empty:
                pass
            else:
                if last_words is None:
                    continue  # Something changed: whether the session lives, or how often to beat.
                yield last_words
                return
            sequence += 1
            yield session_pb2.SessionRequest(beat=session_pb2.Beat(sequence=sequence))

    def _watch(self) -> None:
        """Hold the daemon for dead after its silence. In a thread of its own, for the one that sends beats waits while
        a stopped daemon takes no bytes."""
        timeout_s = self.settings.heartbeat_timeout_s
        silence_s = 0.0
        while silence_s < timeout_s:
            looked_at = time.monotonic()
            if self._over.wait(min(self._interval_s, timeout_s - silence_s)):
                return
            now = time.monotonic()
            if now - looked_at > 2 * self._interval_s:
                self._last_heard = now  # This process stood still, so it could not have heard anything.
            silence_s = now - self._last_heard
        self._end(
            UnavailableDevice(
                f"it has been silent for {silence_s:.1f} s (heartbeat_timeout_s is {timeout_s:g}) and counts as dead",
                place=self.place,
            )
        )

    def _read(self) -> None:
        try:
            for reply in self._call:
                self._last_heard = time.monotonic()
                if reply.HasField("welcome"):
                    self._begin(reply.welcome)
                elif reply.HasField("beat"):
                    self.state = wire.device_state(reply.beat.state)
            ending = "the session was closed" if self._is_closing else "it ended the session"
            reason: NnrtError = UnavailableDevice(ending, place=self.place)
        except grpc.RpcError as error:
            reason = self._end_reason(error)
        self._end(reason)

    def _begin(self, welcome: Any) -> None:
        self._welcome = welcome
        timeout_s = min(self.settings.heartbeat_timeout_s, welcome.heartbeat_timeout_ms / 1000)
        self._interval_s = max(timeout_s / _BEATS_PER_TIMEOUT, _MIN_INTERVAL_S)
        self._outbox.put(None)
        threading.Thread(target=self._watch, name=f"nnrt-watch {self.address}", daemon=True).start()
        self._welcomed.set()

    def _end_reason(self, error: Any) -> NnrtError:
        if told := wire.error_detail_of(error):
            return told
        if not self._welcomed.is_set():
            return ConnectionFailed(f"no daemon answers: {error.details()}", place=self.place)
        return UnavailableDevice(f"it is gone: {error.details()}; build again, there or elsewhere", place=self.place)

    def _end(self, reason: NnrtError) -> None:
        """The one place where a session ends. What was in flight gets the reason."""
        with self._lock:
            if self.death is not None:
                return
            self.death = reason
            listeners, self._on_death = self._on_death, []
        self._over.set()
        self._welcomed.set()
        self._outbox.put(None)
        _log.info("session over: %s", reason)
        self._ending_thread = threading.get_ident()
        for call in list(self._calls):
            call.cancel()
        for listener in listeners:
            try:
                listener(reason)
            except Exception:
                _log.exception("what follows the end of a session failed")
        # In a thread of its own, for it waits like the calls above.
        self._closing = threading.Thread(target=self._channel.close, name=f"nnrt-close {self.address}", daemon=True)
        self._closing.start()
        self._settled.set()
