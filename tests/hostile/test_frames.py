"""Frames of runs, as a client of its own sends them: on the local socket and on RunStream."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

import numpy as np
import pytest
from daemon_process import DaemonProcess
from local_side import Side, memfd, side_of
from model_draft import Draft
from raw_client import Conversation, RawClient

from nnrt_hdi import wire
from nnrt_hdi.enums import DataType, NodeType, ReturnCode
from nnrt_hdi.errors import InvalidParameter, UnknownHandle
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.tensor import Array, data_type_of, flat_bytes
from nnrt_hdi.v2.prepared_model_pb2 import (
    AwaitRunRequest,
    CancelRunsRequest,
    RunDescription,
    RunOutcome,
    RunPacket,
    RunRequest,
)
from nnrt_hdi.wire.packet import REPLY_MARK, FrameLayout, frames_of, padded, reply_head
from nnrt_hdi.wire.run_messages import chunk_message, frames_message

INLINE, REGION, CHUNKS, NOWHERE = range(4)
ids = count(1)
numbers = count(1)


class Kind:
    """Runs of one kind of a model with one input and one output of the same shape."""

    def __init__(
        self,
        model_id: int,
        shape: Sequence[int],
        places: tuple[int, int] = (INLINE, INLINE),
        output_shape: Sequence[int] | None = None,
        is_open: bool = False,
    ) -> None:
        self.number = next(numbers)
        self.description = RunDescription(model_id=model_id)
        self.description.inputs.add(data_type=43, dimensions=shape, place=places[0])
        self.description.outputs.add(data_type=43, dimensions=output_shape or shape, place=places[1], is_open=is_open)
        size = 4 * int(np.prod(shape))
        out_size = None if is_open else 4 * int(np.prod(output_shape or shape))
        self.layout = FrameLayout(
            [size if places[0] == INLINE else None],
            [out_size if places[1] == INLINE else None],
            places.count(REGION),
        )

    def frame(
        self,
        *tensors: Array,
        run_id: int = 0,
        regions: Sequence[int] = (),
        is_described: bool = True,
        number: int | None = None,
        timeout_ms: int = 0,
    ) -> bytes:
        described = self.description.SerializeToString() if is_described else b""
        number = self.number if number is None else number
        return self.layout.request(number, run_id or next(ids), timeout_ms, regions, tensors, described)


class Answer(NamedTuple):
    """A frame of a reply, taken apart."""

    run_id: int
    times: Sequence[int]
    outcome: RunOutcome
    rest: bytes


def answers_of(packet: bytes) -> list[Answer]:
    answers = []
    for begin, end in frames_of(REPLY_MARK, packet):
        _, _, run_id, *times, size = reply_head.unpack_from(packet, begin)
        at = begin + reply_head.size
        outcome = RunOutcome.FromString(packet[at : at + size])
        answers.append(Answer(run_id, times, outcome, packet[at + padded(size) : end]))
    return answers


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--heartbeat-timeout-s", "600")
    yield daemon
    assert "Traceback" not in daemon.log()
    daemon.kill()


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as client:
        yield client


class Way:
    """Packets there and back."""

    def __init__(self, carrier: Side | Conversation) -> None:
        self.carrier = carrier

    def send(self, *frames: bytes) -> None:
        packet = b"".join(frames)
        self.carrier.send(packet if isinstance(self.carrier, Side) else frames_message(packet))

    def receive(self) -> list[Answer]:
        if isinstance(self.carrier, Side):
            return answers_of(self.carrier.socket.recv(LOCAL_PACKET_BYTES))
        return answers_of(self.carrier.receive().frames)

    def ask(self, *frames: bytes) -> list[Answer]:
        """The answers to frames, in order of their ids."""
        self.send(*frames)
        answers: list[Answer] = []
        while len(answers) < len(frames):
            answers += self.receive()
        return sorted(answers)


@contextmanager
def way_of(client: RawClient, name: str) -> Iterator[Way]:
    if name == "local":
        with side_of(client) as side:
            yield Way(side)
    else:
        stream = client.converse("PreparedModel.RunStream")
        yield Way(stream)
        stream.end_requests()
        with pytest.raises(StopIteration):
            stream.receive()


@pytest.fixture(params=["local", "stream"])
def way(client: RawClient, request: pytest.FixtureRequest) -> Iterator[Way]:
    with way_of(client, request.param) as way:
        yield way


def model_of(client: RawClient, shape: Sequence[int] = (3,), values: Sequence[float] = (1, 2, 3)) -> int:
    """y = x + values, of any first dimension."""
    draft = Draft()
    x = draft.input((-1, *shape[1:]), name="x")
    y = draft.output((-1, *shape[1:]), DataType.FLOAT32, name="y")
    draft.node(NodeType.ADD_FUSION, [x, draft.constant(np.array(values, np.float32))], [y])
    return int(client.prepare(draft.message).prepared.model_id)


def floats(answer: Answer) -> list[float]:
    size = 4 * (len(answer.rest) // 4)
    found: list[float] = np.frombuffer(answer.rest[:size], np.float32).tolist()
    return found[:3]


X = np.array([10, 20, 30], np.float32)


def test_a_frame_with_its_description_and_one_without(client: RawClient, way: Way) -> None:
    kind = Kind(model_of(client), (3,))
    (first,) = way.ask(kind.frame(X))
    (second,) = way.ask(kind.frame(2 * X, is_described=False))
    assert floats(first) == [11, 22, 33] and floats(second) == [21, 42, 63]
    assert not first.outcome.ByteSize() and not second.outcome.ByteSize()
    received_at, *parts, served = second.times
    assert received_at and 0 < sum(parts) <= served


def test_an_unknown_number_is_told_and_nothing_is_done(client: RawClient, way: Way) -> None:
    kind = Kind(model_of(client), (3,))
    run_id = next(ids)
    (unknown,) = way.ask(kind.frame(X, run_id=run_id, is_described=False))
    assert unknown.run_id == run_id and unknown.outcome.is_unknown
    (known,) = way.ask(kind.frame(X, run_id=run_id))
    assert floats(known) == [11, 22, 33]


def test_a_description_numbered_0_is_not_kept(client: RawClient, way: Way) -> None:
    kind = Kind(model_of(client), (3,))
    (answer,) = way.ask(kind.frame(X, number=0))
    assert floats(answer) == [11, 22, 33]
    (unknown,) = way.ask(kind.frame(X, number=0, is_described=False))
    assert unknown.outcome.is_unknown


def test_many_frames_of_a_packet_fail_each_alone(client: RawClient, way: Way) -> None:
    model_id = model_of(client)
    kind, wrong, gone = Kind(model_id, (3,)), Kind(model_id, (4,)), Kind(model_id + 7, (3,))
    taken = next(ids)
    frames = [
        kind.frame(X, run_id=taken),
        wrong.frame(np.zeros(4, np.float32)),
        kind.frame(2 * X),
        gone.frame(X),
        kind.frame(X, run_id=taken),
        kind.frame(3 * X),
    ]
    answers = way.ask(*frames)
    errors = [answer.outcome.error for answer in answers if answer.outcome.HasField("error")]
    assert [wire.error_from_detail(error).code for error in errors] == [
        ReturnCode.INVALID_PARAMETER,
        ReturnCode.INVALID_PARAMETER,
        UnknownHandle.code,
    ] or len(errors) == 3
    assert sorted(floats(answer)[0] for answer in answers if not answer.outcome.ByteSize()) == [11, 21, 31]


def test_a_frame_without_an_id_is_refused_alone(client: RawClient, way: Way) -> None:
    kind = Kind(model_of(client), (3,))
    frame = bytearray(kind.frame(X))
    frame[8:16] = bytes(8)
    refused, answered = way.ask(bytes(frame), kind.frame(X))
    assert "run_id" in refused.outcome.error.message and floats(answered) == [11, 22, 33]


def test_an_open_output_and_one_that_is_not_as_promised_are_told(client: RawClient, way: Way) -> None:
    model_id = model_of(client)
    (answer,) = way.ask(Kind(model_id, (3,), is_open=True).frame(X))
    (output,) = answer.outcome.outputs
    assert (int(output.data_type), list(output.dimensions), int(output.place)) == (
        int(data_type_of(X.dtype)),
        [3],
        INLINE,
    )
    assert floats(answer) == [11, 22, 33]


def test_an_output_that_nobody_wants_is_not_sent(client: RawClient, way: Way) -> None:
    (answer,) = way.ask(Kind(model_of(client), (3,), (INLINE, NOWHERE)).frame(X))
    assert answer.rest == b""


def test_tensors_in_regions(client: RawClient, way: Way) -> None:
    kind = Kind(model_of(client), (3,), (REGION, REGION))
    buffer_id = client.allocate(64)
    client.call(
        "NnrtDevice.WriteBuffer",
        wire_chunk(buffer_id, X),
    )
    regions = (buffer_id, 0, 12, buffer_id, 32, 12)
    (first,) = way.ask(kind.frame(regions=regions))
    (second,) = way.ask(kind.frame(regions=regions, is_described=False))
    assert not first.rest and not second.rest and not second.outcome.ByteSize()
    region = wire_region(buffer_id, 32, 12)
    assert np.frombuffer(client.read(region), np.float32).tolist() == [11, 22, 33]


def test_a_shared_buffer_is_read_and_written(client: RawClient) -> None:
    kind = Kind(model_of(client), (3,), (REGION, REGION))
    with side_of(client) as sharing, side_of(client) as side, memfd(4096) as fd:
        buffer_id = sharing.share(fd, 4096)
        client.call("NnrtDevice.WriteBuffer", wire_chunk(buffer_id, X))
        (answer,) = Way(side).ask(kind.frame(regions=(buffer_id, 0, 12, buffer_id, 64, 12)))
        assert not answer.outcome.ByteSize()
        assert np.frombuffer(client.read(wire_region(buffer_id, 64, 12)), np.float32).tolist() == [11, 22, 33]


def test_a_region_that_is_too_small_and_one_that_is_gone(client: RawClient, way: Way) -> None:
    kind = Kind(model_of(client), (3,), (INLINE, REGION))
    buffer_id = client.allocate(64)
    small, gone = way.ask(kind.frame(X, regions=(buffer_id, 0, 8)), kind.frame(X, regions=(999, 0, 12)))
    assert small.outcome.error.place == "output 0" and gone.outcome.error.place == "output 0"


def test_large_tensors_come_in_chunks_on_a_stream(client: RawClient) -> None:
    size = 1 << 20
    model_id = model_of(client, (size,), (1,))
    kind = Kind(model_id, (size,), (CHUNKS, INLINE))
    x = np.arange(size, dtype=np.float32)
    with way_of(client, "stream") as way:
        stream = way.carrier
        assert isinstance(stream, Conversation)
        stream.send(frames_message(kind.frame()))
        for begin in range(0, x.nbytes, 1 << 20):
            stream.send(chunk_message(flat_bytes(x)[begin : begin + (1 << 20)]))
        (answer,) = answers_of(stream.receive().frames)
        (output,) = answer.outcome.outputs
        assert output.place == CHUNKS and list(output.dimensions) == [size]
        data = b"".join(stream.receive().chunk for _ in range(4))
        assert np.array_equal(np.frombuffer(data, np.float32), x + 1)
        small = Kind(model_of(client), (3,))
        assert floats(way.ask(small.frame(X))[0]) == [11, 22, 33]


def test_chunks_of_a_run_that_failed_are_skipped(client: RawClient) -> None:
    kind, small = Kind(model_of(client) + 9, (3,), (CHUNKS, INLINE)), Kind(model_of(client), (3,))
    with way_of(client, "stream") as way:
        (answer,) = way.ask(kind.frame())
        assert answer.outcome.HasField("error")
        way.carrier.send(chunk_message(flat_bytes(X)))
        assert floats(way.ask(small.frame(X))[0]) == [11, 22, 33]


def test_what_is_too_long_for_a_packet_is_kept(client: RawClient) -> None:
    size = 1 << 20
    kind = Kind(model_of(client, (size,), (1,)), (size,), (REGION, INLINE), is_open=True)
    buffer_id = client.allocate(4 * size)
    run_id = next(ids)
    with side_of(client) as side:
        (answer,) = Way(side).ask(kind.frame(run_id=run_id, regions=(buffer_id, 0, 4 * size)))
        assert answer.outcome.kept
        head, *chunks = client.call("PreparedModel.AwaitRun", AwaitRunRequest(run_id=run_id))
        (reply,) = answers_of(head.frames)
        assert reply.run_id == run_id and reply.outcome.outputs[0].place == CHUNKS
        assert np.frombuffer(b"".join(chunk.chunk for chunk in chunks), np.float32).tolist() == [1.0] * size
        client.call("PreparedModel.CancelRuns", CancelRunsRequest(run_ids=[run_id]))


def test_the_reply_of_a_lost_connection_is_fetched_as_the_same_bytes(client: RawClient) -> None:
    kind, run_id = Kind(model_of(client), (3,)), next(ids)
    with side_of(client) as side:
        Way(side).send(kind.frame(X, run_id=run_id))
        packet = side.socket.recv(LOCAL_PACKET_BYTES)
    (message,) = client.call("PreparedModel.AwaitRun", AwaitRunRequest(run_id=run_id))
    assert message.frames == packet


@pytest.mark.parametrize("damage", ["short", "head", "odd", "mark", "length", "trailing"])
def test_what_cannot_be_cut_into_frames_ends_the_connection(client: RawClient, damage: str) -> None:
    kind = Kind(model_of(client), (3,))
    frame = kind.frame(X)
    packet = {
        "short": frame[:12],
        "head": frame[:4] + (16).to_bytes(4, "little") + frame[8:16],
        "odd": frame[:4] + (len(frame) + 4).to_bytes(4, "little") + frame[8:] + b"\0" * 4,
        "mark": frame + b"\0\3\0\0" + frame[4:],
        "length": frame[:4] + (len(frame) + 8).to_bytes(4, "little") + frame[8:],
        "trailing": frame + b"\0" * 8,
    }[damage]
    with side_of(client) as side:
        side.send(packet)
        with pytest.raises(InvalidParameter):
            side.receive()
        assert side.receive() is None
    stream = client.converse("PreparedModel.RunStream")
    stream.send(RunPacket(frames=packet))
    with pytest.raises(InvalidParameter):
        stream.receive()
    stream.end_requests()


def test_the_unary_rpc_makes_the_same_run(client: RawClient) -> None:
    model_id = model_of(client)
    (result,) = client.run(model_id, X)
    assert result.tolist() == [11, 22, 33]
    reply = client.ask("PreparedModel.Run", RunRequest(model_id=model_id, inputs=[wire_tensor(X)]))
    assert reply.times.served_ns >= reply.times.computed_ns > 0
    with pytest.raises(InvalidParameter, match="broadcast"):
        client.run(model_id, np.zeros(4, np.float32))


def wire_chunk(buffer_id: int, array: Array):  # type: ignore[no-untyped-def]
    from nnrt_hdi.v2 import device_pb2

    return device_pb2.BufferChunk(buffer_id=buffer_id, data=array.tobytes())


def wire_region(buffer_id: int, offset: int, size: int):  # type: ignore[no-untyped-def]
    from nnrt_hdi.v2 import model_pb2

    return model_pb2.BufferRegion(buffer_id=buffer_id, offset=offset, data_size=size)


def wire_tensor(array: Array):  # type: ignore[no-untyped-def]
    from raw_client import io_tensor

    return io_tensor(array)
