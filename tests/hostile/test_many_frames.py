"""Several planned runs in one packet of the local socket, from clients that send what they like."""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import pytest
from daemon_process import DaemonProcess
from gate import Gate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_side import Side, side_of
from model_draft import Draft
from observer import Observer
from raw_client import INPUT, SUM, VALUES, RawClient, attacked_daemon, io_tensor
from started.signs import HELD
from waiting import until

from nnrt_hdi import wire
from nnrt_hdi.enums import DataType, NodeType, ReturnCode
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.limits import LOCAL_PACKET_BYTES, MAX_BUNDLED_RUNS
from nnrt_hdi.v2 import device_pb2, local_socket_pb2, prepared_model_pb2
from nnrt_hdi.wire.bundles import REPLIES_MARK, REQUESTS_MARK, bundled, parts_of
from nnrt_hdi.wire.plans import REPLY_MARK, REQUEST_MARK, PlanLayout

pytestmark = pytest.mark.slow

ELEMENTS = np.array(INPUT, np.float32)
LAYOUT = PlanLayout([ELEMENTS.nbytes], [ELEMENTS.nbytes])
# Of runs and plans of one session.
NUMBERS = itertools.count(1)
RunRequest = prepared_model_pb2.RunRequest


@pytest.fixture(scope="module", params=["reference", "starting"])
def daemon(request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """One whose runs have a thread each, and one whose runs are started."""
    with attacked_daemon("--backend", request.param) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as client:
        assert "bundles" in client.welcome.features
        yield client


@pytest.fixture
def side(client: RawClient) -> Iterator[Side]:
    """A connection of a session whose plan 1 is known, as run 1."""
    with side_of(client) as side:
        plan(client, side)
        yield side


def plan(client: RawClient, side: Side, number: int = 1, run_id: int = 1) -> int:
    model_id = int(client.prepare(Draft.sum_of_input_and(VALUES).message).prepared.model_id)
    request = RunRequest(model_id=model_id, run_id=run_id, plan=number, inputs=[io_tensor(ELEMENTS)])
    assert side.ask(local_socket_pb2.LocalRequest(run=request)).run.plan == number
    return model_id


def wide_plan(client: RawClient, side: Side, number: int, run_id: int) -> tuple[PlanLayout, bytes]:
    """Have a plan whose replies are much longer than its requests: their layout, and the input of one."""
    draft = Draft()
    x, wide = draft.input([16, 1]), draft.constant(np.zeros((1, 256), np.float32))
    draft.node(NodeType.ADD_FUSION, [x, wide], [draft.output([16, 256])])
    model_id = int(client.prepare(draft.message).prepared.model_id)
    column = np.ones((16, 1), np.float32)
    request = RunRequest(model_id=model_id, run_id=run_id, plan=number, inputs=[io_tensor(column)])
    assert side.ask(local_socket_pb2.LocalRequest(run=request)).run.plan == number
    return PlanLayout([column.nbytes], [256 * column.nbytes]), column.tobytes()


def request_of(run_id: int, plan: int = 1, factor: int = 1, timeout_ms: int = 0) -> bytes:
    return LAYOUT.pack_request(REQUEST_MARK, plan, run_id, timeout_ms, (ELEMENTS * factor).tobytes())


def parts(side: Side, count: int) -> list[bytes]:
    """So many replies, in however many packets they come."""
    found: list[bytes] = []
    while len(found) < count:
        packet = side.socket.recv(LOCAL_PACKET_BYTES)
        assert packet, "the connection has ended"
        together = parts_of(REPLIES_MARK, packet) if packet[:2] == b"\0\4" else [packet]
        assert len(together) > 1 or packet == together[0]
        found += together
    return found


def replies(side: Side, count: int) -> dict[int, Any]:
    """What came of so many runs, by their ids: the numbers of a planned reply, or a RunReply."""
    outcomes: dict[int, Any] = {}
    for part in parts(side, count):
        if part[0] == 0:
            mark, run_id, *times = LAYOUT.reply_head(part)
            assert mark == REPLY_MARK and len(part) == LAYOUT.reply_bytes and times[-1]
            outcome: Any = np.frombuffer(part, np.float32, offset=LAYOUT.output_offsets[0] or 0).tolist()
        else:
            reply = local_socket_pb2.LocalReply.FromString(part)
            if reply.HasField("error"):
                raise wire.error_from_detail(reply.error)
            run_id, outcome = reply.run.run_id, reply.run
        outcomes[run_id] = outcome
    assert len(outcomes) == count
    return outcomes


def ask(side: Side, requests: Sequence[bytes]) -> dict[int, Any]:
    side.send(bundled(REQUESTS_MARK, requests))
    return replies(side, len(requests))


def sum_of(factor: int) -> list[float]:
    return [float(each) for each in ELEMENTS * factor + np.array(VALUES, np.float32)]


def kept_bytes(client: RawClient) -> int:
    counters = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest())
    return int(counters.load.held_bytes["replies"])


@pytest.mark.parametrize("count", [1, 2, MAX_BUNDLED_RUNS])
def test_runs_of_one_bundle(side: Side, count: int) -> None:
    for first in (2, 100):
        run_ids = range(first, first + count)
        outcomes = ask(side, [request_of(run_id, factor=run_id) for run_id in run_ids])
        assert outcomes == {run_id: sum_of(run_id) for run_id in run_ids}


def test_runs_count_one_by_one(client: RawClient, side: Side) -> None:
    def ended() -> int:
        (counted,) = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).identities[:1]
        return int(counted.in_bytes)

    before = ended()
    ask(side, [request_of(run_id) for run_id in range(2, 7)])
    assert ended() - before == 5 * ELEMENTS.nbytes


def test_a_plan_that_only_others_know(client: RawClient, side: Side) -> None:
    outcomes = ask(side, [request_of(2), request_of(3, plan=9), request_of(4)])
    assert outcomes[2] == outcomes[4] == list(SUM)
    assert outcomes[3].error.message == "no plan 9 is kept; send a RunRequest"


def test_a_request_of_another_length_than_its_plans(side: Side) -> None:
    outcomes = ask(side, [request_of(2), request_of(3)[:-4], request_of(4) + b"\0"])
    assert outcomes[2] == list(SUM)
    for run_id in (3, 4):
        assert outcomes[run_id].error.code == int(ReturnCode.INVALID_PARAMETER)


def test_a_number_that_comes_twice(side: Side) -> None:
    side.send(bundled(REQUESTS_MARK, [request_of(2), request_of(2, factor=2), request_of(0), request_of(3)]))
    first, second, third, fourth = sorted(parts(side, 4), key=lambda part: part[0])
    assert first[0] == second[0] == 0
    causes = sorted(local_socket_pb2.LocalReply.FromString(part).run.error.message for part in (third, fourth))
    assert [cause.split(";")[0] for cause in causes] == ["run_id 2 is taken", "the run has no run_id"]
    assert ask(side, [request_of(4), request_of(2)])[2] == list(SUM)


def test_a_run_that_was_cancelled_before(client: RawClient, side: Side) -> None:
    client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[3]))
    outcomes = ask(side, [request_of(2), request_of(3), request_of(4)])
    assert outcomes[2] == outcomes[4] == list(SUM)
    assert outcomes[3].error.code == int(ReturnCode.FAILED)


def bad_bundles() -> dict[str, bytes]:
    sound, size = request_of(2), len(request_of(2))
    return {
        "no head": b"\0\3",
        "a head cut short": b"\0\3\0\0\1\0\0",
        "another mark": pack("<III", 0x01000300, 1, size) + sound,
        "the mark of replies": bundled(REPLIES_MARK, [sound]),
        "no parts": pack("<II", REQUESTS_MARK, 0),
        "one part too many": bundled(
            REQUESTS_MARK, [request_of(run_id)[:24] for run_id in range(2, 3 + MAX_BUNDLED_RUNS)]
        ),
        "more parts than there can be": pack("<III", REQUESTS_MARK, (1 << 32) - 1, size) + sound,
        "lengths cut short": pack("<III", REQUESTS_MARK, MAX_BUNDLED_RUNS, size),
        "a length past the end": pack("<III", REQUESTS_MARK, 1, size + 1) + sound,
        "a length before the end": pack("<III", REQUESTS_MARK, 1, size - 1) + sound,
        "the greatest length": pack("<III", REQUESTS_MARK, 1, (1 << 32) - 1) + sound,
        "lengths that overflow": pack("<IIII", REQUESTS_MARK, 2, (1 << 32) - 1, size + 1) + sound,
        "an empty part": bundled(REQUESTS_MARK, [sound, b""]),
        "a part without its head": bundled(REQUESTS_MARK, [sound, request_of(3)[:23]]),
        "a bundle in a bundle": bundled(REQUESTS_MARK, [sound, bundled(REQUESTS_MARK, [request_of(3)])]),
        "a message in a bundle": bundled(REQUESTS_MARK, [sound, RunRequest(run_id=3).SerializeToString() + bytes(24)]),
    }


@pytest.mark.parametrize("name", bad_bundles())
def test_packets_that_are_no_bundles(client: RawClient, side: Side, name: str) -> None:
    """They end their connection, and none of their runs begins."""
    side.send(bad_bundles()[name])
    with pytest.raises(NnrtError, match=r"bundle|planned request"):
        replies(side, 1)
    assert not side.socket.recv(LOCAL_PACKET_BYTES)
    with side_of(client) as other:
        assert ask(other, [request_of(2)]) == {2: list(SUM)}


def test_replies_that_no_packet_has_room_for(client: RawClient, side: Side) -> None:
    """What a daemon keeps of a connection's latest replies is no more than a packet."""
    layout, column = wide_plan(client, side, number=2, run_id=2)
    requests = [layout.pack_request(REQUEST_MARK, 2, run_id, 0, column) for run_id in range(3, 7)]
    side.send(bundled(REQUESTS_MARK, requests[:3]))
    assert all(len(part) == layout.reply_bytes for part in parts(side, 3))
    side.send(bundled(REQUESTS_MARK, requests))
    with pytest.raises(NnrtError, match="replies of a bundle"):
        replies(side, 1)


def test_replies_are_kept_when_the_connection_ends(client: RawClient) -> None:
    """Each by itself, until it is fetched or given up; the next request says that those before it have come."""
    with side_of(client) as side:
        plan(client, side)
        ask(side, [request_of(2), request_of(3)])
        ask(side, [request_of(4, factor=4), request_of(5, factor=5)])
    until(lambda: kept_bytes(client))
    for run_id in (4, 5):
        reply = client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=run_id))
        assert wire.io_array(reply.outputs[0]).tolist() == sum_of(run_id)
    with pytest.raises(NnrtError, match="run 3 is not known"):
        client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=3))
    client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[4, 5]))
    assert not kept_bytes(client)


def test_a_message_after_a_bundle_forgets_its_replies(client: RawClient) -> None:
    with side_of(client) as side:
        model_id = plan(client, side)
        ask(side, [request_of(2), request_of(3)])
        request = RunRequest(model_id=model_id, run_id=4, inputs=[io_tensor(ELEMENTS)])
        assert side.ask(local_socket_pb2.LocalRequest(run=request)).run.outputs
        ask(side, [request_of(2), request_of(3)])
        side.send(request_of(5))
        assert replies(side, 1)[5] == list(SUM)
        ask(side, [request_of(2), request_of(3), request_of(4)])


def test_outputs_that_come_out_with_other_shapes(client: RawClient, side: Side) -> None:
    """Each has its share of the packet: what is longer is kept, and counts."""
    draft = Draft()
    operands = [draft.input([512]), draft.input([2], DataType.INT64)]
    draft.node(NodeType.RESHAPE, operands, [draft.output([-1, -1])])
    model_id = int(client.prepare(draft.message).prepared.model_id)
    x, shape = np.arange(512, dtype=np.float32), np.array([2, 256])
    request = RunRequest(model_id=model_id, run_id=2, plan=2, inputs=[io_tensor(x), io_tensor(shape)])
    assert side.ask(local_socket_pb2.LocalRequest(run=request)).run.plan == 2
    layout = PlanLayout([x.nbytes, shape.nbytes], [x.nbytes])

    def turned(run_id: int) -> bytes:
        sent = np.array([256, 2]).tobytes()
        return layout.pack_request(REQUEST_MARK, 2, run_id, 0, x.tobytes(), sent)

    few = ask(side, [turned(3), turned(4)])
    assert [tuple(few[run_id].outputs[0].dimensions) for run_id in (3, 4)] == [(256, 2)] * 2
    many = ask(side, [turned(run_id) for run_id in range(5, 5 + 28)])
    assert all(reply.kept for reply in many.values())
    assert kept_bytes(client) == 28 * x.nbytes
    reply = client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=7))
    assert tuple(reply.outputs[0].dimensions) == (256, 2)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bundles(client: RawClient, data: st.DataObject) -> None:
    """Whatever bytes of a bundle are others, its runs are answered, or its connection ends."""
    run_id, number = 10 * next(NUMBERS), next(NUMBERS)
    with side_of(client) as side:
        model_id = plan(client, side, number, run_id)
        packet = bytearray(bundled(REQUESTS_MARK, [request_of(run_id + more, number) for more in (1, 2)]))
        heads = st.integers(0, 16 + 24)
        anywhere = st.integers(0, len(packet) - 1)
        for at, value in data.draw(st.lists(st.tuples(st.one_of(heads, anywhere), st.integers(0, 255)), max_size=6)):
            packet[at] = value
        cut = data.draw(st.one_of(st.just(len(packet)), st.integers(1, len(packet))))
        side.send(bytes(packet[:cut]))
        answer = side.socket.recv(LOCAL_PACKET_BYTES)
        if answer[:2] == b"\0\4":
            assert len(parts_of(REPLIES_MARK, answer)) == 2
        client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))


def test_runs_that_are_computed_together() -> None:
    """Those of one bundle, and with them those of other connections; one that can't be is told by itself."""
    draft = Draft()
    x, values = draft.input([-1, len(INPUT)]), draft.constant(np.array(VALUES, np.float32))
    draft.node(NodeType.ADD_FUSION, [x, values], [draft.output([-1, len(INPUT)])])
    with attacked_daemon("--batch", "8") as daemon, RawClient(daemon.address) as client, side_of(client) as side:
        model_id = int(client.prepare(draft.message).prepared.model_id)
        request = RunRequest(model_id=model_id, run_id=1, plan=1, inputs=[io_tensor(ELEMENTS[np.newaxis])])
        assert side.ask(local_socket_pb2.LocalRequest(run=request)).run.plan == 1
        client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[7]))
        outcomes = ask(side, [request_of(run_id, factor=run_id) for run_id in (*range(2, 22), 0)])
        for run_id, code in ((7, ReturnCode.FAILED), (0, ReturnCode.INVALID_PARAMETER)):
            assert outcomes.pop(run_id).error.code == int(code)
        assert outcomes == {run_id: sum_of(run_id) for run_id in range(2, 22) if run_id != 7}
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
        side_of(client) as side,
        side_of(client) as other,
    ):
        plan(client, side)
        gate.shut()
        other.send(request_of(2))
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 0))
        side.send(bundled(REQUESTS_MARK, [request_of(run_id, factor=run_id) for run_id in range(3, 6)]))
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 1))
        long_enough = time.monotonic() + 0.005  # To be what the daemon takes for long.
        until(lambda: time.monotonic() > long_enough)
        gate.let_through()
        assert 2 in replies(other, 1)
        gate.let_through()
        assert 3 in replies(side, 1)
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 1))
        gate.release(lambda: observer.state().running == 0)
        outcomes = replies(side, 2)
        assert outcomes == {run_id: (ELEMENTS * run_id).tolist() for run_id in (4, 5)}
        assert ask(side, [request_of(6), request_of(7)]).keys() == {6, 7}


def test_runs_behind_one_that_had_to_wait_when_the_connection_has_ended(tmp_path: Path) -> None:
    """They are made all the same, and their replies kept."""
    gate = Gate(tmp_path)
    gated = ("--backend", "gated", "--option", f"gate={gate.path}", "--concurrent-runs", "1")
    with (
        attacked_daemon(*gated, sum_of_two=INPUT) as daemon,
        Observer(daemon.address) as observer,
        RawClient(daemon.address) as client,
        side_of(client) as other,
    ):
        with side_of(client) as side:
            plan(client, side)
            gate.shut()
            other.send(request_of(2))
            observer.wait_for(lambda state: (state.running, state.queued) == (1, 0))
            side.send(bundled(REQUESTS_MARK, [request_of(run_id, factor=run_id) for run_id in range(3, 6)]))
            observer.wait_for(lambda state: (state.running, state.queued) == (1, 1))
        long_enough = time.monotonic() + 0.005  # To be what the daemon takes for long.
        until(lambda: time.monotonic() > long_enough)
        gate.release(lambda: observer.state().running == 0)
        for run_id in range(3, 6):
            reply = client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=run_id))
            assert wire.io_array(reply.outputs[0]).tolist() == (ELEMENTS * run_id).tolist()


def test_a_client_that_reads_no_replies() -> None:
    """The device's own thread sends them, and waits for nobody: the connection ends, and the replies are kept."""
    with attacked_daemon("--backend", "starting") as daemon, RawClient(daemon.address) as client:
        with side_of(client) as side:
            layout, column = wide_plan(client, side, number=1, run_id=1)
            with pytest.raises(BrokenPipeError):
                for run_id in itertools.count(2):
                    side.send(layout.pack_request(REQUEST_MARK, 1, run_id, 0, column))
        until(lambda: kept_bytes(client) >= layout.reply_bytes)
        with side_of(client) as side:
            side.send(layout.pack_request(REQUEST_MARK, 1, 1 << 40, 0, column))
            assert len(side.socket.recv(LOCAL_PACKET_BYTES)) == layout.reply_bytes


def test_runs_that_the_device_holds_until_their_deadlines() -> None:
    """The daemon has it stop them, and tells who doesn't look at the time himself; others have ended by then."""
    held = np.full(ELEMENTS.shape, HELD, np.float32).tobytes()
    with (
        attacked_daemon("--backend", "starting") as daemon,
        RawClient(daemon.address) as client,
        side_of(client) as side,
    ):
        plan(client, side)
        late = [LAYOUT.pack_request(REQUEST_MARK, 1, run_id, 50 * run_id, held) for run_id in (2, 3)]
        outcomes = ask(side, [*late, request_of(4)])
        assert outcomes.pop(4) == list(SUM)
        assert [wire.error_from_detail(reply.error).code for reply in outcomes.values()] == [ReturnCode.TIMEOUT] * 2
        (counted,) = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).identities[:1]
        assert counted.runs["timed_out"] == 2
        assert ask(side, [request_of(5)]) == {5: list(SUM)}
