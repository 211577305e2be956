"""The way to a daemon: the session's stream, and the calls that end with it.

On a network the stream has a connection of its own. Signs of life would wait behind the tensors that a connection has
taken and not yet delivered: on a link of 4 Mbit/s for two seconds where that is 1 MB.
"""

import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from nnrt_client.session.credentials import (
    channel_credentials,
    name_options,
    speaks_tls,
    ticket_metadata,
    token_metadata,
)
from nnrt_client.session.latch import Latch
from nnrt_client.settings import Settings
from nnrt_hdi import PROTOCOL_MINOR, __version__
from nnrt_hdi.compression import FEATURE
from nnrt_hdi.v2 import device_pb2_grpc, prepared_model_pb2, prepared_model_pb2_grpc, session_pb2, session_pb2_grpc
from nnrt_hdi.wire import SESSION_METADATA
from nnrt_hdi.wire.run_messages import read_message

# Beats that are remembered until they are answered.
_LATE_BEATS = 16
# A connection with calls and without the session's stream is asked for a sign after so long a silence, and given up
# when none has come through what is under way there. (It may be lost alone: a router forgets it.)
_ASKED_MS, _GIVEN_UP_MS = 20_000, 60_000
# A connection without calls is closed from here after so long, or twice as long, as gRPC looks: before the daemon would
# (30 s), which gRPC writes to stderr as an error.
_IDLE_MS = 12_000


class Channel:
    """A channel to a daemon: says Hello, and beats when it is asked to. No thread that gets signals uses it."""

    def __init__(
        self, address: str, settings: Settings, session_id: bytes = b"", timeout_s: float | None = None
    ) -> None:
        """Begin a session, or resume the one of that id. `replies` tell what came of it.

        Raises InvalidPath, InvalidFile or OperationForbidden for what is to say who the client is, and ConnectionFailed
        where the daemon doesn't say whose it is within that time (without one, connect_timeout_s).
        """
        self._address = address
        self._outbox: queue.SimpleQueue[session_pb2.SessionRequest | None] = queue.SimpleQueue()
        self._features = [] if settings.compression == "none" else [FEATURE]
        self._lock = threading.Lock()
        self._is_closing = False
        self._closed = Latch()
        self._calls: set[Any] = set()
        self.is_lost = False
        self.given_up = ""
        # When the latest beats were sent, by their numbers.
        self._beats_sent: dict[int, int] = {}
        # Message sizes are the daemon's to limit (Welcome.limits); the client trusts the daemon it was told to use.
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # A connection of its own: it ends when the channel does.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.client_idle_timeout_ms", _IDLE_MS),
            *name_options(settings),
            *settings.channel_options,
        ]
        patience_s = settings.connect_timeout_s if timeout_s is None else timeout_s
        identity = token_metadata(address, settings) or ticket_metadata(address, patience_s)
        if address.startswith("unix:"):
            self._channel = self._signs = _connection(address, settings, options)
        else:
            self._signs = _connection(address, settings, options)
            asking = [("grpc.keepalive_time_ms", _ASKED_MS), ("grpc.keepalive_timeout_ms", _GIVEN_UP_MS)]
            self._channel = _connection(address, settings, [*asking, *options])
        models = prepared_model_pb2_grpc.PreparedModelStub(self._channel)
        self._stubs = {"NnrtDevice": device_pb2_grpc.NnrtDeviceStub(self._channel), "PreparedModel": models}
        # Protobuf would copy tensors several times.
        models.RunStream = self._channel.stream_stream(
            "/nnrt_hdi.v2.PreparedModel/RunStream",
            request_serializer=None,
            response_deserializer=read_message,
        )
        models.AwaitRun = self._channel.unary_stream(
            "/nnrt_hdi.v2.PreparedModel/AwaitRun",
            request_serializer=prepared_model_pb2.AwaitRunRequest.SerializeToString,
            response_deserializer=read_message,
        )
        session = ((SESSION_METADATA, session_id),) if session_id else ()
        opener = session_pb2_grpc.DeviceSessionStub(self._signs)
        self.replies = opener.Open(self._requests(), metadata=(*session, *identity))

    def method(self, name: str) -> Any:
        """The RPC of that name, such as NnrtDevice.AllocateBuffer."""
        service, _, rpc = name.partition(".")
        return getattr(self._stubs[service], rpc)

    @contextmanager
    def holding(self, call: Any) -> Iterator[None]:
        """Have a call end with the channel: gRPC waits until a stopped daemon takes the bytes of a request."""
        self._calls.add(call)
        try:
            if self.is_lost:
                call.cancel()
            yield
        finally:
            self._calls.discard(call)

    def beat(self) -> None:
        """Beat now. For any thread."""
        self._outbox.put(None)

    def sent_ns(self, sequence: int) -> int | None:
        """When the beat of that number was sent (time.perf_counter_ns); None of one that has been asked for, or is
        long ago."""
        return self._beats_sent.pop(sequence, None)

    def say_goodbye(self) -> None:
        """Tell the daemon to end the session. For any thread."""
        self._outbox.put(session_pb2.SessionRequest(goodbye=session_pb2.Goodbye()))

    def give_up(self, why: str) -> None:
        """Cancel the session's stream, and remember why; calls go on until `close`."""
        self.given_up = why
        self.replies.cancel()

    def close(self) -> None:
        """End every call, and the channel in a thread of its own: that may take gRPC long. Idempotent."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = self.is_lost = True
        self._outbox.put(None)
        for call in list(self._calls):
            call.cancel()
        threading.Thread(target=self._close, name=f"nnrt-close {self._address}", daemon=True).start()

    def wait_closed(self, timeout_s: float) -> None:
        """Wait until gRPC has closed it, if `close` was called."""
        if self._is_closing:
            self._closed.wait(timeout_s)

    def _close(self) -> None:
        try:
            self._channel.close()
            self._signs.close()
        finally:
            self._closed.set()

    def _requests(self) -> Iterator[session_pb2.SessionRequest]:
        """Runs in a thread of gRPC's."""
        hello = session_pb2.Hello(
            protocol_minor=PROTOCOL_MINOR,
            features=self._features,
            client_name=f"nnrt-client {__version__}",
            user=str(os.getuid()),
        )
        yield session_pb2.SessionRequest(hello=hello)
        sequence = 0
        while not self._is_closing:
            last_words = self._outbox.get()
            if last_words is not None:
                yield last_words
                return
            if self._is_closing:
                return
            sequence += 1
            self._beats_sent.pop(sequence - _LATE_BEATS, None)
            self._beats_sent[sequence] = time.perf_counter_ns()
            yield session_pb2.SessionRequest(beat=session_pb2.Beat(sequence=sequence))


def _connection(address: str, settings: Settings, options: list[tuple[str, Any]]) -> grpc.Channel:
    """A connection of gRPC's, made when the first call needs it."""
    if speaks_tls(address, settings):
        return grpc.secure_channel(address, channel_credentials(settings), options)
    return grpc.insecure_channel(address, options)
