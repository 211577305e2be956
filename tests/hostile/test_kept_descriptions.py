"""Descriptions that a daemon keeps, and the regions of their frames, under clients that send what they like."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
from daemon_process import DaemonProcess
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_side import memfd, side_of
from model_draft import Draft
from part import examples
from raw_client import INPUT, SUM, VALUES, RawClient, attacked_daemon, client
from waiting import until
from ways import (
    CHUNKS,
    INLINE,
    NOWHERE,
    REGION,
    RUN_IDS,
    WAYS,
    Answer,
    Kind,
    OnLocalSocket,
    OnStream,
    Tensor,
    Way,
    answers_of,
    ask,
    daemon,
    describe_runs,
    raw_frame,
    way,
    way_of,
)

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, UnavailableDevice
from nnrt_hdi.limits import FIRST_CLIENT_BUFFER_ID, MAX_DESCRIPTIONS
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2

__all__ = ["client", "daemon", "way"]  # Fixtures.

ELEMENTS = np.array(INPUT, np.float32)
ADDED = np.array(VALUES, np.float32)
SIZE = ELEMENTS.nbytes
PAGE = 4096


def known(client: RawClient, way: Way) -> Kind:
    """Have the daemon keep a description, with one run."""
    kind = describe_runs(client.prepare_sum(), ELEMENTS.shape)
    assert ask(way, kind.frame(ELEMENTS)).first(3) == list(SUM)
    return kind


def is_known(way: Way, kind: Kind) -> bool:
    answer = ask(way, kind.bare(ELEMENTS))
    assert answer.outcome.is_unknown or answer.first(3) == list(SUM)
    return not answer.outcome.is_unknown


def refusal(answer: Answer) -> str:
    """Why a run was refused, as INVALID_PARAMETER."""
    assert type(answer.refusal) is InvalidParameter, answer
    return str(answer.refusal)


def test_runs_without_their_description(client: RawClient, way: Way) -> None:
    kind = known(client, way)
    for run_id in (2, 3, (1 << 64) - 1):
        x = ELEMENTS * run_id
        answer = ask(way, kind.bare(x, run_id=run_id, timeout_ms=20_000))
        assert answer.first(3) == (x + ADDED).tolist()
        received_at_ns, *parts, served_ns = answer.times
        assert received_at_ns and 0 < sum(parts) <= served_ns
    (counted,) = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).identities[:1]
    assert counted.in_bytes >= 4 * SIZE and counted.out_bytes >= 4 * SIZE


def test_ways_share_the_descriptions_of_a_session(client: RawClient) -> None:
    with way_of(client, "local socket") as local, way_of(client, "stream") as stream:
        assert is_known(stream, known(client, local))


def test_numbers_that_are_not_kept(client: RawClient, way: Way) -> None:
    kind = known(client, way)
    for number in (0, kind.number + 1000, (1 << 32) - 1):
        unknown = ask(way, kind.bare(ELEMENTS, number=number))
        assert [field.name for field, _ in unknown.outcome.ListFields()] == ["is_unknown"]
        assert not unknown.rest and not any(unknown.times)
    assert is_known(way, kind)


def test_another_session_knows_nothing_of_a_description(daemon: DaemonProcess, client: RawClient, way: Way) -> None:
    kind = known(client, way)
    with RawClient(daemon.address) as other:
        for name in WAYS:
            with way_of(other, name) as its:
                assert not is_known(its, kind)


def test_a_run_that_was_not_known_may_come_again(client: RawClient, way: Way) -> None:
    """Under the same number: nothing has been done for it, and nothing of it is kept."""
    kind = describe_runs(client.prepare_sum(), ELEMENTS.shape)
    assert ask(way, kind.bare(ELEMENTS, run_id=7)).outcome.is_unknown
    with pytest.raises(NnrtError, match="run 7 is not known"):
        client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=7))
    assert ask(way, kind.frame(ELEMENTS, run_id=7)).first(3) == list(SUM)


def test_frames_of_another_length(client: RawClient, way: Way) -> None:
    kind = known(client, way)
    sound = kind.bare(ELEMENTS)
    for body in (bytes(SIZE + 8), bytes(8), b"", bytes(100 * SIZE)):
        frame = raw_frame(next(RUN_IDS), body, kind.number)
        said = f"a frame has {len(frame)} bytes; by its description it has {len(sound)}"
        assert said in refusal(ask(way, frame))
    assert is_known(way, kind)


DESCRIBED: dict[str, tuple[dict[str, Any], str]] = {
    "another type": ({"inputs": [Tensor((3,), data_type=DataType.INT32)]}, "it is int32[3]; the model takes"),
    "no type": ({"inputs": [Tensor((3,), data_type=DataType.UNKNOWN)]}, "the model takes"),
    "another shape": ({"inputs": [Tensor((4,))]}, "the model takes"),
    "another rank": ({"inputs": [Tensor((1, 3))]}, "the model takes"),
    "an open dimension": ({"inputs": [Tensor((-1,))]}, "the model takes"),
    "a huge shape": ({"inputs": [Tensor([2**31 - 1] * 40)]}, "there are 40 dimensions; use at most 32"),
    "no inputs": ({"inputs": []}, "0 inputs were given"),
    "two inputs": ({"inputs": [Tensor((3,))] * 2}, "2 inputs were given"),
    "no outputs": ({"outputs": []}, "0 outputs were given"),
    "an input nowhere": ({"inputs": [Tensor((3,), NOWHERE)]}, "place is 3"),
    "an input in no place": ({"inputs": [Tensor((3,), 99)]}, "place is 99"),
    "an output in chunks": ({"outputs": [Tensor((3,), CHUNKS)]}, "place is 2"),
    "an output in no place": ({"outputs": [Tensor((3,), -1)]}, "place is -1"),
    "an output of another type": ({"outputs": [Tensor((3,), data_type=DataType.INT32)]}, "the model gives"),
    "an output of another shape": ({"outputs": [Tensor((3, 1))]}, "the model gives"),
    "an output of a negative size": ({"outputs": [Tensor((-3,))]}, "the model gives"),
}


@pytest.mark.parametrize(("fields", "said"), DESCRIBED.values(), ids=DESCRIBED)
def test_descriptions_that_do_not_fit(client: RawClient, way: Way, fields: dict[str, Any], said: str) -> None:
    """Are refused with their run alone, and not kept."""
    kind = describe_runs(client.prepare_sum(), ELEMENTS.shape)
    message = kind.description
    for name, tensors in fields.items():
        message.ClearField(name)
        getattr(message, name).extend(tensor.message() for tensor in tensors)
    described = message.SerializeToString()
    assert said in refusal(ask(way, raw_frame(next(RUN_IDS), bytes(SIZE), 77, described)))
    assert ask(way, raw_frame(next(RUN_IDS), bytes(SIZE), 77)).outcome.is_unknown
    assert is_known(way, known(client, way))


@pytest.mark.parametrize("described", [b"\xff", b"\x12\x05x", b"\x12\x00" * 20_000], ids=["none", "short", "many"])
def test_descriptions_that_can_not_be_read(client: RawClient, described: bytes, way: Way) -> None:
    assert ask(way, raw_frame(next(RUN_IDS), bytes(SIZE), 77, described)).refusal
    assert is_known(way, known(client, way))


@pytest.mark.parametrize("length", [1, SIZE + 9, (1 << 32) - 1])
def test_lengths_of_descriptions(client: RawClient, way: Way, length: int) -> None:
    kind = known(client, way)
    frame = bytearray(kind.bare(ELEMENTS))
    frame[24:28] = length.to_bytes(4, "little")
    assert refusal(ask(way, bytes(frame)))
    assert is_known(way, kind)


def test_a_reply_that_came_before_what_is_no_frame(client: RawClient) -> None:
    """Counts in the session's memory until it is fetched, as that of any stream that breaks."""
    with way_of(client, "stream") as way:
        kind = known(client, way)
        assert ask(way, kind.bare(ELEMENTS, run_id=2)).first(3) == list(SUM)
        way.send(b"\0")
        with pytest.raises(InvalidParameter, match="frame"):
            way.receive()

    def held_bytes() -> int:
        return int(client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).load.held_bytes["replies"])

    until(held_bytes)
    client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[2]))
    assert not held_bytes()


def test_who_reads_no_replies_holds_up_nobody() -> None:
    """With whose runs its own are computed."""
    draft = Draft()
    x, values = draft.input([-1, len(INPUT)]), draft.constant(ADDED)
    draft.node(NodeType.ADD_FUSION, [x, values], [draft.output([-1, len(INPUT)])])
    with attacked_daemon("--batch", "16") as daemon, RawClient(daemon.address) as client:
        kind = describe_runs(int(client.prepare(draft.message).prepared.model_id), (1, len(INPUT)))
        with ExitStack() as stack:
            *greedy, other = (OnLocalSocket(stack.enter_context(side_of(client))) for _ in range(9))
            assert ask(other, kind.frame(ELEMENTS)).first(3) == list(SUM)
            for way in greedy:
                way.side.socket.setblocking(False)
            for _ in range(500):  # More replies than a socket has room for.
                for way in greedy:
                    with suppress(OSError):  # It has been ended, or takes no more.
                        way.send(kind.bare(ELEMENTS))
                assert ask(other, kind.bare(ELEMENTS)).first(3) == list(SUM)


def test_numbers_of_runs(client: RawClient, way: Way) -> None:
    kind = known(client, way)
    client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[5]))
    assert type(ask(way, kind.bare(ELEMENTS, run_id=5)).refusal) is OperationFailed
    assert ask(way, kind.bare(ELEMENTS, run_id=6)).first(3) == list(SUM)
    with way_of(client, "local socket") as other:
        assert "run_id 6 is taken" in refusal(ask(other, kind.bare(ELEMENTS, run_id=6)))
        assert "no run_id" in refusal(ask(other, kind.bare(ELEMENTS, run_id=0)))


def test_a_released_model_takes_its_descriptions_along(client: RawClient, way: Way) -> None:
    kind = known(client, way)
    model_id = kind.description.model_id
    client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
    assert not is_known(way, kind)
    assert isinstance(ask(way, kind.frame(ELEMENTS)).refusal, UnavailableDevice)
    again = describe_runs(client.prepare_sum(), ELEMENTS.shape, number=kind.number)
    assert ask(way, again.frame(ELEMENTS)).first(3) == list(SUM)
    assert is_known(way, again)


def test_a_frame_with_its_description_is_always_enough(client: RawClient, way: Way) -> None:
    """Whatever else is kept under its number."""
    kind = known(client, way)
    other = int(client.prepare(Draft.sum_of_input_and((7, 7, 7)).message).prepared.model_id)
    same = describe_runs(other, ELEMENTS.shape, number=kind.number)
    assert ask(way, same.frame(ELEMENTS)).first(3) == [17, 27, 37]
    assert ask(way, kind.frame(ELEMENTS)).first(3) == list(SUM)
    assert is_known(way, kind)


def test_more_descriptions_than_are_kept(client: RawClient) -> None:
    """The latest are."""
    model_id = client.prepare_sum()
    kinds = [describe_runs(model_id, ELEMENTS.shape, number=number) for number in range(1, MAX_DESCRIPTIONS + 3)]
    with way_of(client, "local socket") as way:
        for kind in kinds:
            assert ask(way, kind.frame(ELEMENTS)).first(3) == list(SUM)
        for kind in kinds[:4] + kinds[-2:]:
            assert is_known(way, kind) == (kind.number > 2)


@pytest.mark.slow
def test_descriptions_count_in_the_memory_of_their_session() -> None:
    with attacked_daemon("--session-bytes", str(1 << 20)) as daemon, RawClient(daemon.address) as client:
        model_id = client.prepare_sum()
        kinds = [describe_runs(model_id, ELEMENTS.shape, number=number) for number in range(1, MAX_DESCRIPTIONS + 1)]
        with way_of(client, "local socket") as way:
            for kind in kinds:
                assert ask(way, kind.frame(ELEMENTS)).first(3) == list(SUM)
            kept = [is_known(way, kind) for kind in kinds]
            most = kept.index(False)
            assert 0 < most < 350 and not any(kept[most:])
            client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
            assert client.allocate(1 << 20)


@pytest.mark.parametrize(
    "fields", [{"profile": True}, {"traceparent": f"00-{1:032x}-{1:016x}-01"}], ids=lambda fields: next(iter(fields))
)
def test_what_is_for_one_run_is_not_kept(client: RawClient, way: Way, fields: dict[str, Any]) -> None:
    kind = describe_runs(client.prepare_sum(), ELEMENTS.shape, **fields)
    answer = ask(way, kind.frame(ELEMENTS))
    assert np.frombuffer(answer.rest[:SIZE], np.float32).tolist() == list(SUM)
    assert not is_known(way, kind)


def test_tensors_without_elements(client: RawClient, way: Way) -> None:
    draft = Draft()
    x = draft.input([-1])
    draft.node(NodeType.ADD_FUSION, [x, draft.constant(np.ones(1, np.float32))], [draft.output([-1])])
    kind = describe_runs(int(client.prepare(draft.message).prepared.model_id), (0,))
    none = np.empty(0, np.float32)
    for frame in (kind.frame(none), kind.bare(none)):
        assert not ask(way, frame).floats.size


class Shared(NamedTuple):
    """Memory that the daemon has as a buffer, and runs whose tensors lie there."""

    fd: int
    buffer_id: int
    kind: Kind

    def frame(self, *regions: tuple[int, int, int], run_id: int | None = None) -> bytes:
        return self.kind.bare(run_id=run_id, regions=sum(regions, ()))

    def at(self, offset: int, size_bytes: int = SIZE) -> tuple[int, int, int]:
        return self.buffer_id, offset, size_bytes

    def write(self, offset: int, array: Array) -> None:
        os.pwrite(self.fd, array.tobytes(), offset)

    def read(self, offset: int) -> list[float]:
        return [float(each) for each in np.frombuffer(os.pread(self.fd, SIZE, offset), np.float32)]


def is_done(answer: Answer) -> bool:
    """Whether a run whose output went to a region did what its description promises."""
    assert not answer.rest
    return not answer.outcome.ByteSize()


@pytest.fixture
def shared(client: RawClient, way: Way) -> Iterator[Shared]:
    """The kind reads its input from a region and writes its output to another one."""
    with side_of(client) as side, memfd(PAGE) as fd:
        buffer_id = side.share(fd, PAGE, FIRST_CLIENT_BUFFER_ID)
        shared = Shared(fd, buffer_id, describe_runs(client.prepare_sum(), ELEMENTS.shape, (REGION, REGION)))
        shared.write(0, ELEMENTS)
        regions = (*shared.at(0), *shared.at(64))
        assert is_done(ask(way, shared.kind.frame(regions=regions)))
        assert shared.read(64) == list(SUM)
        yield shared


def test_regions_of_runs(way: Way, shared: Shared) -> None:
    for factor, (at, to) in enumerate(((128, 256), (PAGE - SIZE, 0), (4, 4), (0, 8), (16, 8), (1, 129), (130, 3)), 2):
        shared.write(at, ELEMENTS * factor)
        assert is_done(ask(way, shared.frame(shared.at(at), shared.at(to))))
        assert shared.read(to) == (ELEMENTS * factor + ADDED).tolist()


def test_regions_that_there_are_not(way: Way, shared: Shared) -> None:
    for offset in (PAGE - SIZE + 1, PAGE, 1 << 63, (1 << 64) - 1, (1 << 64) - SIZE):
        for regions in ((shared.at(offset), shared.at(0)), (shared.at(0), shared.at(offset))):
            message = refusal(ask(way, shared.frame(*regions)))
            assert f"{SIZE} bytes at {offset} pass the end" in message
    for regions in (((shared.buffer_id + 1, 0, SIZE), shared.at(0)), (shared.at(0), (0, 0, SIZE))):
        error = ask(way, shared.frame(*regions)).refusal
        assert isinstance(error, UnavailableDevice) and "no buffer" in str(error)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.integers(0, PAGE + 64), st.integers(0, 2**64 - 1)), min_size=2, max_size=2), st.booleans())
def test_any_regions(way: Way, shared: Shared, offsets: list[int], is_there: bool) -> None:
    """Wherever tensors are said to lie, a run reads and writes within its buffers, or is refused."""
    at, to = offsets
    to_region = (shared.buffer_id + (not is_there), to, SIZE)
    answer = ask(way, shared.frame(shared.at(at), to_region))
    fits = is_there and max(at, to) <= PAGE - SIZE
    assert is_done(answer) == fits, answer
    if not fits:
        assert str(answer.refusal)


def test_lengths_of_regions(way: Way, shared: Shared) -> None:
    """An input has exactly its bytes, an output has room for its, and where it has not it is refused."""
    for size_bytes in (0, SIZE - 1, SIZE + 1, PAGE, (1 << 64) - 1):
        refusal(ask(way, shared.frame(shared.at(0, size_bytes), shared.at(64))))
    for size_bytes in (0, SIZE - 1, PAGE, (1 << 64) - 1):
        refusal(ask(way, shared.frame(shared.at(0), shared.at(64, size_bytes))))
    shared.write(64, np.zeros_like(ELEMENTS))
    assert is_done(ask(way, shared.frame(shared.at(0), shared.at(64, PAGE - 64))))
    assert shared.read(64) == list(SUM)


def test_more_regions_than_are_remembered(way: Way, shared: Shared) -> None:
    """Whichever of them come again, each run reads and writes its own."""
    places = [8 * at for at in range(200)]
    for factor, at in enumerate(places * 2, 2):
        shared.write(at, ELEMENTS * factor)
        assert is_done(ask(way, shared.frame(shared.at(at), shared.at(2048 + at))))
        assert shared.read(2048 + at) == (ELEMENTS * factor + ADDED).tolist()


def test_other_memory_under_the_same_number(client: RawClient, way: Way, shared: Shared) -> None:
    """What was known of the regions of a released buffer is not taken for those of the next one of its number."""
    assert is_done(ask(way, shared.frame(shared.at(0), shared.at(64))))
    for factor, size_bytes in enumerate((PAGE, 64 + SIZE - 1, PAGE), 3):
        client.ask("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=shared.buffer_id))
        with side_of(client) as side, memfd(PAGE) as fd:
            side.share(fd, size_bytes, shared.buffer_id)
            other = shared._replace(fd=fd)
            other.write(0, ELEMENTS * factor)
            answer = ask(way, other.frame(other.at(0), other.at(64)))
            if size_bytes < PAGE:
                assert "pass the end" in refusal(answer)
            else:
                assert is_done(answer)
                assert other.read(64) == (ELEMENTS * factor + ADDED).tolist()
    assert shared.read(64) == list(SUM)


def test_another_description_under_the_same_number(client: RawClient, way: Way, shared: Shared) -> None:
    """What was known of regions for a description that is gone is not taken for those of the next one of its number."""
    assert is_done(ask(way, shared.frame(shared.at(0), shared.at(64))))
    model_id = shared.kind.description.model_id
    client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
    doubled = np.concatenate([ELEMENTS, ELEMENTS])
    longer = client.prepare_sum(doubled.tolist())
    kind = describe_runs(longer, doubled.shape, (REGION, REGION), number=shared.kind.number)
    regions = (*shared.at(0, 2 * SIZE), *shared.at(64, 2 * SIZE))
    assert is_done(ask(way, kind.frame(regions=regions)))
    refusal(ask(way, shared.frame(shared.at(0), shared.at(64))))
    assert is_done(ask(way, kind.bare(regions=regions)))


def test_a_buffer_that_is_released(client: RawClient, way: Way, shared: Shared) -> None:
    regions = shared.at(0), shared.at(64)
    assert is_done(ask(way, shared.frame(*regions)))
    client.ask("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=shared.buffer_id))
    assert "no buffer" in str(ask(way, shared.frame(*regions)).refusal)


def reshaped(client: RawClient) -> int:
    """A model whose output has the shape that its second input says."""
    draft = Draft()
    operands = [draft.input([6]), draft.input([2], DataType.INT64)]
    draft.node(NodeType.RESHAPE, operands, [draft.output([-1, -1])])
    return int(client.prepare(draft.message).prepared.model_id)


@pytest.mark.parametrize("in_region", [False, True])
def test_an_output_that_comes_out_with_another_shape(client: RawClient, way: Way, in_region: bool) -> None:
    """Is told with it."""
    x = np.arange(6, dtype=np.float32)
    with side_of(client) as side, memfd(PAGE) as fd:
        inputs = [Tensor((6,)), Tensor((2,), data_type=DataType.INT64)]
        kind = Kind(reshaped(client), inputs, [Tensor((2, 3), REGION if in_region else INLINE)])
        regions = (side.share(fd, PAGE), 64, x.nbytes) if in_region else ()
        assert not ask(way, kind.frame(x, np.array([2, 3]), regions=regions)).outcome.ByteSize()
        for dims in ((2, 3), (3, 2), (1, 6), (2, 3)):
            answer = ask(way, kind.bare(x, np.array(dims), regions=regions))
            told = [tuple(output.dimensions) for output in answer.outcome.outputs]
            assert told == ([] if dims == (2, 3) else [dims])
            is_there = in_region and all(output.place == REGION for output in answer.outcome.outputs)
            assert (os.pread(fd, x.nbytes, 64) if is_there else answer.rest) == x.tobytes()


@pytest.mark.parametrize("in_region", [False, True])
def test_a_reply_that_is_fetched(client: RawClient, shared: Shared, way: Way, in_region: bool) -> None:
    """The reply of a run whose connection has ended is the same."""
    kind = describe_runs(client.prepare_sum(), ELEMENTS.shape)
    with way_of(client, "stream" if isinstance(way, OnStream) else "local socket") as lost:
        there = shared.frame(shared.at(0), shared.at(128), run_id=7)
        first = ask(lost, there if in_region else kind.frame(ELEMENTS, run_id=7))
    (message,) = client.call("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=7))
    (fetched,) = answers_of(message.frames)
    assert fetched == first and fetched.run_id == 7 and fetched.times[-1]
    assert (shared.read(128) if in_region else fetched.first(3)) == list(SUM)


# Where bytes are changed, and to what; a length to cut a frame to.
CHANGES = st.lists(st.tuples(st.integers(0, 127), st.integers(0, 255)), max_size=6)
FRAMES = st.tuples(st.booleans(), CHANGES, st.one_of(st.none(), st.integers(1, 127)))


@pytest.mark.parametrize("name", WAYS)
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FRAMES, min_size=1, max_size=3))
def test_changed_frames(
    client: RawClient, name: str, changed: list[tuple[bool, list[tuple[int, int]], int | None]]
) -> None:
    """Whatever bytes of frames are others, they are answered, or end their connection."""
    with way_of(client, name) as way:
        kind = known(client, way)
        for is_described, changes, length in changed:
            run_id = next(RUN_IDS)
            packet = bytearray(kind.frame(ELEMENTS, run_id=run_id, is_described=is_described))
            for at, value in changes:
                packet[at % len(packet)] = value
            packet = packet[:length]
            way.send(bytes(packet))
            try:
                (answer,) = way.receive()
            except (NnrtError, OSError, StopIteration):
                break
            if not answer.outcome.ByteSize() and len(answer.rest) == 16:  # Its input is the last that the frame has.
                x = np.frombuffer(bytes(packet[-16:]), np.float32)[:3]
                with np.errstate(invalid="ignore"):  # Changed bytes may be a signaling NaN.
                    np.testing.assert_array_equal(answer.floats[:3], x + ADDED)
        model_id = kind.description.model_id
        client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
