"""Channel to a daemon: the session's stream (DeviceSession.Open), and the RPCs that end with it.

On a network the stream has a connection of its own. On a shared connection, heartbeats would wait behind tensors in its
send buffer: for two seconds behind 1 MB on a link of 4 Mbit/s.
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
from nnrt_hdi.v2 import (
    device_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    sequence_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from nnrt_hdi.wire import SESSION_METADATA
from nnrt_hdi.wire.run_messages import read_message

# Number of unanswered beats whose sending times are kept.
_LATE_BEATS = 16
# On the connection for RPCs, gRPC sends a ping after this much silence, and closes the connection if no answer comes
# within the second time, which is long enough for the data under way. (That connection may be lost while the session's
# stream works, for example if a router drops its state.)
_ASKED_MS, _GIVEN_UP_MS = 20_000, 60_000
# The client's gRPC closes a connection without calls after this time, or up to twice this time. If the daemon closed it
# first, after 30 s, gRPC would write an error to stderr.
_IDLE_MS = 12_000


class Channel:
    """Channel to a daemon. It sends Hello when it starts, and heartbeats ("beats") when asked.

    Only threads that receive no signals may use it.
    """

    def __init__(
        self, address: str, settings: Settings, session_id: bytes = b"", timeout_s: float | None = None
    ) -> None:
        """Open a session, or resume the one with this id. `replies` yields the daemon's answers.

        Raises InvalidPath, InvalidFile or OperationForbidden if the client's credentials can't be used, and
        ConnectionFailed if the daemon sends no ticket within `timeout_s` (connect_timeout_s by default).
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
        # Sending times of the latest beats, by sequence number.
        self._beats_sent: dict[int, int] = {}
        # No limits here: the daemon limits message sizes (Welcome.limits), and the client trusts its daemon.
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # The connection is not shared with other channels, so that it ends with this one.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.client_idle_timeout_ms", _IDLE_MS),
            *name_options(settings),
            *settings.channel_options,
        ]
        patience_s = settings.connect_timeout_s if timeout_s is None else timeout_s
        identity = token_metadata(address, settings) or ticket_metadata(address, patience_s)
        if address.startswith("unix:"):
            self._channel = self._stream_connection = _connection(address, settings, options)
        else:
            self._stream_connection = _connection(address, settings, options)
            asking = [("grpc.keepalive_time_ms", _ASKED_MS), ("grpc.keepalive_timeout_ms", _GIVEN_UP_MS)]
            self._channel = _connection(address, settings, [*asking, *options])
        models = prepared_model_pb2_grpc.PreparedModelStub(self._channel)
        self._stubs = {
            "NnrtDevice": device_pb2_grpc.NnrtDeviceStub(self._channel),
            "PreparedModel": models,
            "Sequences": sequence_pb2_grpc.SequencesStub(self._channel),
        }
        # These RPCs don't use protobuf's serializers, which would copy tensors several times.
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
        opener = session_pb2_grpc.DeviceSessionStub(self._stream_connection)
        self.replies = opener.Open(self._requests(), metadata=(*session, *identity))

    def method(self, name: str) -> Any:
        """Return gRPC's callable for an RPC, by its name, such as NnrtDevice.AllocateBuffer."""
        service, _, rpc = name.partition(".")
        return getattr(self._stubs[service], rpc)

    @contextmanager
    def cancelling_on_close(self, call: Any) -> Iterator[None]:
        """Cancel the call if the channel is closed inside the context.

        Otherwise gRPC would wait for a stopped daemon to read the bytes of the request.
        """
        self._calls.add(call)
        try:
            if self.is_lost:
                call.cancel()
            yield
        finally:
            self._calls.discard(call)

    def beat(self) -> None:
        """Send a beat now. Any thread may call this."""
        self._outbox.put(None)

    def pop_sent_ns(self, sequence: int) -> int | None:
        """Return when a beat was sent (time.perf_counter_ns()), and forget it.

        Return None if an earlier call has returned it, or if the beat is too old.
        """
        return self._beats_sent.pop(sequence, None)

    def say_goodbye(self) -> None:
        """Ask the daemon to end the session. Any thread may call this."""
        self._outbox.put(session_pb2.SessionRequest(goodbye=session_pb2.Goodbye()))

    def give_up(self, why: str) -> None:
        """Cancel the session's stream and store the reason. RPCs continue until `close`."""
        self.given_up = why
        self.replies.cancel()

    def close(self) -> None:
        """Cancel all RPCs, and close the channel in another thread, because gRPC may take long. Idempotent."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = self.is_lost = True
        self._outbox.put(None)
        for call in list(self._calls):
            call.cancel()
        threading.Thread(target=self._close, name=f"nnrt-close {self._address}", daemon=True).start()

    def wait_closed(self, timeout_s: float) -> None:
        """Wait until gRPC has closed the channel, if `close` was called."""
        if self._is_closing:
            self._closed.wait(timeout_s)

    def _close(self) -> None:
        try:
            self._channel.close()
            self._stream_connection.close()
        finally:
            self._closed.set()

    def _requests(self) -> Iterator[session_pb2.SessionRequest]:
        """Yield the client's messages of the session's stream. A thread of gRPC calls this."""
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
    """Make a gRPC channel, which connects at its first RPC."""
    if speaks_tls(address, settings):
        return grpc.secure_channel(address, channel_credentials(settings), options)
    return grpc.insecure_channel(address, options)
