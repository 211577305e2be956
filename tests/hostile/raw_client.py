"""Client that opens a session, checks nothing, and can send any bytes as a message."""

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import numpy as np
import pytest
from daemon_process import DaemonProcess
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from model_draft import Draft
from typing_extensions import Self

from nnrt_hdi import wire
from nnrt_hdi.tensor import Array, TensorSpec, data_type_of
from nnrt_hdi.v2 import device_pb2, model_pb2, prepared_model_pb2, sequence_pb2, session_pb2

ResultT = TypeVar("ResultT")
Metadata = Sequence[tuple[str, str | bytes]]

DEADLINE_S = 30.0
CHUNK_BYTES = 100_000
# An idle daemon uses about 70 MiB; a hostile client must not make it use the memory that the client asks for.
MEMORY_BYTES = 600 << 20
# Flags of the attacked daemons: sessions send no heartbeats, and must outlast the tests.
FLAGS = ("--heartbeat-timeout-s", "600")

# The run that proves that a daemon still computes.
INPUT, VALUES, SUM = (10, 20, 30), (1, 2, 3), (11, 22, 33)


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC, from its protobuf descriptor."""

    name: str
    path: str
    request: type[Message]
    reply: type[Message]
    client_streaming: bool
    server_streaming: bool

    @property
    def arity(self) -> str:
        return "_".join("stream" if many else "unary" for many in (self.client_streaming, self.server_streaming))


def _methods() -> Iterator[Method]:
    for file in (session_pb2, device_pb2, prepared_model_pb2, sequence_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield Method(
                    f"{service.name}.{method.name}",
                    f"/{service.full_name}/{method.name}",
                    GetMessageClass(method.input_type),
                    GetMessageClass(method.output_type),
                    method.client_streaming,
                    method.server_streaming,
                )


METHODS = {method.name: method for method in _methods()}


class Conversation:
    """Call that stays open until it is ended; its requests are sent one by one.

    Every call can be made as a stream of requests, because gRPC's transport treats them all alike.
    """

    def __init__(
        self, channel: grpc.Channel, method: Method, metadata: Metadata, timeout_s: float | None = 2 * DEADLINE_S
    ) -> None:
        self._requests: queue.SimpleQueue[Message | bytes | None] = queue.SimpleQueue()
        multi_callable = _multi_callable(channel, method, "stream_stream")
        self._call = multi_callable(iter(self._requests.get, None), metadata=metadata, timeout=timeout_s)

    def send(self, *requests: Message | bytes) -> None:
        for request in requests:
            self._requests.put(request)

    def end_requests(self) -> None:
        self._requests.put(None)

    def receive(self) -> Any:
        """Return the next reply. Raises the error of a failed call, and StopIteration after the last reply."""
        with _translated():
            return next(self._call)

    def failure(self) -> grpc.StatusCode:
        """Wait until the call has ended, and return its status."""
        code: grpc.StatusCode = self._call.code()
        self.end_requests()
        return code

    @property
    def is_over(self) -> bool:
        return bool(self._call.done())

    def cancel(self) -> None:
        """Cancel the call, in any state."""
        self._call.cancel()
        self.end_requests()


class RawClient:
    """Session with a daemon. The client notices the session's end only at its next call."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
            ],
        )
        self.metadata: Metadata = ()
        self.session = Conversation(self.channel, METHODS["DeviceSession.Open"], (), timeout_s=None)
        self.session.send(session_pb2.SessionRequest(hello=session_pb2.Hello(client_name="raw")))
        try:
            self.welcome = self.session.receive().welcome
        except BaseException:
            self.close()
            raise
        self.metadata = ((wire.SESSION_METADATA, self.welcome.session_id),)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.session.send(session_pb2.SessionRequest(goodbye=session_pb2.Goodbye()))
        self.session.end_requests()
        self.session.failure()
        self.channel.close()

    def call(self, method: str, *requests: Message | bytes, metadata: Metadata | None = None) -> list[Any]:
        """Return all replies of a call.

        Raises the error that the daemon reports, or grpc.RpcError if it reports none.
        """
        about = METHODS[method]
        multi_callable = _multi_callable(self.channel, about, about.arity)
        request = iter(requests) if about.client_streaming else requests[0]
        with _translated():
            replies = multi_callable(
                request, metadata=self._metadata_of(method) if metadata is None else metadata, timeout=DEADLINE_S
            )
            return list(replies) if about.server_streaming else [replies]

    def ask(self, method: str, *requests: Message) -> Any:
        """Return the last reply of a call."""
        return self.call(method, *requests)[-1]

    def converse(self, method: str) -> Conversation:
        """Begin a call whose requests are sent later, or never."""
        return Conversation(self.channel, METHODS[method], self._metadata_of(method))

    def _metadata_of(self, method: str) -> Metadata:
        """Return no metadata for `Open`, else the session's: with it, `Open` would resume the client's own session."""
        return () if method == "DeviceSession.Open" else self.metadata

    # ---- what a well-behaved client does too

    def supported(self, model: "model_pb2.Model") -> list[Any]:
        return list(
            self.ask("NnrtDevice.GetSupportedOperation", device_pb2.GetSupportedOperationRequest(model=model)).nodes
        )

    def prepare(self, model: "model_pb2.Model", config: "model_pb2.ModelConfig | None" = None) -> Any:
        """Return the outcome of PrepareModel: `missing` or `prepared`."""
        return self.ask("NnrtDevice.PrepareModel", device_pb2.PrepareModelRequest(model=model, config=config))

    def prepare_sum(self, values: Sequence[float] = VALUES) -> int:
        """Prepare the sum of an input and these values, and return the model's id."""
        return int(self.prepare(Draft.sum_of_input_and(values).message).prepared.model_id)

    def upload(self, *constants: bytes) -> int:
        """Upload constants with their digests, and return how many the daemon accepted."""
        reply = self.ask("NnrtDevice.UploadConstants", *(chunk for data in constants for chunk in chunks(data)))
        return int(reply.completed)

    def run(self, model_id: int, *inputs: Array) -> list[Array]:
        """Run a model on inline inputs, and return the outputs."""
        request = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[io_tensor(array) for array in inputs])
        return [wire.io_array(output) for output in self.ask("PreparedModel.Run", request).outputs]

    def allocate(self, length: int) -> int:
        """Allocate a buffer, and return its id."""
        reply = self.ask("NnrtDevice.AllocateBuffer", device_pb2.AllocateBufferRequest(length=length))
        return int(reply.buffer.region.buffer_id)

    def read(self, region: "model_pb2.BufferRegion") -> bytes:
        return b"".join(chunk.data for chunk in self.call("NnrtDevice.ReadBuffer", region))


def chunks(data: bytes, sha256: bytes | None = None, start: int = 0) -> list["device_pb2.ConstantChunk"]:
    """Return the chunks of a constant, with its own digest or another one."""
    digest = sha256 or Draft.digest(data)
    return [
        device_pb2.ConstantChunk(
            sha256=digest, size_bytes=len(data), offset=offset, data=data[offset : offset + CHUNK_BYTES]
        )
        for offset in range(start, max(len(data), 1), CHUNK_BYTES)
    ]


def io_tensor(array: Array, **fields: Any) -> "model_pb2.IOTensor":
    """Return an array as a tensor of a run, inline unless the field `data` is given."""
    message = wire.io_tensor_message(TensorSpec(data_type_of(array.dtype), array.shape), array)
    message.MergeFrom(model_pb2.IOTensor(**fields))
    return message


@contextmanager
def attacked_daemon(*flags: str, sum_of_two: Sequence[float] = SUM) -> Iterator[DaemonProcess]:
    """Yield a daemon that must still work after the block.

    `sum_of_two` is the backend's result of INPUT + VALUES.
    """
    daemon = DaemonProcess(*FLAGS, *flags)
    try:
        yield daemon
        assert_unharmed(daemon, sum_of_two)
    finally:
        daemon.kill()


def assert_unharmed(daemon: DaemonProcess, sum_of_two: Sequence[float] = SUM) -> None:
    """Check that the daemon runs, computes correctly, has little memory, and has logged no unexpected failure."""
    assert daemon.process.poll() is None, daemon.log()
    with RawClient(daemon.address) as client:
        prepared = client.prepare(Draft.sum_of_input_and(VALUES).message).prepared
        (result,) = client.run(prepared.model_id, np.array(INPUT, np.float32))
    assert result.tolist() == list(sum_of_two)
    assert daemon.memory_bytes() < MEMORY_BYTES
    log = daemon.log()
    assert "failed unexpectedly" not in log and "Traceback" not in log, log


def _multi_callable(channel: grpc.Channel, method: Method, arity: str) -> Callable[..., Any]:
    multi_callable: Callable[..., Any] = getattr(channel, arity)(
        method.path, request_serializer=_serialized, response_deserializer=method.reply.FromString
    )
    return multi_callable


def _serialized(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as failure:
        error = wire.error_detail_of(failure)
        if error is None:
            raise
        assert error.message, "an error says something"
        raise error from failure


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    """Client of the fixture `daemon`, for tests that import it."""
    with RawClient(daemon.address) as client:
        yield client
