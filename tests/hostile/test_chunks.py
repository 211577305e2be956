"""Runs whose tensors come in chunks, sent as no client should: every run is answered, and the stream goes on."""

import hashlib
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from model_draft import Draft
from observer import Observer
from raw_client import Conversation, RawClient, attacked_daemon, io_tensor

from nnrt_hdi import wire
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter, NnrtError, OutOfMemory, TimedOut, UnavailableDevice
from nnrt_hdi.v2 import device_pb2, model_pb2, prepared_model_pb2

RunRequest = prepared_model_pb2.RunRequest
COUNT = 1000
SIZE = 4 * COUNT
X = np.arange(COUNT, dtype=np.float32)
SESSION_BYTES = 1 << 20


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with attacked_daemon("--session-bytes", str(SESSION_BYTES), "--message-bytes", "65536") as daemon:
        yield daemon


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as client:
        yield client


@pytest.fixture
def stream(client: RawClient) -> Iterator[Conversation]:
    stream = client.converse("PreparedModel.RunStream")
    yield stream
    stream.cancel()


def model_of(client: RawClient, inputs: int = 1) -> int:
    """y = x + 0, or x + z, of any length."""
    draft = Draft()
    operands = [draft.input([-1], name=f"x{index}") for index in range(inputs)]
    if inputs == 1:
        operands.append(draft.constant(np.zeros(1, np.float32)))
    draft.node(NodeType.ADD_FUSION, operands, [draft.output([-1])])
    return int(client.prepare(draft.message).prepared.model_id)


def chunked(size: int = SIZE, dims: tuple[int, ...] = (COUNT,)) -> Any:
    """An input that says that so many bytes of it are to come."""
    return model_pb2.IOTensor(data_type=wire.number(DataType.FLOAT32), dimensions=dims, data={"chunked": size})


def request(model_id: int, *inputs: Any, **fields: Any) -> Any:
    return RunRequest(model_id=model_id, inputs=inputs, **fields)


def chunk(data: bytes, **fields: Any) -> Any:
    return RunRequest(chunk=data, **fields)


def require_refused(stream: Conversation, error: type[NnrtError], said: str) -> None:
    reply = stream.receive()
    refusal = wire.error_from_detail(reply.error)
    assert type(refusal) is error and said in str(refusal), refusal


def require_works(stream: Conversation, model_id: int) -> None:
    data = X.tobytes()
    stream.send(request(model_id, chunked()), chunk(data[:7]), chunk(data[7:]))
    (output,) = stream.receive().outputs
    np.testing.assert_array_equal(wire.io_array(output), X)


ZEROS = bytes(SIZE)
REFUSED: dict[str, tuple[list[Any], type[NnrtError], str]] = {
    "too many bytes": ([chunked(), chunk(ZEROS + b"x")], InvalidParameter, "4001 bytes; 4000 are missing"),
    "too many in the end": ([chunked(), chunk(ZEROS[1:]), chunk(b"xx")], InvalidParameter, "2 bytes; 1 are missing"),
    "a chunk of two inputs": (
        [chunked(), chunked(), chunk(ZEROS[:4]), chunk(ZEROS)],
        InvalidParameter,
        "4000 bytes; 3996 are missing",
    ),
    "fewer announced than there are": (
        [chunked(SIZE - 4)],
        InvalidParameter,
        "3996 bytes are announced; FLOAT32[1000]",
    ),
    "more announced than there are": ([chunked(1 << 62)], InvalidParameter, "bytes are announced"),
    "another type than the model's": ([chunked(SIZE, (10, 100))], InvalidParameter, "the model takes"),
    "more than the session may hold": ([chunked(1 << 22, (1 << 20,)), chunk(ZEROS)], OutOfMemory, "session's limit"),
    "a terabyte": ([chunked(1 << 40, (1 << 19, 1 << 19))], InvalidParameter, "the model takes"),
    "too few inputs": ([], InvalidParameter, "0 inputs were given"),
    "too many inputs": ([chunked()] * 3, InvalidParameter, "inputs were given"),
}


@pytest.mark.parametrize(("sent", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(client: RawClient, stream: Conversation, sent: list[Any], error: type[NnrtError], said: str) -> None:
    """Nothing is computed with what came, what still comes is passed over, and the next run works."""
    inputs = [each for each in sent if not isinstance(each, RunRequest)]
    model_id = model_of(client, inputs=2 if len(inputs) == 2 else 1)
    stream.send(request(model_id, *inputs), *sent[len(inputs) :], chunk(b"late"), chunk(ZEROS))
    require_refused(stream, error, said)
    require_works(stream, model_of(client))


def test_unknown_model(client: RawClient, stream: Conversation) -> None:
    """Its chunks are passed over, the same if they come when the refusal is there already."""
    stream.send(request(99, chunked()), chunk(ZEROS[:10]))
    require_refused(stream, UnavailableDevice, "no model 99")
    stream.send(chunk(ZEROS[10:]))
    require_works(stream, model_of(client))


def test_chunks_of_nothing(client: RawClient, stream: Conversation) -> None:
    """At the start, behind a run without chunks, and behind one that has had all of its own."""
    model_id = model_of(client)
    for _ in range(2):
        stream.send(chunk(b"x"), chunk(b"y"))
        require_refused(stream, InvalidParameter, "belongs to no request")
        require_works(stream, model_id)
    stream.send(request(model_id, io_tensor(X)), chunk(b"x"))
    assert wire.io_array(stream.receive().outputs[0]).shape == (COUNT,)
    require_refused(stream, InvalidParameter, "belongs to no request")
    stream.send(chunk(ZEROS, model_id=model_id))
    require_refused(stream, InvalidParameter, "belongs to no request")
    require_works(stream, model_id)


def test_another_request_in_the_middle(client: RawClient, stream: Conversation) -> None:
    """Both are answered: the first is refused, the other runs."""
    model_id = model_of(client)
    stream.send(request(model_id, chunked()), chunk(ZEROS[:10]), request(model_id, io_tensor(X)))
    require_refused(stream, InvalidParameter, "another request came before all chunks")
    np.testing.assert_array_equal(wire.io_array(stream.receive().outputs[0]), X)
    stream.send(request(model_id, chunked()), chunk(ZEROS[:10], run_id=7))
    require_refused(stream, InvalidParameter, "another request came before all chunks")
    require_refused(stream, InvalidParameter, "belongs to no request")
    require_works(stream, model_id)


def test_chunks_are_for_streams_of_runs(client: RawClient) -> None:
    model_id = model_of(client)
    with pytest.raises(InvalidParameter, match="only for RunStream"):
        client.call("PreparedModel.Run", request(model_id, chunked()))


def test_requests_that_end_in_the_middle(client: RawClient, stream: Conversation) -> None:
    stream.send(request(model_of(client), chunked()), chunk(ZEROS[:10]))
    stream.end_requests()
    require_refused(stream, InvalidParameter, "the requests ended before all chunks")


def test_abandoned_streams_give_their_memory_back(daemon: DaemonProcess, client: RawClient) -> None:
    """However often, for no run waits for chunks that can't come."""
    model_id, count = model_of(client), SESSION_BYTES // 8
    with Observer(daemon.address) as observer:
        for _ in range(4):  # Each takes half of what there is.
            stream = client.converse("PreparedModel.RunStream")
            stream.send(request(model_id, chunked(4 * count, (count,)), run_id=0), chunk(ZEROS))
            observer.wait_for(lambda state: state.held_bytes >= 4 * count)
            stream.cancel()
        stream = client.converse("PreparedModel.RunStream")
        require_works(stream, model_id)
        stream.cancel()
        observer.wait_for(lambda state: state.held_bytes < 4 * count)


def test_a_run_with_an_id_says_why_it_was_never_begun(client: RawClient) -> None:
    stream = client.converse("PreparedModel.RunStream")
    stream.send(request(model_of(client), chunked(), run_id=5), chunk(ZEROS[:10]), request(99))
    require_refused(stream, InvalidParameter, "another request came")
    stream.receive()
    stream.send(request(model_of(client), chunked(), run_id=6), chunk(ZEROS[:10]), chunk(ZEROS[:10]))
    stream.cancel()
    with pytest.raises(ConnectionFailed, match=r"not known|broke before all chunks"):
        reply = client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=6))
        raise wire.error_from_detail(reply.error)


@pytest.mark.parametrize(("silence_s", "timeout_ms"), [("0.8", 0), ("600", 50)], ids=["silence", "timeout"])
def test_stalled_streams(start_daemon: StartDaemon, silence_s: str, timeout_ms: int) -> None:
    """Are hung up, though their session lives, and give their memory back; their runs say why."""
    daemon = start_daemon("--heartbeat-timeout-s", silence_s, "--lease-s", "0.4")
    with RawClient(daemon.address) as client, Observer(daemon.address) as observer:
        stream = client.converse("PreparedModel.RunStream")
        sent = request(model_of(client), chunked(4 << 20, (1 << 20,)), run_id=3, timeout_ms=timeout_ms)
        stream.send(sent, chunk(ZEROS))
        observer.wait_for(lambda state: state.held_bytes >= 4 << 20)
        # Each question is a sign of life.
        status = device_pb2.GetDeviceStatusRequest()
        observer.wait_for(lambda state: client.ask("NnrtDevice.GetDeviceStatus", status) and stream.is_over)
        stream.end_requests()
        reply = client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=3))
        assert isinstance(wire.error_from_detail(reply.error), TimedOut)
        observer.wait_for(lambda state: client.ask("NnrtDevice.GetDeviceStatus", status) and state.held_bytes < 4 << 20)


# ---- compressed

PACKED = zlib.compress(X.tobytes())
DAMAGED: dict[str, tuple[bytes, int, str]] = {
    "no zlib stream": (X.tobytes(), SIZE, "damaged"),
    "damaged in the middle": (PACKED[:100] + bytes(10) + PACKED[110:], SIZE, "a compressed chunk"),
    "another sum": (PACKED[:-4] + bytes(4), SIZE, "damaged"),
    "cut off": (PACKED[:-1], SIZE, "not one of 4000 bytes"),
    "something behind it": (PACKED + b"x", SIZE, "not one of 4000 bytes"),
    "two streams": (PACKED + PACKED, SIZE, "not one of 4000 bytes"),
    "longer than it says": (PACKED, SIZE - 1, "not one of 3999 bytes"),
    "shorter than it says": (PACKED, SIZE + 1, "not one of 4001 bytes"),
    "more than is missing": (zlib.compress(bytes(SIZE + 4)), SIZE + 4, "4004 bytes; 4000 are missing"),
    "a bomb": (zlib.compress(bytes(60 << 20))[:65000], SIZE, "not one of 4000 bytes"),
    "a bomb that says so": (zlib.compress(bytes(60 << 20))[:65000], 60 << 20, "compress at most 1048576"),
    "4 GiB": (PACKED, 2**32 - 1, "compress at most 1048576"),
}


@pytest.mark.parametrize(("data", "expanded_bytes", "said"), DAMAGED.values(), ids=DAMAGED)
def test_compressed_chunks_that_are_not(
    client: RawClient, stream: Conversation, data: bytes, expanded_bytes: int, said: str
) -> None:
    model_id = model_of(client)
    stream.send(request(model_id, chunked()), chunk(data, expanded_bytes=expanded_bytes), chunk(ZEROS))
    require_refused(stream, InvalidParameter, said)
    require_works(stream, model_id)


def test_compressed_chunks(client: RawClient, stream: Conversation) -> None:
    """Some are and some aren't. Outputs come as they are, for this client has not asked for anything else."""
    model_id, data = model_of(client), X.tobytes()
    packed = zlib.compress(data[:100])
    sent = request(model_id, chunked(), takes_chunks=True)
    stream.send(sent, chunk(packed, expanded_bytes=100), chunk(data[100:200]))
    stream.send(chunk(zlib.compress(data[200:]), expanded_bytes=SIZE - 200))
    (output,) = stream.receive().outputs
    np.testing.assert_array_equal(wire.io_array(output), X)


@pytest.mark.parametrize(("data", "expanded_bytes", "said"), list(DAMAGED.values())[:-3], ids=list(DAMAGED)[:-3])
def test_compressed_constants_that_are_not(client: RawClient, data: bytes, expanded_bytes: int, said: str) -> None:
    digest = hashlib.sha256(X.tobytes()).digest()
    chunk_of = partial(device_pb2.ConstantChunk, sha256=digest, size_bytes=SIZE)
    with pytest.raises(InvalidParameter):
        client.call("NnrtDevice.UploadConstants", chunk_of(data=data, expanded_bytes=expanded_bytes))
    whole = chunk_of(data=PACKED, expanded_bytes=SIZE)
    assert client.ask("NnrtDevice.UploadConstants", whole).completed == 1


# ---- outputs


def test_outputs_in_chunks_only_for_those_who_take_them(client: RawClient, stream: Conversation) -> None:
    """A message of this daemon holds 64 KiB."""
    model_id, x = model_of(client), np.arange(40_000, dtype=np.float32)
    data = x.tobytes()
    chunks = [chunk(data[at : at + 65536]) for at in range(0, len(data), 65536)]
    stream.send(request(model_id, chunked(x.nbytes, x.shape)), *chunks)
    require_refused(stream, OutOfMemory, "the outputs have 160000 bytes, a message at most 65536; take large outputs")
    stream.send(request(model_id, chunked(x.nbytes, x.shape), takes_chunks=True, run_id=1), *chunks)
    (output,) = stream.receive().outputs
    assert (output.data.chunked, list(output.dimensions)) == (x.nbytes, list(x.shape))
    received = b""
    while len(received) < x.nbytes:
        reply = stream.receive()
        assert [field.name for field, _ in reply.ListFields()] == ["chunk"] and len(reply.chunk) <= 65536
        received += reply.chunk
    assert received == data
    # Again, by its id.
    head, *rest = client.call("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=1))
    assert head.outputs[0] == output and b"".join(reply.chunk for reply in rest) == data


def test_outputs_that_are_not_read_count(client: RawClient) -> None:
    """Each of these streams holds 400 KB for a client that may hold 1 MiB."""
    model_id, x = model_of(client), np.zeros(100_000, np.float32)
    chunks = [chunk(bytes(50_000))] * 8
    streams = [client.converse("PreparedModel.RunStream") for _ in range(3)]
    for stream in streams:
        stream.send(request(model_id, chunked(x.nbytes, x.shape), takes_chunks=True), *chunks)
        reply = stream.receive()
    assert isinstance(wire.error_from_detail(reply.error), OutOfMemory)
    for stream in streams:
        stream.cancel()
