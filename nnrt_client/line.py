"""What a connection consists of at a time: a channel, and the session's stream on it. It breaks as a whole."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from nnrt_client.settings import Settings
from nnrt_hdi import PROTOCOL_MINOR, __version__
from nnrt_hdi.compression import FEATURE
from nnrt_hdi.run_codec import REPLY_READERS, serialized
from nnrt_hdi.v2 import session_pb2, session_pb2_grpc
from nnrt_hdi.wire import SESSION_METADATA


class Line:
    """A channel with the session's stream open on it: says Hello and then beats, until it is closed."""

    def __init__(self, address: str, settings: Settings, session_id: bytes = b"") -> None:
        """Begin a session, or resume the one of that id. `replies` tell what came of it."""
        self._address = address
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._interval_s = settings.connect_timeout_s
        self._features = [] if settings.compression == "none" else [FEATURE]
        self._is_over = False
        self._lock = threading.Lock()
        self._closing: threading.Thread | None = None
        self.given_up = ""
        # Message sizes are the daemon's to limit (Welcome.limits); the client trusts the daemon it was told to use.
        self.channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                # A connection of its own: it ends when the line does.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
                *settings.channel_options,
            ],
        )
        metadata = ((SESSION_METADATA, session_id),) if session_id else ()
        self.replies = session_pb2_grpc.DeviceSessionStub(self.channel).Open(self._requests(), metadata=metadata)

    def beat_every(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._outbox.put(None)

    def say_goodbye(self) -> None:
        self._outbox.put(session_pb2.SessionRequest(goodbye=session_pb2.Goodbye()))

    def give_up(self, why: str) -> None:
        """End the stream; other calls go on until `close`."""
        self.given_up = why
        self.replies.cancel()

    def close(self) -> None:
        """End every call, in a thread of its own: gRPC waits until a stopped daemon takes the bytes of a request.
        Idempotent."""
        with self._lock:
            if self._closing is not None:
                return
            self._is_over = True
            self._outbox.put(None)
            self._closing = threading.Thread(target=self.channel.close, name=f"nnrt-close {self._address}", daemon=True)
            self._closing.start()

    def wait_closed(self, timeout_s: float) -> None:
        if self._closing is not None:
            self._closing.join(timeout_s)

    def _requests(self) -> Iterator[Any]:
        """Runs in a thread of gRPC's."""
        hello = session_pb2.Hello(
            protocol_minor=PROTOCOL_MINOR,
            features=self._features,
            client_name=f"nnrt-client {__version__}",
            user=str(os.getuid()),
        )
        yield session_pb2.SessionRequest(hello=hello)
        sequence = 0
        while not self._is_over:
            try:
                last_words = self._outbox.get(timeout=self._interval_s)
            except queue.Empty:
                pass
            else:
                if last_words is None:
                    continue  # Something changed: whether the line is open, or how often to beat.
                yield last_words
                return
            sequence += 1
            yield session_pb2.SessionRequest(beat=session_pb2.Beat(sequence=sequence))


class Method:
    """An RPC on whatever line stands when it is called."""

    def __init__(self, channel: Callable[[], grpc.Channel], arity: str, path: str, options: dict[str, Any]) -> None:
        self.path = path
        self._channel = channel
        self._arity = arity
        self._options = options
        if read := REPLY_READERS.get(path):
            self._options |= {"request_serializer": serialized, "response_deserializer": read}

    def __call__(self, request: Any, **options: Any) -> Any:
        return self._on_the_line()(request, **options)

    def future(self, request: Any, **options: Any) -> Any:
        return self._on_the_line().future(request, **options)

    def _on_the_line(self) -> Any:
        return getattr(self._channel(), self._arity)(self.path, **self._options)


class Exchange:
    """Stands in for a channel where stubs are made, so that they outlive it."""

    def __init__(self, channel: Callable[[], grpc.Channel]) -> None:
        self._channel = channel

    def unary_unary(self, path: str, **options: Any) -> Method:
        return Method(self._channel, "unary_unary", path, options)

    def unary_stream(self, path: str, **options: Any) -> Method:
        return Method(self._channel, "unary_stream", path, options)

    def stream_unary(self, path: str, **options: Any) -> Method:
        return Method(self._channel, "stream_unary", path, options)

    def stream_stream(self, path: str, **options: Any) -> Method:
        return Method(self._channel, "stream_stream", path, options)
