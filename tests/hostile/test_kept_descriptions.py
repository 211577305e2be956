"""Planned runs under clients that send what they like, on both ways into the daemon."""

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pytest
from daemon_process import DaemonProcess
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_side import memfd, side_of
from model_draft import Draft
from raw_client import INPUT, SUM, VALUES, RawClient, attacked_daemon, io_tensor
from waiting import until
from ways import WAYS, OnLocalSocket, OnStream, Way, way_of

from nnrt_hdi import wire
from nnrt_hdi.enums import DataType, NodeType, ReturnCode
from nnrt_hdi.errors import NnrtError, UnavailableDevice
from nnrt_hdi.limits import FIRST_CLIENT_BUFFER_ID, LOCAL_PACKET_BYTES, MAX_PLANS
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import device_pb2, model_pb2, prepared_model_pb2
from nnrt_hdi.wire.plans import REPLY_MARK, REQUEST_MARK, PlanLayout, request_head

ELEMENTS = np.array(INPUT, np.float32)
SIZE = ELEMENTS.nbytes
LAYOUT = PlanLayout([SIZE], [SIZE])
PAGE = 4096
# Above those that tests choose.
RUN_IDS = itertools.count(1000)
RunRequest, RunReply = prepared_model_pb2.RunRequest, prepared_model_pb2.RunReply


@pytest.fixture(scope="module", params=["reference", "starting"])
def daemon(request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """One whose runs have a thread each, and one whose runs are started."""
    with attacked_daemon("--backend", request.param) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as client:
        assert "plans" in client.welcome.features
        yield client


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, client: RawClient) -> Iterator[Way]:
    with way_of(client, request.param) as way:
        yield way


def prepared(client: RawClient) -> int:
    return int(client.prepare(Draft.sum_of_input_and(VALUES).message).prepared.model_id)


def run_request(model_id: int, run_id: int, plan: int = 0, **fields: Any) -> Any:
    return RunRequest(model_id=model_id, run_id=run_id, plan=plan, inputs=[io_tensor(ELEMENTS)], **fields)


def request_of(run_id: int, plan: int = 1, elements: Array = ELEMENTS, timeout_ms: int = 0) -> bytes:
    return LAYOUT.pack_request(REQUEST_MARK, plan, run_id, timeout_ms, elements.tobytes())


def planned_sum(reply: Any, run_id: int) -> list[float]:
    """What a planned reply of a run of that id has."""
    assert isinstance(reply, bytes), reply
    mark, replied_id, received_at_ns, queued_ns, copied_in_ns, computed_ns, copied_out_ns, served_ns = (
        LAYOUT.reply_head(reply)
    )
    assert (mark, replied_id) == (REPLY_MARK, run_id)
    assert received_at_ns and 0 < queued_ns + copied_in_ns + computed_ns + copied_out_ns <= served_ns
    return [float(each) for each in np.frombuffer(reply, np.float32, offset=LAYOUT.output_offsets[0] or 0)]


def planned(client: RawClient, way: Way) -> int:
    """Have the daemon keep plan 1; the number of its model. Run 1 is used up."""
    model_id = prepared(client)
    reply = way.ask(run_request(model_id, 1, plan=1))
    assert reply.plan == 1
    assert wire.io_array(reply.outputs[0]).tolist() == list(SUM)
    return model_id


def refusal(reply: Any, run_id: int) -> str:
    """Why a run was refused, as INVALID_PARAMETER."""
    assert isinstance(reply, RunReply), reply
    assert reply.run_id == run_id
    assert not reply.outputs and not reply.plan and not reply.planned
    assert reply.error.code == int(ReturnCode.INVALID_PARAMETER), reply
    return str(reply.error.message)


def test_a_planned_run(client: RawClient, way: Way) -> None:
    planned(client, way)
    for run_id in (2, 3, (1 << 64) - 1):
        x = ELEMENTS * run_id
        reply = way.ask_planned(request_of(run_id, elements=x, timeout_ms=20_000))
        assert planned_sum(reply, run_id) == (x + np.array(VALUES, np.float32)).tolist()
    (counted,) = client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).identities[:1]
    assert counted.in_bytes >= 4 * SIZE and counted.out_bytes >= 4 * SIZE


def test_ways_share_the_plans_of_a_session(client: RawClient) -> None:
    with way_of(client, "local socket") as local, way_of(client, "stream") as stream:
        planned(client, local)
        assert planned_sum(stream.ask_planned(request_of(2)), 2) == list(SUM)


def test_a_plan_that_is_not_kept(client: RawClient, way: Way) -> None:
    assert refusal(way.ask_planned(request_of(1)), 1) == "no plan 1 is kept; send a RunRequest"
    planned(client, way)
    for number in (0, 2, (1 << 32) - 1):
        assert f"no plan {number}" in refusal(way.ask_planned(request_of(2, number)), 2)
    assert planned_sum(way.ask_planned(request_of(3)), 3) == list(SUM)


def test_another_session_knows_nothing_of_a_plan(daemon: DaemonProcess, client: RawClient, way: Way) -> None:
    planned(client, way)
    with RawClient(daemon.address) as other:
        for run_id, kind in enumerate(WAYS, 1):
            with way_of(other, kind) as its:
                assert "no plan 1" in refusal(its.ask_planned(request_of(run_id)), run_id)


def test_requests_of_another_length(client: RawClient, way: Way) -> None:
    planned(client, way)
    sound = request_of(2)
    for run_id, packet in enumerate((sound + b"\0", sound[:-1], sound[: request_head.size], sound * 100), 2):
        head = request_head.pack(REQUEST_MARK, 1, run_id, 0)
        message = refusal(way.ask_planned(head + packet[len(head) :]), run_id)
        assert message == f"a request of plan 1 has {len(packet)} bytes; send {len(sound)}"
    assert planned_sum(way.ask_planned(request_of(10)), 10) == list(SUM)


@pytest.mark.parametrize("kind", WAYS)
def test_packets_that_are_no_planned_requests(client: RawClient, kind: str) -> None:
    """They end their connection, which nothing else does."""
    sound = request_of(2)
    for packet in (b"\0", sound[: request_head.size - 1], bytes(100), b"\0\2" + sound[2:], b"\0\1\0\1" + sound[4:]):
        with way_of(client, kind) as way:
            with pytest.raises(NnrtError, match="planned request"):
                way.ask_planned(packet)
            with suppress(NnrtError, StopIteration, OSError):
                assert way.ask_planned(sound) is None
    with way_of(client, kind) as way:
        planned(client, way)


def test_a_reply_that_came_before_what_is_no_planned_request(client: RawClient) -> None:
    """Counts in the session's memory until it is fetched, as that of any stream that breaks."""
    with way_of(client, "stream") as way:
        planned(client, way)
        assert planned_sum(way.ask_planned(request_of(2)), 2) == list(SUM)
        with pytest.raises(NnrtError, match="planned request"):
            way.ask_planned(b"\0")

    def held_bytes() -> int:
        return int(client.ask("NnrtDevice.GetCounters", device_pb2.GetCountersRequest()).load.held_bytes["replies"])

    until(held_bytes)
    client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[2]))
    assert not held_bytes()


def test_who_reads_no_replies_holds_up_nobody() -> None:
    """With whose runs its own are computed."""
    draft = Draft()
    x, values = draft.input([-1, len(INPUT)]), draft.constant(np.array(VALUES, np.float32))
    draft.node(NodeType.ADD_FUSION, [x, values], [draft.output([-1, len(INPUT)])])
    with attacked_daemon("--batch", "16") as daemon, RawClient(daemon.address) as client:
        request = run_request(int(client.prepare(draft.message).prepared.model_id), 1, plan=1)
        request.inputs[0].CopyFrom(io_tensor(ELEMENTS[np.newaxis]))
        with ExitStack() as stack:
            *greedy, other = (OnLocalSocket(stack.enter_context(side_of(client))) for _ in range(9))
            assert other.ask(request).plan == 1
            for way in greedy:
                way.side.socket.setblocking(False)
            run_ids = count(2)
            for _ in range(500):  # More replies than a socket has room for.
                for way in greedy:
                    with suppress(OSError):  # It has been ended, or takes no more.
                        way.side.socket.send(request_of(next(run_ids)))
                run_id = next(run_ids)
                assert planned_sum(other.ask_planned(request_of(run_id)), run_id) == list(SUM)


def test_numbers_of_runs(client: RawClient, way: Way) -> None:
    """A planned run is known by its number as any other is."""
    planned(client, way)
    client.ask("PreparedModel.CancelRuns", prepared_model_pb2.CancelRunsRequest(run_ids=[5]))
    reply = way.ask_planned(request_of(5))
    assert reply.error.code == int(ReturnCode.FAILED), reply
    assert planned_sum(way.ask_planned(request_of(6)), 6) == list(SUM)
    with way_of(client, "local socket") as other:
        assert "run_id 6 is taken" in refusal(other.ask_planned(request_of(6)), 6)
        assert "no run_id" in refusal(other.ask_planned(request_of(0)), 0)


def test_a_released_model_takes_its_plans_along(client: RawClient, way: Way) -> None:
    model_id = planned(client, way)
    client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
    assert "no plan 1" in refusal(way.ask_planned(request_of(2)), 2)
    planned_again = prepared(client)
    assert way.ask(run_request(planned_again, 3, plan=1)).plan == 1
    assert planned_sum(way.ask_planned(request_of(4)), 4) == list(SUM)


def test_a_number_that_is_taken_stays_what_it_is(client: RawClient, way: Way) -> None:
    planned(client, way)
    other = int(client.prepare(Draft.sum_of_input_and((7, 7, 7)).message).prepared.model_id)
    reply = way.ask(run_request(other, 2, plan=1))
    assert reply.outputs and not reply.plan
    assert planned_sum(way.ask_planned(request_of(3)), 3) == list(SUM)


def test_more_plans_than_are_kept(client: RawClient) -> None:
    model_id = prepared(client)
    with way_of(client, "local socket") as way:
        kept = [way.ask(run_request(model_id, number, plan=number)).plan for number in range(1, MAX_PLANS + 3)]
        assert kept == [*range(1, MAX_PLANS + 1), 0, 0]
        assert planned_sum(way.ask_planned(request_of(MAX_PLANS + 3, MAX_PLANS)), MAX_PLANS + 3) == list(SUM)


@pytest.mark.slow
def test_plans_count_in_the_memory_of_their_session() -> None:
    with attacked_daemon("--session-bytes", str(1 << 20)) as daemon, RawClient(daemon.address) as client:
        model_id = prepared(client)
        with way_of(client, "local socket") as way:
            kept = [way.ask(run_request(model_id, number, plan=number)).plan for number in range(1, MAX_PLANS + 1)]
            most = kept.index(0)
            assert 0 < most < 300 and not any(kept[most:])
            client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
            assert client.allocate(1 << 20)


@pytest.mark.parametrize(
    "fields",
    [
        {"unwanted_outputs": [0]},
        {"profile": True},
        {"traceparent": f"00-{1:032x}-{1:016x}-01"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_runs_that_can_not_be_plans(client: RawClient, way: Way, fields: dict[str, Any]) -> None:
    reply = way.ask(run_request(prepared(client), 1, plan=1, **fields))
    assert reply.outputs and not reply.plan
    assert "no plan 1" in refusal(way.ask_planned(request_of(2)), 2)


@pytest.mark.parametrize("count", [0, LOCAL_PACKET_BYTES // 4])
def test_tensors_that_no_packet_can_have(client: RawClient, way: Way, count: int) -> None:
    draft = Draft()
    x = draft.input([-1])
    draft.node(NodeType.ADD_FUSION, [x, draft.constant(np.ones(1, np.float32))], [draft.output([-1])])
    model_id = int(client.prepare(draft.message).prepared.model_id)
    with side_of(client) as side, memfd(1 << 20) as fd:
        request = RunRequest(model_id=model_id, run_id=1, plan=1, inputs=[io_tensor(np.ones(count, np.float32))])
        if count:  # Its output can't come back, and the input is where it has room.
            region = request.inputs[0].data.region
            region.buffer_id, region.data_size = side.share(fd, 1 << 20), 4 * count
        reply = way.ask(request)
        assert (reply.kept or reply.outputs) and not reply.plan


class Shared(NamedTuple):
    """Memory that the daemon has as a buffer, and a plan whose tensors lie there."""

    fd: int
    buffer_id: int
    model_id: int
    layout: PlanLayout

    def request(self, run_id: int, *regions: tuple[int, int, int]) -> bytes:
        return bytes(self.layout.pack_request(REQUEST_MARK, 1, run_id, 0, *sum(regions, ())))

    def at(self, offset: int, size_bytes: int = SIZE) -> tuple[int, int, int]:
        return self.buffer_id, offset, size_bytes

    def write(self, offset: int, array: Array) -> None:
        os.pwrite(self.fd, array.tobytes(), offset)

    def read(self, offset: int) -> list[float]:
        return [float(each) for each in np.frombuffer(os.pread(self.fd, SIZE, offset), np.float32)]


@pytest.fixture
def shared(client: RawClient, way: Way) -> Iterator[Shared]:
    """Plan 1 reads its input from a region and writes its output to another one."""
    with side_of(client) as side, memfd(PAGE) as fd:
        buffer_id = side.share(fd, PAGE, FIRST_CLIENT_BUFFER_ID)
        shared = Shared(fd, buffer_id, prepared(client), PlanLayout([None], [None]))
        shared.write(0, ELEMENTS)
        request = run_request(shared.model_id, 1, plan=1)
        request.outputs.add()
        for tensor, offset in ((request.inputs[0], 0), (request.outputs[0], 64)):
            region = tensor.data.region
            region.buffer_id, region.offset, region.data_size = buffer_id, offset, SIZE
        assert way.ask(request).plan == 1
        assert shared.read(64) == list(SUM)
        yield shared


def test_regions_of_planned_runs(way: Way, shared: Shared) -> None:
    for run_id, (at, to) in enumerate(((128, 256), (PAGE - SIZE, 0), (4, 4), (0, 8), (16, 8), (1, 129), (130, 3)), 2):
        shared.write(at, ELEMENTS * run_id)
        reply = way.ask_planned(shared.request(run_id, shared.at(at), shared.at(to)))
        assert isinstance(reply, bytes), reply
        assert len(reply) == shared.layout.reply_bytes
        assert shared.read(to) == (ELEMENTS * run_id + np.array(VALUES, np.float32)).tolist()


def test_regions_that_there_are_not(way: Way, shared: Shared) -> None:
    for run_id, offset in enumerate((PAGE - SIZE + 1, PAGE, 1 << 63, (1 << 64) - 1, (1 << 64) - SIZE), 2):
        for regions in ((shared.at(offset), shared.at(0)), (shared.at(0), shared.at(offset))):
            message = refusal(way.ask_planned(shared.request(run_id, *regions)), run_id)
            assert f"{SIZE} bytes at {offset} pass the end" in message
    for regions in (((shared.buffer_id + 1, 0, SIZE), shared.at(0)), (shared.at(0), (0, 0, SIZE))):
        reply = way.ask_planned(shared.request(20, *regions))
        assert reply.error.code == int(ReturnCode.UNAVAILABLE_DEVICE), reply
        assert "no buffer" in reply.error.message


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.integers(0, PAGE + 64), st.integers(0, 2**64 - 1)), min_size=2, max_size=2), st.booleans())
def test_any_regions(way: Way, shared: Shared, offsets: list[int], is_known: bool) -> None:
    """Wherever tensors are said to lie, a run reads and writes within its buffers, or is refused."""
    at, to = offsets
    run_id = next(RUN_IDS)
    to_region = (shared.buffer_id + (not is_known), to, SIZE)
    reply = way.ask_planned(shared.request(run_id, shared.at(at), to_region))
    fits = is_known and max(at, to) <= PAGE - SIZE
    assert isinstance(reply, bytes) == fits, reply
    if not fits:
        assert reply.run_id == run_id and reply.error.message


def test_lengths_of_regions(way: Way, shared: Shared) -> None:
    """An input has exactly its bytes, an output has room for its, and where it has not it is refused."""
    for run_id, size_bytes in enumerate((0, SIZE - 1, SIZE + 1, PAGE, (1 << 64) - 1), 2):
        refusal(way.ask_planned(shared.request(run_id, shared.at(0, size_bytes), shared.at(64))), run_id)
    for run_id, size_bytes in enumerate((0, SIZE - 1, PAGE, (1 << 64) - 1), 10):
        refusal(way.ask_planned(shared.request(run_id, shared.at(0), shared.at(64, size_bytes))), run_id)
    shared.write(64, np.zeros_like(ELEMENTS))
    assert isinstance(way.ask_planned(shared.request(20, shared.at(0), shared.at(64, PAGE - 64))), bytes)
    assert shared.read(64) == list(SUM)


def test_more_regions_than_are_kept(way: Way, shared: Shared) -> None:
    """Whichever of them come again, each run reads and writes its own."""
    places = [8 * at for at in range(200)]
    for run_id, at in enumerate(places * 2, 2):
        shared.write(at, ELEMENTS * run_id)
        assert isinstance(way.ask_planned(shared.request(run_id, shared.at(at), shared.at(2048 + at))), bytes)
        assert shared.read(2048 + at) == (ELEMENTS * run_id + np.array(VALUES, np.float32)).tolist()


def test_other_memory_under_the_same_number(client: RawClient, way: Way, shared: Shared) -> None:
    """What was known of the regions of a released buffer is not taken for those of the next one of its number."""
    request = shared.request(2, shared.at(0), shared.at(64))
    assert isinstance(way.ask_planned(request), bytes)
    for run_id, size_bytes in enumerate((PAGE, 64 + SIZE - 1, PAGE), 3):
        client.ask("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=shared.buffer_id))
        with side_of(client) as side, memfd(PAGE) as fd:
            side.share(fd, size_bytes, shared.buffer_id)
            other = shared._replace(fd=fd)
            other.write(0, ELEMENTS * run_id)
            reply = way.ask_planned(other.request(run_id, other.at(0), other.at(64)))
            if size_bytes < PAGE:
                assert "pass the end" in refusal(reply, run_id)
            else:
                assert isinstance(reply, bytes)
                assert other.read(64) == (ELEMENTS * run_id + np.array(VALUES, np.float32)).tolist()
    assert shared.read(64) == list(SUM)


def test_another_plan_under_the_same_number(client: RawClient, way: Way, shared: Shared) -> None:
    """What was known of regions for a plan that is gone is not taken for those of the next one of its number."""
    assert isinstance(way.ask_planned(shared.request(2, shared.at(0), shared.at(64))), bytes)
    client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=shared.model_id))
    doubled = np.concatenate([ELEMENTS, ELEMENTS])
    longer = client.prepare(Draft.sum_of_input_and(doubled.tolist()).message).prepared.model_id
    request = RunRequest(model_id=longer, run_id=3, plan=1, inputs=[io_tensor(doubled)])
    request.outputs.add()
    for tensor, offset in ((request.inputs[0], 0), (request.outputs[0], 64)):
        region = tensor.data.region
        region.buffer_id, region.offset, region.data_size = shared.buffer_id, offset, 2 * SIZE
    assert way.ask(request).plan == 1
    refusal(way.ask_planned(shared.request(4, shared.at(0), shared.at(64))), 4)
    fits = shared.request(5, shared.at(0, 2 * SIZE), shared.at(64, 2 * SIZE))
    assert isinstance(way.ask_planned(fits), bytes)


def test_a_buffer_that_is_released(client: RawClient, way: Way, shared: Shared) -> None:
    regions = shared.at(0), shared.at(64)
    assert isinstance(way.ask_planned(shared.request(2, *regions)), bytes)
    client.ask("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=shared.buffer_id))
    assert "no buffer" in way.ask_planned(shared.request(3, *regions)).error.message


def reshaped(client: RawClient) -> int:
    """A model whose output has the shape that its second input says."""
    draft = Draft()
    operands = [draft.input([6]), draft.input([2], DataType.INT64)]
    draft.node(NodeType.RESHAPE, operands, [draft.output([-1, -1])])
    return int(client.prepare(draft.message).prepared.model_id)


@pytest.mark.parametrize("in_region", [False, True])
def test_an_output_that_comes_out_with_another_shape(client: RawClient, way: Way, in_region: bool) -> None:
    """Is told in an ordinary reply."""
    x, shape = np.arange(6, dtype=np.float32), np.array([2, 3])
    with side_of(client) as side, memfd(PAGE) as fd:
        request = RunRequest(model_id=reshaped(client), run_id=1, plan=1, inputs=[io_tensor(x), io_tensor(shape)])
        regions: tuple[int, ...] = ()
        if in_region:
            region = request.outputs.add().data.region
            region.buffer_id, region.data_size = side.share(fd, PAGE), x.nbytes
            regions = region.buffer_id, 64, x.nbytes
        assert way.ask(request).plan == 1
        layout = PlanLayout([x.nbytes, shape.nbytes], [None if in_region else x.nbytes])
        for run_id, dims in enumerate(((2, 3), (3, 2), (1, 6), (2, 3)), 2):
            sent = np.array(dims).tobytes()
            reply = way.ask_planned(layout.pack_request(REQUEST_MARK, 1, run_id, 0, *regions, x.tobytes(), sent))
            assert isinstance(reply, bytes) == (dims == (2, 3))
            if not isinstance(reply, bytes):
                (output,) = reply.outputs
                assert tuple(output.dimensions) == dims
                assert reply.run_id == run_id and not reply.planned
                data = os.pread(fd, x.nbytes, 64) if output.data.HasField("region") else output.data.inline
                assert data == x.tobytes()


@pytest.mark.parametrize("in_region", [False, True])
def test_a_reply_that_is_fetched(client: RawClient, shared: Shared, way: Way, in_region: bool) -> None:
    """The reply of a planned run whose connection has ended is an ordinary one."""
    with way_of(client, "stream" if isinstance(way, OnStream) else "local socket") as lost:
        if in_region:
            packet = shared.request(7, shared.at(0), shared.at(128))
        else:
            assert lost.ask(run_request(prepared(client), 6, plan=2)).plan == 2
            packet = request_of(7, 2)
        assert isinstance(lost.ask_planned(packet), bytes)
    reply = client.ask("PreparedModel.AwaitRun", prepared_model_pb2.AwaitRunRequest(run_id=7))
    (output,) = reply.outputs
    assert reply.run_id == 7 and list(output.dimensions) == [len(SUM)] and reply.times.served_ns
    if in_region:
        region = model_pb2.BufferRegion(buffer_id=shared.buffer_id, offset=128, data_size=SIZE)
        assert output.data.region == region
        assert shared.read(128) == list(SUM)
    else:
        assert wire.io_array(output).tolist() == list(SUM)


def test_a_planned_request_in_place_of_a_chunk(client: RawClient) -> None:
    with way_of(client, "stream") as way:
        planned(client, way)
        announced = run_request(prepared(client), 2)
        announced.inputs[0].data.chunked = SIZE
        assert isinstance(way, OnStream)
        way.conversation.send(announced, RunRequest(planned=request_of(3)))
        failed = way.conversation.receive()
        assert failed.run_id == 2 and "before all chunks" in failed.error.message
        reply = way.conversation.receive()
        assert planned_sum(reply.planned, 3) == list(SUM)


def test_a_planned_request_where_none_belongs(client: RawClient, way: Way) -> None:
    """In a message with other fields, and in a call of its own, it is as if it weren't there."""
    model_id = planned(client, way)
    reply = way.ask(run_request(model_id, 2, planned=request_of(3)))
    assert reply.run_id == 2 and wire.io_array(reply.outputs[0]).tolist() == list(SUM)
    with pytest.raises(UnavailableDevice, match="no model 0"):
        client.ask("PreparedModel.Run", RunRequest(planned=request_of(3)))


@pytest.mark.parametrize("kind", WAYS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_requests(client: RawClient, kind: str, data: st.DataObject) -> None:
    """Whatever bytes of planned requests are others, they are answered, or end their connection."""
    with way_of(client, kind) as way:
        run_id = data.draw(st.integers(1, 2**63))
        model_id = prepared(client)
        way.ask(run_request(model_id, run_id, plan=1))
        for _ in range(data.draw(st.integers(1, 3))):
            run_id += 1
            packet = bytearray(request_of(run_id))
            for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(packet) - 1), st.integers(0, 255)))):
                packet[at] = value
            cut = data.draw(st.one_of(st.just(len(packet)), st.integers(1, len(packet))))
            try:
                reply = way.ask_planned(bytes(packet[:cut]))
            except (NnrtError, OSError, StopIteration):
                break
            if reply is None:
                break
            if isinstance(reply, bytes):
                assert len(reply) == LAYOUT.reply_bytes
                x = np.frombuffer(bytes(packet), np.float32, offset=LAYOUT.input_offsets[0] or 0)
                y = np.frombuffer(reply, np.float32, offset=LAYOUT.output_offsets[0] or 0)
                np.testing.assert_array_equal(y, x + np.array(VALUES, np.float32))
        client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
