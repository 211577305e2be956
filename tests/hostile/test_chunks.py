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
from raw_client import Conversation, RawClient, attacked_daemon, client, io_tensor
from ways import CHUNKS, INLINE, Kind, OnStream, Tensor, answers_of, ask, ask_all, describe_runs, way_of

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter, NnrtError, OutOfMemory, TimedOut, UnavailableDevice
from nnrt_hdi.v2 import device_pb2
from nnrt_hdi.v2.prepared_model_pb2 import AwaitRunRequest, RunPacket, RunRequest

__all__ = ["client"]  # A fixture.

COUNT = 1000
SIZE = 4 * COUNT
X = np.arange(COUNT, dtype=np.float32)
SESSION_BYTES = 1 << 20


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with attacked_daemon("--session-bytes", str(SESSION_BYTES), "--message-bytes", "65536") as daemon:
        yield daemon


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


def chunked(model_id: int, *sizes: int, run_id: int | None = None, timeout_ms: int = 0) -> RunPacket:
    """A frame that says that inputs of so many elements are to come."""
    inputs = [Tensor((size,), CHUNKS) for size in sizes or (COUNT,)]
    kind = Kind(model_id, inputs, [Tensor((sizes or (COUNT,))[:1])])
    return RunPacket(frames=kind.frame(run_id=run_id, timeout_ms=timeout_ms))


def whole(model_id: int) -> RunPacket:
    return RunPacket(frames=describe_runs(model_id, (COUNT,)).frame(X))


def chunk(data: bytes, **fields: Any) -> RunPacket:
    return RunPacket(chunk=data, **fields)


def require_refused(stream: Conversation, error: type[NnrtError], said: str) -> None:
    (answer,) = answers_of(stream.receive().frames)
    assert type(answer.refusal) is error and said in str(answer.refusal), answer


def require_x(stream: Conversation) -> None:
    (answer,) = answers_of(stream.receive().frames)
    np.testing.assert_array_equal(answer.floats, X)


def require_works(stream: Conversation, model_id: int) -> None:
    data = X.tobytes()
    stream.send(chunked(model_id), chunk(data[:7]), chunk(data[7:]))
    require_x(stream)


ZEROS = bytes(SIZE)
# The elements of the inputs, and the chunks.
REFUSED: dict[str, tuple[tuple[int, ...], list[bytes], type[NnrtError], str]] = {
    "too many bytes": ((COUNT,), [ZEROS + b"x"], InvalidParameter, "4001 bytes; 4000 are missing"),
    "too many in the end": ((COUNT,), [ZEROS[1:], b"xx"], InvalidParameter, "2 bytes; 1 are missing"),
    "no bytes": ((COUNT,), [b""], InvalidParameter, "0 bytes; 4000 are missing"),
    "a chunk of two inputs": (
        (COUNT, COUNT),
        [ZEROS[:4], ZEROS],
        InvalidParameter,
        "4000 bytes; 3996 are missing",
    ),
    "outputs that no frame can have": ((2**31 - 1,), [ZEROS], InvalidParameter, "too long for a frame"),
    "more than the session may hold": ((1 << 20,), [ZEROS], OutOfMemory, "session's limit"),
    "too many inputs": ((COUNT,) * 3, [ZEROS], InvalidParameter, "inputs were given"),
}


@pytest.mark.parametrize(("sizes", "chunks", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(
    client: RawClient,
    stream: Conversation,
    sizes: tuple[int, ...],
    chunks: list[bytes],
    error: type[NnrtError],
    said: str,
) -> None:
    """Nothing is computed with what came, what still comes is passed over, and the next run works."""
    model_id = model_of(client, inputs=2 if len(sizes) == 2 else 1)
    stream.send(chunked(model_id, *sizes), *map(chunk, chunks), chunk(b"late"), chunk(ZEROS))
    require_refused(stream, error, said)
    require_works(stream, model_of(client))


def test_unknown_model(client: RawClient, stream: Conversation) -> None:
    """Its chunks are passed over, the same if they come when the refusal is there already."""
    stream.send(chunked(99), chunk(ZEROS[:10]))
    require_refused(stream, UnavailableDevice, "no model 99")
    stream.send(chunk(ZEROS[10:]))
    require_works(stream, model_of(client))


@pytest.mark.parametrize("sent_before", ["nothing", "a frame", "a frame with chunks"])
def test_chunks_of_nothing(client: RawClient, stream: Conversation, sent_before: str) -> None:
    """End the stream: at the start, behind a run without chunks, and behind one that has had all of its own. So does a
    message without anything."""
    model_id = model_of(client)
    for nothing in (chunk(b"x"), RunPacket()):
        stream = client.converse("PreparedModel.RunStream")
        if sent_before == "a frame":
            stream.send(whole(model_id))
            require_x(stream)
        elif sent_before == "a frame with chunks":
            require_works(stream, model_id)
        stream.send(nothing, chunk(b"y"))
        with pytest.raises(InvalidParameter, match="belongs to no frame"):
            stream.receive()
        stream.end_requests()


def test_other_frames_in_the_middle(client: RawClient, stream: Conversation) -> None:
    """Both are answered: the first is refused, the other runs.

    Of a message with frames and a chunk the frames count.
    """
    model_id = model_of(client)
    stream.send(chunked(model_id), chunk(ZEROS[:10]), whole(model_id))
    require_refused(stream, InvalidParameter, "other frames came before all chunks")
    require_x(stream)
    both = whole(model_id)
    both.chunk = ZEROS[10:]
    stream.send(chunked(model_id), chunk(ZEROS[:10]), both)
    require_refused(stream, InvalidParameter, "other frames came before all chunks")
    require_x(stream)
    require_works(stream, model_id)


def test_chunks_are_for_frames_that_are_alone_on_a_stream(client: RawClient, stream: Conversation) -> None:
    model_id = model_of(client)
    frame, plain = chunked(model_id).frames, whole(model_id).frames
    with way_of(client, "local socket") as way:
        assert "alone in a message of RunStream" in str(ask(way, frame).refusal)
        assert len(ask(way, describe_runs(model_id, (1,)).frame(X[:1])).rest) == 8
    for frames in ((frame, plain), (plain, frame)):
        answers = ask_all(OnStream(stream), *frames)
        (refused,) = [answer for answer in answers if answer.error is not None]
        assert "alone in a message of RunStream" in str(refused.refusal)
    require_works(stream, model_id)


def test_chunks_are_for_streams_of_runs(client: RawClient) -> None:
    request = RunRequest(model_id=model_of(client), inputs=[io_tensor(X)])
    request.inputs[0].data.chunked = SIZE
    with pytest.raises(InvalidParameter, match="only for RunStream"):
        client.call("PreparedModel.Run", request)


def test_a_description_with_chunks_is_not_kept(client: RawClient, stream: Conversation) -> None:
    kind = describe_runs(model_of(client), (COUNT,), (CHUNKS, INLINE))
    stream.send(RunPacket(frames=kind.frame()), chunk(X.tobytes()))
    require_x(stream)
    assert ask(OnStream(stream), kind.bare()).outcome.is_unknown


def test_messages_that_end_in_the_middle(client: RawClient, stream: Conversation) -> None:
    stream.send(chunked(model_of(client)), chunk(ZEROS[:10]))
    stream.end_requests()
    require_refused(stream, InvalidParameter, "the messages ended before all chunks")


def test_abandoned_streams_give_their_memory_back(daemon: DaemonProcess, client: RawClient) -> None:
    """However often, for no run waits for chunks that can't come."""
    model_id, count = model_of(client), SESSION_BYTES // 8
    with Observer(daemon.address) as observer:
        for _ in range(4):  # Each takes half of what there is.
            stream = client.converse("PreparedModel.RunStream")
            stream.send(chunked(model_id, count), chunk(ZEROS))
            observer.wait_for(lambda state: state.held_bytes >= 4 * count)
            stream.cancel()
            observer.wait_for(lambda state: state.held_bytes < 4 * count)  # Else the next one finds no room.
        stream = client.converse("PreparedModel.RunStream")
        require_works(stream, model_id)
        stream.cancel()


def test_a_run_says_why_it_was_never_begun(client: RawClient) -> None:
    stream = client.converse("PreparedModel.RunStream")
    stream.send(chunked(model_of(client), run_id=6), chunk(ZEROS[:10]), chunk(ZEROS[:10]))
    stream.cancel()
    with pytest.raises(ConnectionFailed, match=r"not known|broke before all chunks"):
        raise fetched(client, 6)


def fetched(client: RawClient, run_id: int) -> NnrtError:
    """What a run failed with, whose stream has ended."""
    (message,) = client.call("PreparedModel.AwaitRun", AwaitRunRequest(run_id=run_id))
    (answer,) = answers_of(message.frames)
    return answer.refusal


@pytest.mark.parametrize(("silence_s", "timeout_ms"), [("0.8", 0), ("600", 50)], ids=["silence", "timeout"])
def test_stalled_streams(start_daemon: StartDaemon, silence_s: str, timeout_ms: int) -> None:
    """Are hung up, though their session lives, and give their memory back; their runs say why."""
    daemon = start_daemon("--heartbeat-timeout-s", silence_s, "--lease-s", "0.4")
    with RawClient(daemon.address) as client, Observer(daemon.address) as observer:
        stream = client.converse("PreparedModel.RunStream")
        stream.send(chunked(model_of(client), 1 << 20, run_id=3, timeout_ms=timeout_ms), chunk(ZEROS))
        observer.wait_for(lambda state: state.held_bytes >= 4 << 20)
        # Each question is a sign of life.
        status = device_pb2.GetDeviceStatusRequest()
        observer.wait_for(lambda state: client.ask("NnrtDevice.GetDeviceStatus", status) and stream.is_over)
        stream.end_requests()
        assert isinstance(fetched(client, 3), TimedOut)
        observer.wait_for(lambda state: client.ask("NnrtDevice.GetDeviceStatus", status) and state.held_bytes < 4 << 20)


# ---- compressed

PACKED = zlib.compress(X.tobytes())
BOMB = zlib.compress(bytes(60 << 20))[:65000]
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
    "a bomb": (BOMB, SIZE, "not one of 4000 bytes"),
    "a bomb that says so": (BOMB, 60 << 20, "compress at most 1048576"),
    "4 GiB": (PACKED, 2**32 - 1, "compress at most 1048576"),
}


@pytest.mark.parametrize(("data", "expanded_bytes", "said"), DAMAGED.values(), ids=DAMAGED)
def test_compressed_chunks_that_are_not(
    client: RawClient, stream: Conversation, data: bytes, expanded_bytes: int, said: str
) -> None:
    model_id = model_of(client)
    stream.send(chunked(model_id), chunk(data, expanded_bytes=expanded_bytes), chunk(ZEROS))
    require_refused(stream, InvalidParameter, said)
    require_works(stream, model_id)


def test_compressed_chunks(client: RawClient, stream: Conversation) -> None:
    """Some are and some aren't. Outputs come as they are, for this client has not asked for anything else."""
    model_id, data = model_of(client), X.tobytes()
    packed = zlib.compress(data[:100])
    stream.send(chunked(model_id), chunk(packed, expanded_bytes=100), chunk(data[100:200]))
    stream.send(chunk(zlib.compress(data[200:]), expanded_bytes=SIZE - 200))
    require_x(stream)


@pytest.mark.parametrize(("data", "expanded_bytes", "said"), list(DAMAGED.values())[:-3], ids=list(DAMAGED)[:-3])
def test_compressed_constants_that_are_not(client: RawClient, data: bytes, expanded_bytes: int, said: str) -> None:
    digest = hashlib.sha256(X.tobytes()).digest()
    chunk_of = partial(device_pb2.ConstantChunk, sha256=digest, size_bytes=SIZE)
    with pytest.raises(InvalidParameter):
        client.call("NnrtDevice.UploadConstants", chunk_of(data=data, expanded_bytes=expanded_bytes))
    whole = chunk_of(data=PACKED, expanded_bytes=SIZE)
    assert client.ask("NnrtDevice.UploadConstants", whole).completed == 1


# ---- outputs


def test_outputs_in_chunks(client: RawClient, stream: Conversation) -> None:
    """A message of this daemon holds 64 KiB. The unary call has no chunks."""
    model_id, x = model_of(client), np.arange(40_000, dtype=np.float32)
    data = x.tobytes()
    chunks = [chunk(data[at : at + 65536]) for at in range(0, len(data), 65536)]
    stream.send(chunked(model_id, x.size, run_id=1), *chunks)
    head = stream.receive()
    (answer,) = answers_of(head.frames)
    (output,) = answer.outcome.outputs
    assert (output.place, list(output.dimensions), answer.rest) == (CHUNKS, list(x.shape), b"")
    received = b""
    while len(received) < x.nbytes:
        reply = stream.receive()
        assert [field.name for field, _ in reply.ListFields()] == ["chunk"] and len(reply.chunk) <= 65536
        received += reply.chunk
    assert received == data
    # Again, by its id.
    again, *rest = client.call("PreparedModel.AwaitRun", AwaitRunRequest(run_id=1))
    assert again.frames == head.frames and b"".join(reply.chunk for reply in rest) == data
    region = {"buffer_id": client.allocate(x.nbytes), "data_size": x.nbytes}
    request = RunRequest(model_id=model_id, inputs=[io_tensor(x, data={"region": region})])
    with pytest.raises(OutOfMemory, match="the outputs have 160000 bytes, a message at most 65536; take large outputs"):
        client.call("PreparedModel.Run", request)


def test_outputs_that_are_not_read_count(client: RawClient) -> None:
    """Each of these streams holds 400 KB for a client that may hold 1 MiB."""
    model_id, count = model_of(client), 100_000
    chunks = [chunk(bytes(50_000))] * 8
    streams = [client.converse("PreparedModel.RunStream") for _ in range(3)]
    for stream in streams:
        stream.send(chunked(model_id, count), *chunks)
        (answer,) = answers_of(stream.receive().frames)
    assert isinstance(answer.refusal, OutOfMemory)
    for stream in streams:
        stream.cancel()
