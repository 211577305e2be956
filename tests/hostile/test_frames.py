"""Frames of runs, as a client of its own sends them: on the local socket and on RunStream."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from daemon_process import DaemonProcess
from local_side import memfd, side_of
from model_draft import Draft
from raw_client import RawClient, client, io_tensor
from ways import (
    CHUNKS,
    INLINE,
    NOWHERE,
    REGION,
    RUN_IDS,
    OnLocalSocket,
    OnStream,
    Way,
    answers_of,
    ask,
    ask_all,
    describe_runs,
    way,
    way_of,
)

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, UnavailableDevice
from nnrt_hdi.limits import MAX_DESCRIPTIONS, MAX_FRAMES
from nnrt_hdi.tensor import data_type_of, flat_bytes
from nnrt_hdi.v2 import device_pb2, model_pb2
from nnrt_hdi.v2.prepared_model_pb2 import AwaitRunRequest, CancelRunsRequest, RunPacket, RunRequest
from nnrt_hdi.wire.run_messages import chunk_message, frames_message

__all__ = ["client", "way"]  # Fixtures.


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--heartbeat-timeout-s", "600")
    yield daemon
    assert "Traceback" not in daemon.log()
    daemon.kill()


def model_of(client: RawClient, shape: Sequence[int] = (3,), values: Sequence[float] = (1, 2, 3)) -> int:
    """y = x + values, of any first dimension."""
    draft = Draft()
    x = draft.input((-1, *shape[1:]), name="x")
    y = draft.output((-1, *shape[1:]), DataType.FLOAT32, name="y")
    draft.node(NodeType.ADD_FUSION, [x, draft.constant(np.array(values, np.float32))], [y])
    return int(client.prepare(draft.message).prepared.model_id)


X = np.array([10, 20, 30], np.float32)


def test_a_frame_with_its_description_and_one_without(client: RawClient, way: Way) -> None:
    kind = describe_runs(model_of(client), (3,))
    first = ask(way, kind.frame(X))
    second = ask(way, kind.frame(2 * X, is_described=False))
    assert first.first(3) == [11, 22, 33] and second.first(3) == [21, 42, 63]
    assert not first.outcome.ByteSize() and not second.outcome.ByteSize()
    received_at, *parts, served = second.times
    assert received_at and 0 < sum(parts) <= served


def test_an_unknown_number_is_told_and_nothing_is_done(client: RawClient, way: Way) -> None:
    kind = describe_runs(model_of(client), (3,))
    run_id = next(RUN_IDS)
    unknown = ask(way, kind.frame(X, run_id=run_id, is_described=False))
    assert unknown.run_id == run_id and unknown.outcome.is_unknown
    known = ask(way, kind.frame(X, run_id=run_id))
    assert known.first(3) == [11, 22, 33]


def test_a_description_numbered_0_is_not_kept(client: RawClient, way: Way) -> None:
    kind = describe_runs(model_of(client), (3,))
    answer = ask(way, kind.frame(X, number=0))
    assert answer.first(3) == [11, 22, 33]
    unknown = ask(way, kind.frame(X, number=0, is_described=False))
    assert unknown.outcome.is_unknown


def test_descriptions_of_one_identity_leave_others_theirs(client: RawClient, way: Way) -> None:
    """Of very many that are kept on behalf of one, the oldest are forgotten."""
    model_id = model_of(client)
    few, many = (describe_runs(model_id, (3,), on_behalf_of=name) for name in ("few", "many"))
    assert ask(way, few.frame(X)).first(3) == [11, 22, 33]
    first = 10_000
    for begin in range(first, first + MAX_DESCRIPTIONS, MAX_FRAMES):
        ask_all(way, *(many.frame(X, number=number) for number in range(begin, begin + MAX_FRAMES)))
    assert ask(way, few.bare(X)).first(3) == [11, 22, 33]
    assert ask(way, many.bare(X, number=first)).outcome.is_unknown
    assert ask(way, many.bare(X, number=first + 1)).first(3) == [11, 22, 33]


@pytest.mark.parametrize("name", ["a b", "a\n", "\0", "-a", "x" * 65, "x" * 10_000, "ä"])
def test_names_that_no_identity_has(client: RawClient, way: Way, name: str) -> None:
    """They are refused, without repeating them at length."""
    model_id = model_of(client)
    request = RunRequest(model_id=model_id, inputs=[io_tensor(X)], on_behalf_of=name)
    with pytest.raises(InvalidParameter, match=r"on_behalf_of: it is .*give an identity's name") as refused:
        client.call("PreparedModel.Run", request)
    assert len(str(refused.value)) < 500
    refusal = ask(way, describe_runs(model_id, (3,), on_behalf_of=name).frame(X)).refusal
    assert "give an identity's name" in str(refusal)


def test_the_unary_call_counts_for_others(client: RawClient) -> None:
    """Also if it fails."""
    request = RunRequest(model_id=model_of(client), inputs=[io_tensor(X)], on_behalf_of="unary")
    client.call("PreparedModel.Run", request)
    request.inputs[0].data.region.buffer_id = 1 << 40
    with pytest.raises(UnavailableDevice, match="no buffer"):
        client.call("PreparedModel.Run", request)
    (reply,) = client.call("NnrtDevice.GetCounters", device_pb2.GetCountersRequest())
    (counted,) = [each for each in reply.identities if each.identity == "unary"]
    assert dict(counted.runs) == {"done": 1, "refused": 1}


def test_many_frames_of_a_packet_fail_each_alone(client: RawClient, way: Way) -> None:
    model_id = model_of(client)
    kind, wrong, gone = describe_runs(model_id, (3,)), describe_runs(model_id, (4,)), describe_runs(model_id + 7, (3,))
    taken = next(RUN_IDS)
    frames = [
        kind.frame(X, run_id=taken),
        wrong.frame(np.zeros(4, np.float32)),
        kind.frame(2 * X),
        gone.frame(X),
        kind.frame(X, run_id=taken),
        kind.frame(3 * X),
    ]
    answers = ask_all(way, *frames)
    assert Counter(type(answer.error) for answer in answers if answer.error is not None) == {
        InvalidParameter: 2,
        UnavailableDevice: 1,
    }
    assert sorted(answer.first(3)[0] for answer in answers if not answer.outcome.ByteSize()) == [11, 21, 31]


def test_a_frame_without_an_id_is_refused_alone(client: RawClient, way: Way) -> None:
    kind = describe_runs(model_of(client), (3,))
    frame = bytearray(kind.frame(X))
    frame[8:16] = bytes(8)
    refused, answered = ask_all(way, bytes(frame), kind.frame(X))
    assert "run_id" in refused.outcome.error.message and answered.first(3) == [11, 22, 33]


def test_an_open_output_and_one_that_is_not_as_promised_are_told(client: RawClient, way: Way) -> None:
    model_id = model_of(client)
    answer = ask(way, describe_runs(model_id, (3,), is_open=True).frame(X))
    (output,) = answer.outcome.outputs
    assert (int(output.data_type), list(output.dimensions), int(output.place)) == (
        int(data_type_of(X.dtype)),
        [3],
        INLINE,
    )
    assert answer.inline_outputs()[0].tolist() == [11, 22, 33]


def test_an_output_that_nobody_wants_is_not_sent(client: RawClient, way: Way) -> None:
    answer = ask(way, describe_runs(model_of(client), (3,), (INLINE, NOWHERE)).frame(X))
    assert answer.rest == b""


def test_tensors_in_regions(client: RawClient, way: Way) -> None:
    kind = describe_runs(model_of(client), (3,), (REGION, REGION))
    buffer_id = client.allocate(64)
    client.call(
        "NnrtDevice.WriteBuffer",
        device_pb2.BufferChunk(buffer_id=buffer_id, data=X.tobytes()),
    )
    regions = (buffer_id, 0, 12, buffer_id, 32, 12)
    first = ask(way, kind.frame(regions=regions))
    second = ask(way, kind.frame(regions=regions, is_described=False))
    assert not first.rest and not second.rest and not second.outcome.ByteSize()
    region = model_pb2.BufferRegion(buffer_id=buffer_id, offset=32, data_size=12)
    assert np.frombuffer(client.read(region), np.float32).tolist() == [11, 22, 33]


def test_a_shared_buffer_is_read_and_written(client: RawClient) -> None:
    kind = describe_runs(model_of(client), (3,), (REGION, REGION))
    with side_of(client) as sharing, side_of(client) as side, memfd(4096) as fd:
        buffer_id = sharing.share(fd, 4096)
        client.call("NnrtDevice.WriteBuffer", device_pb2.BufferChunk(buffer_id=buffer_id, data=X.tobytes()))
        answer = ask(OnLocalSocket(side), kind.frame(regions=(buffer_id, 0, 12, buffer_id, 64, 12)))
        assert not answer.outcome.ByteSize()
        assert np.frombuffer(
            client.read(model_pb2.BufferRegion(buffer_id=buffer_id, offset=64, data_size=12)), np.float32
        ).tolist() == [11, 22, 33]


def test_a_region_that_is_too_small_and_one_that_is_gone(client: RawClient, way: Way) -> None:
    kind = describe_runs(model_of(client), (3,), (INLINE, REGION))
    buffer_id = client.allocate(64)
    small, gone = ask_all(way, kind.frame(X, regions=(buffer_id, 0, 8)), kind.frame(X, regions=(999, 0, 12)))
    assert small.outcome.error.place == "output 0" and gone.outcome.error.place == "output 0"


def test_large_tensors_come_in_chunks_on_a_stream(client: RawClient) -> None:
    size = 1 << 20
    model_id = model_of(client, (size,), (1,))
    kind = describe_runs(model_id, (size,), (CHUNKS, INLINE))
    x = np.arange(size, dtype=np.float32)
    with way_of(client, "stream") as way:
        assert isinstance(way, OnStream)
        stream = way.conversation
        stream.send(frames_message(kind.frame()))
        for begin in range(0, x.nbytes, 1 << 20):
            stream.send(chunk_message(flat_bytes(x)[begin : begin + (1 << 20)]))
        (answer,) = answers_of(stream.receive().frames)
        (output,) = answer.outcome.outputs
        assert output.place == CHUNKS and list(output.dimensions) == [size]
        data = b"".join(stream.receive().chunk for _ in range(4))
        assert np.array_equal(np.frombuffer(data, np.float32), x + 1)
        small = describe_runs(model_of(client), (3,))
        assert ask(way, small.frame(X)).first(3) == [11, 22, 33]


def test_chunks_of_a_run_that_failed_are_skipped(client: RawClient) -> None:
    kind, small = describe_runs(model_of(client) + 9, (3,), (CHUNKS, INLINE)), describe_runs(model_of(client), (3,))
    with way_of(client, "stream") as way:
        answer = ask(way, kind.frame())
        assert answer.outcome.HasField("error")
        assert isinstance(way, OnStream)
        way.conversation.send(chunk_message(flat_bytes(X)))
        assert ask(way, small.frame(X)).first(3) == [11, 22, 33]


def test_what_is_too_long_for_a_packet_is_kept(client: RawClient) -> None:
    size = 1 << 20
    kind = describe_runs(model_of(client, (size,), (1,)), (size,), (REGION, INLINE), is_open=True)
    buffer_id = client.allocate(4 * size)
    run_id = next(RUN_IDS)
    with side_of(client) as side:
        answer = ask(OnLocalSocket(side), kind.frame(run_id=run_id, regions=(buffer_id, 0, 4 * size)))
        assert answer.outcome.kept
        head, *chunks = client.call("PreparedModel.AwaitRun", AwaitRunRequest(run_id=run_id))
        (reply,) = answers_of(head.frames)
        assert reply.run_id == run_id and reply.outcome.outputs[0].place == CHUNKS
        assert np.frombuffer(b"".join(chunk.chunk for chunk in chunks), np.float32).tolist() == [1.0] * size
        client.call("PreparedModel.CancelRuns", CancelRunsRequest(run_ids=[run_id]))


def test_the_reply_of_a_lost_connection_is_fetched_as_the_same_bytes(client: RawClient) -> None:
    kind, run_id = describe_runs(model_of(client), (3,)), next(RUN_IDS)
    with side_of(client) as side:
        OnLocalSocket(side).send(kind.frame(X, run_id=run_id))
        packet = side.receive_packet()
    (message,) = client.call("PreparedModel.AwaitRun", AwaitRunRequest(run_id=run_id))
    assert message.frames == packet


@pytest.mark.parametrize("damage", ["short", "head", "odd", "mark", "length", "trailing"])
def test_what_cannot_be_cut_into_frames_ends_the_connection(client: RawClient, damage: str) -> None:
    kind = describe_runs(model_of(client), (3,))
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
    reply = client.ask("PreparedModel.Run", RunRequest(model_id=model_id, inputs=[io_tensor(X)]))
    assert reply.times.served_ns >= reply.times.computed_ns > 0
    with pytest.raises(InvalidParameter, match="broadcast"):
        client.run(model_id, np.zeros(4, np.float32))
