"""Several frames in one packet, from clients that send what they like."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from gate import Gate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_side import side_of
from model_draft import Draft
from observer import Observer
from part import examples
from raw_client import INPUT, VALUES, RawClient, attacked_daemon, client
from started.signs import HELD
from waiting import until
from ways import (
    WAYS,
    Kind,
    OnLocalSocket,
    Tensor,
    Way,
    answers_of,
    ask,
    ask_all,
    daemon,
    describe_runs,
    raw_frame,
    way,
    way_of,
)

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, TimedOut
from nnrt_hdi.limits import MAX_FRAMES
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import device_pb2, local_socket_pb2, prepared_model_pb2
from nnrt_hdi.wire.packet import REPLY_MARK, REQUEST_MARK, frames_of

pytestmark = pytest.mark.slow

__all__ = ["client", "daemon", "way"]  # Fixtures.

ELEMENTS = np.array(INPUT, np.float32)
ADDED = np.array(VALUES, np.float32)


@pytest.fixture
def kind(client: RawClient, way: Way) -> Kind:
    return known(client, way)


def known(client: RawClient, way: Way) -> Kind:
    """Have the daemon keep a description, with one run."""
    kind = describe_runs(client.prepare_sum(), ELEMENTS.shape)
    assert len(ask(way, kind.frame(ELEMENTS)).rest) == 16
    return kind


def wide(client: RawClient) -> tuple[Kind, Array]:
    """Make a kind whose replies are much longer than its frames: it, and an input."""
    draft = Draft()
    x, zeros = draft.input([16, 1]), draft.constant(np.zeros((1, 256), np.float32))
    draft.node(NodeType.ADD_FUSION, [x, zeros], [draft.output([16, 256])])
    kind = describe_runs(int(client.prepare(draft.message).prepared.model_id), (16, 1), output_dims=(16, 256))
    return kind, np.ones((16, 1), np.float32)


def frames(kind: Kind, run_ids: Sequence[int]) -> list[bytes]:
    return [kind.bare(ELEMENTS * run_id, run_id=run_id) for run_id in run_ids]


def sum_of(factor: int) -> list[float]:
    return [float(each) for each in ELEMENTS * factor + ADDED]


def sums(way: Way, *packet: bytes) -> dict[int, list[float]]:
    return {answer.run_id: answer.first(3) for answer in ask_all(way, *packet)}


def kept_bytes(client: RawClient) -> int:
    counters = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest())
    return int(counters.load.held_bytes["replies"])


@pytest.mark.parametrize("count", [1, 2, MAX_FRAMES])
def test_runs_of_one_packet(way: Way, kind: Kind, count: int) -> None:
    for first in (2, 100):
        run_ids = range(first, first + count)
        assert sums(way, *frames(kind, run_ids)) == {run_id: sum_of(run_id) for run_id in run_ids}


def test_answers_on_a_stream_come_in_order(client: RawClient) -> None:
    with way_of(client, "stream") as way:
        kind = known(client, way)
        sent = [5, 2, 9, 3]
        way.send(*frames(kind, sent))
        answers = [answer for _ in sent for answer in way.receive()]
        assert [answer.run_id for answer in answers] == sent


def test_descriptions_within_a_packet(client: RawClient, way: Way) -> None:
    """A frame may count on what one before it in the packet has described."""
    kind = describe_runs(client.prepare_sum(), ELEMENTS.shape)
    run_ids = range(2, 5)
    first, *others = frames(kind, run_ids)
    described = kind.frame(ELEMENTS * 2, run_id=2)
    assert len(described) > len(first)
    assert sums(way, described, *others) == {run_id: sum_of(run_id) for run_id in run_ids}


def test_runs_count_one_by_one(client: RawClient, way: Way, kind: Kind) -> None:
    def ended() -> int:
        (counted,) = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).identities[:1]
        return int(counted.in_bytes)

    before = ended()
    sums(way, *frames(kind, range(2, 7)))
    assert ended() - before == 5 * ELEMENTS.nbytes


def test_frames_fail_alone(client: RawClient, way: Way, kind: Kind) -> None:
    """For a description that nobody knows, another length, or as they were cancelled before."""
    client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[6]))
    first, *_, last = frames(kind, range(2, 8))
    unknown = kind.bare(ELEMENTS, run_id=3, number=kind.number + 999)
    short, long = raw_frame(4, b"", kind.number), raw_frame(5, bytes(24), kind.number)
    cancelled = kind.bare(ELEMENTS, run_id=6)
    answers = ask_all(way, first, unknown, short, long, cancelled, last)
    assert [answer.run_id for answer in answers] == list(range(2, 8))
    assert [answers[at].first(3) for at in (0, 5)] == [sum_of(2), sum_of(7)]
    assert answers[1].outcome.is_unknown
    assert [type(answer.refusal) for answer in answers[2:5]] == [InvalidParameter, InvalidParameter, OperationFailed]


def test_a_number_that_comes_twice(way: Way, kind: Kind) -> None:
    packet = [kind.bare(ELEMENTS * run_id, run_id=run_id) for run_id in (2, 2, 0, 3)]
    none, *answers = ask_all(way, *packet)
    assert "the run has no run_id" in str(none.refusal)
    assert [answer.run_id for answer in answers] == [2, 2, 3]
    (taken,) = [answer for answer in answers if answer.error is not None]
    assert taken.run_id == 2 and "run_id 2 is taken" in str(taken.refusal)
    assert sums(way, *frames(kind, [4, 2])) == {4: sum_of(4), 2: sum_of(2)}


def bad_packets() -> dict[str, bytes]:
    sound = raw_frame(2, ELEMENTS.tobytes(), 1)
    size, behind = len(sound), sound[8:]
    return {
        "one byte": b"\0",
        "a start cut short": sound[:7],
        "a head cut short": sound[:31],
        "less than a head, as its length says": pack("<II", REQUEST_MARK, 24) + sound[8:24],
        "zeros": bytes(100),
        "another mark": b"\0\1\0\1" + sound[4:],
        "the mark of replies": pack("<I", REPLY_MARK) + sound[4:],
        "one frame too many": sound * (MAX_FRAMES + 1),
        "no length": pack("<II", REQUEST_MARK, 0) + behind,
        "a length past the end": pack("<II", REQUEST_MARK, size + 8) + behind,
        "a length before the end": pack("<II", REQUEST_MARK, size - 8) + behind,
        "a length within the head": pack("<II", REQUEST_MARK, 8) + behind,
        "a length that is no multiple": pack("<II", REQUEST_MARK, size - 4) + behind[:-4],
        "the greatest length": pack("<II", REQUEST_MARK, (1 << 32) - 1) + behind,
        "the greatest sound length": pack("<II", REQUEST_MARK, (1 << 32) - 8) + behind,
        "something behind": sound + b"\0",
        "a head behind": sound + sound[:24],
        "a message behind": sound + local_socket_pb2.LocalRequest(released_buffers=[1] * 40).SerializeToString(),
    }


@pytest.mark.parametrize("name", bad_packets())
def test_packets_that_are_no_frames(client: RawClient, way: Way, kind: Kind, name: str) -> None:
    """They end their connection, and none of their runs begins."""
    way.send(bad_packets()[name])
    with pytest.raises(NnrtError, match="frame"):
        way.receive()
    with pytest.raises((NnrtError, StopIteration, OSError)):
        way.receive()
    with way_of(client, "local socket") as other:
        assert sums(other, *frames(kind, [2])) == {2: sum_of(2)}


def test_replies_that_one_packet_has_no_room_for(client: RawClient, way: Way) -> None:
    """Come in several."""
    kind, column = wide(client)
    ask(way, kind.frame(column))
    answers = ask_all(way, *(kind.bare(column) for _ in range(MAX_FRAMES)))
    assert all(len(answer.rest) == 256 * column.nbytes and not answer.outcome.ByteSize() for answer in answers)


def test_replies_are_kept_when_the_connection_ends(client: RawClient) -> None:
    """Each by itself, until it is fetched or given up; the next packet says that those before it have come."""
    with side_of(client) as side:
        way = OnLocalSocket(side)
        kind = known(client, way)
        sums(way, *frames(kind, [2, 3]))
        sums(way, *frames(kind, [4, 5]))
    until(lambda: kept_bytes(client))
    for run_id in (4, 5):
        (message,) = client.call("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=run_id))
        (answer,) = answers_of(message.frames)
        assert (answer.run_id, answer.first(3)) == (run_id, sum_of(run_id))
    with pytest.raises(NnrtError, match="run 3 is not known"):
        client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=3))
    client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[4, 5]))
    assert not kept_bytes(client)


def test_what_comes_after_a_packet_forgets_its_replies(client: RawClient) -> None:
    """Be it a message, or frames: then their numbers are free."""
    with side_of(client) as side:
        way = OnLocalSocket(side)
        kind = known(client, way)
        sums(way, *frames(kind, [2, 3]))
        assert side.ask(local_socket_pb2.LocalRequest(released_buffers=[99])).done
        sums(way, *frames(kind, [2, 3]))
        assert sums(way, *frames(kind, [5])) == {5: sum_of(5)}
        assert sums(way, *frames(kind, [2, 3, 4])).keys() == {2, 3, 4}


def test_outputs_that_come_out_with_other_shapes(client: RawClient) -> None:
    draft = Draft()
    operands = [draft.input([512]), draft.input([2], DataType.INT64)]
    draft.node(NodeType.RESHAPE, operands, [draft.output([-1, -1])])
    model_id = int(client.prepare(draft.message).prepared.model_id)
    x = np.arange(512, dtype=np.float32)
    kind = Kind(model_id, [Tensor((512,)), Tensor((2,), data_type=DataType.INT64)], [Tensor((2, 256))])
    with way_of(client, "local socket") as way:
        assert not ask(way, kind.frame(x, np.array([2, 256]))).outcome.ByteSize()
        for count in (2, 28):
            for answer in ask_all(way, *(kind.bare(x, np.array([256, 2])) for _ in range(count))):
                (output,) = answer.inline_outputs()
                np.testing.assert_array_equal(output, x.reshape(256, 2))


@pytest.mark.parametrize("name", WAYS)
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_packets(client: RawClient, name: str, data: st.DataObject) -> None:
    """Whatever bytes of a packet are others, its frames are answered, or its connection ends."""
    with way_of(client, name) as way:
        kind = known(client, way)
        packet = bytearray(b"".join(kind.bare(ELEMENTS) for _ in range(2)))
        heads = st.sampled_from([*range(32), *range(len(packet) // 2, len(packet) // 2 + 32)])
        anywhere = st.integers(0, len(packet) - 1)
        for at, value in data.draw(st.lists(st.tuples(st.one_of(heads, anywhere), st.integers(0, 255)), max_size=6)):
            packet[at] = value
        cut = data.draw(st.one_of(st.just(len(packet)), st.integers(1, len(packet))))
        try:
            count = len(frames_of(REQUEST_MARK, bytes(packet[:cut])))
        except InvalidParameter:
            count = 0
        way.send(bytes(packet[:cut]))
        answered = 0
        try:
            while answered < max(count, 1):
                answered += len(way.receive())
        except (NnrtError, StopIteration, OSError):
            pass
        assert answered == count
        model_id = kind.description.model_id
        client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))


def test_runs_that_are_computed_together() -> None:
    """Those of one packet, and with them those of other connections; one that can't be is told by itself."""
    draft = Draft()
    x, values = draft.input([-1, len(INPUT)]), draft.constant(ADDED)
    draft.node(NodeType.ADD_FUSION, [x, values], [draft.output([-1, len(INPUT)])])
    with (
        attacked_daemon("--batch", "8") as daemon,
        RawClient(daemon.address) as client,
        way_of(client, "local socket") as way,
    ):
        kind = describe_runs(int(client.prepare(draft.message).prepared.model_id), (1, len(INPUT)))
        ask(way, kind.frame(ELEMENTS))
        client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[7]))
        answers = {answer.run_id: answer for answer in ask_all(way, *frames(kind, [*range(2, 22), 0]))}
        for run_id, error in ((7, OperationFailed), (0, InvalidParameter)):
            assert type(answers.pop(run_id).refusal) is error
        found = {run_id: answer.first(3) for run_id, answer in answers.items()}
        assert found == {run_id: sum_of(run_id) for run_id in range(2, 22) if run_id != 7}
        load = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).load
        assert load.batches.runs >= 16, load


def test_runs_behind_one_that_had_to_wait(tmp_path: Path) -> None:
    """Wait for the device themselves, where its order is kept, and each is answered when it ends."""
    gate = Gate(tmp_path)
    gated = ("--backend", "gated", "--option", f"gate={gate.path}", "--concurrent-runs", "1")
    with (
        attacked_daemon(*gated, sum_of_two=INPUT) as daemon,
        Observer(daemon.address) as observer,
        RawClient(daemon.address) as client,
        way_of(client, "local socket") as way,
        way_of(client, "local socket") as other,
    ):
        kind = known(client, way)
        gate.shut()
        other.send(*frames(kind, [2]))
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 0))
        way.send(*frames(kind, range(3, 6)))
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 1))
        long_enough = time.monotonic() + 0.005  # To be what the daemon takes for long.
        until(lambda: time.monotonic() > long_enough)
        gate.let_through()
        assert [answer.run_id for answer in other.receive()] == [2]
        gate.let_through()
        assert [answer.run_id for answer in way.receive()] == [3]
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 1))
        gate.release(lambda: observer.state().running == 0)
        found = {answer.run_id: answer.first(3) for _ in range(2) for answer in way.receive()}
        assert found == {run_id: (ELEMENTS * run_id).tolist() for run_id in (4, 5)}
        assert sums(way, *frames(kind, [6, 7])).keys() == {6, 7}


def test_runs_behind_one_that_had_to_wait_when_the_connection_has_ended(tmp_path: Path) -> None:
    """They are made all the same, and their replies kept."""
    gate = Gate(tmp_path)
    gated = ("--backend", "gated", "--option", f"gate={gate.path}", "--concurrent-runs", "1")
    with (
        attacked_daemon(*gated, sum_of_two=INPUT) as daemon,
        Observer(daemon.address) as observer,
        RawClient(daemon.address) as client,
        way_of(client, "local socket") as other,
    ):
        with way_of(client, "local socket") as way:
            kind = known(client, way)
            gate.shut()
            other.send(*frames(kind, [2]))
            observer.wait_for(lambda state: (state.running, state.queued) == (1, 0))
            way.send(*frames(kind, range(3, 6)))
            observer.wait_for(lambda state: (state.running, state.queued) == (1, 1))
        long_enough = time.monotonic() + 0.005  # To be what the daemon takes for long.
        until(lambda: time.monotonic() > long_enough)
        gate.release(lambda: observer.state().running == 0)
        for run_id in range(3, 6):
            (message,) = client.call("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=run_id))
            (answer,) = answers_of(message.frames)
            assert answer.first(3) == (ELEMENTS * run_id).tolist()


def test_a_client_that_reads_no_replies() -> None:
    """The device's own thread sends them, and waits for nobody: the connection ends, and the replies are kept."""
    with attacked_daemon("--backend", "starting") as daemon, RawClient(daemon.address) as client:
        kind, column = wide(client)
        with way_of(client, "local socket") as way:
            ask(way, kind.frame(column))
            with pytest.raises(BrokenPipeError):
                for _ in itertools.repeat(None):
                    way.send(kind.bare(column))
        until(lambda: kept_bytes(client) >= kind.layout.reply_bytes)
        with way_of(client, "local socket") as way:
            assert len(ask(way, kind.bare(column)).rest) == 256 * column.nbytes


def test_runs_that_the_device_holds_until_their_deadlines() -> None:
    """The daemon has it stop them, and tells who doesn't look at the time himself; others have ended by then."""
    held = np.full(ELEMENTS.shape, HELD, np.float32)
    with (
        attacked_daemon("--backend", "starting") as daemon,
        RawClient(daemon.address) as client,
        way_of(client, "local socket") as way,
    ):
        kind = known(client, way)
        late = [kind.bare(held, run_id=run_id, timeout_ms=50 * run_id) for run_id in (2, 3)]
        *timed_out, ended = ask_all(way, *late, *frames(kind, [4]))
        assert ended.first(3) == sum_of(4)
        assert [type(answer.refusal) for answer in timed_out] == [TimedOut] * 2
        (counted,) = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).identities[:1]
        assert counted.runs["timed_out"] == 2
        assert sums(way, *frames(kind, [5])) == {5: sum_of(5)}
