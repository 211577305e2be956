"""Regions of a device's own memory, wherever clients say that tensors lie in them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import ways
from daemon_process import DaemonProcess
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_side import side_of
from model_draft import Draft
from opaque_backend import ARRAYS_ONLY, STARTED
from opaque_device import OpaqueDevice
from part import examples
from raw_client import INPUT, SUM, VALUES, RawClient, assert_unharmed, chunks, io_tensor

from nnrt_device_service.host.exit import ExitCode
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, UnavailableDevice
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import device_pb2, local_socket_pb2, model_pb2, prepared_model_pb2

ELEMENTS = np.array(INPUT, np.float32)
SIZE = ELEMENTS.nbytes
ROOM = 64


@pytest.fixture(scope="module")
def shared_opaque(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpaqueDevice]:
    shared = OpaqueDevice(tmp_path_factory.mktemp("opaque"))
    yield shared
    assert_unharmed(shared.daemon)
    shared.kill()


@pytest.fixture
def opaque(shared_opaque: OpaqueDevice) -> OpaqueDevice:
    shared_opaque.mark()
    return shared_opaque


@pytest.fixture
def client(opaque: OpaqueDevice) -> Iterator[RawClient]:
    with RawClient(opaque.address) as client:
        yield client


def region(buffer_id: int, offset: int = 0, size_bytes: int = SIZE) -> "model_pb2.BufferRegion":
    return model_pb2.BufferRegion(buffer_id=buffer_id, offset=offset, data_size=size_bytes)


def write(client: RawClient, buffer_id: int, data: bytes, offset: int = 0) -> None:
    client.ask("NnrtDevice.WriteBuffer", device_pb2.BufferChunk(buffer_id=buffer_id, offset=offset, data=data))


def prepared(client: RawClient, model: "model_pb2.Model", **config: Any) -> int:
    made = client.prepare(model, model_pb2.ModelConfig(**config))
    return int(made.prepared.model_id)


def test_where_regions_begin(client: RawClient, opaque: OpaqueDevice) -> None:
    """Where the device can't begin to read or write, the run gets copies."""
    model_id, buffer_id = prepared(client, Draft.sum_of_input_and(VALUES).message), client.allocate(ROOM)
    for at, to, copies in ((0, 16, 0), (16, 0, 0), (4, 16, 1), (0, 20, 1), (1, 33, 2), (0, 4, 1), (8, 0, 0)):
        write(client, buffer_id, ELEMENTS.tobytes(), at)
        opaque.mark()
        output = model_pb2.IOTensor(data=model_pb2.SharedBuffer(region=region(buffer_id, to)))
        client.ask(
            "PreparedModel.Run",
            prepared_model_pb2.RunRequest(
                model_id=model_id,
                inputs=[io_tensor(ELEMENTS, data=model_pb2.SharedBuffer(region=region(buffer_id, at)))],
                outputs=[output],
            ),
        )
        assert sum(opaque.copied()) == copies, (at, to)
        assert np.frombuffer(client.read(region(buffer_id, to)), np.float32).tolist() == list(SUM)


def test_regions_that_there_are_not(client: RawClient) -> None:
    buffer_id = client.allocate(ROOM)
    for offset in (ROOM - SIZE + 1, ROOM, 1 << 63, (1 << 64) - SIZE):
        with pytest.raises(InvalidParameter, match=f"{SIZE} bytes at {offset} pass the end; it has {ROOM}"):
            client.read(region(buffer_id, offset))
        with pytest.raises(InvalidParameter, match="pass the end"):
            write(client, buffer_id, bytes(SIZE), offset)
    client.ask("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=buffer_id))
    client.ask("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=buffer_id))
    with pytest.raises(UnavailableDevice, match="no buffer"):
        client.read(region(buffer_id))


def test_it_is_not_mapped(client: RawClient) -> None:
    reply = client.ask("NnrtDevice.AllocateBuffer", device_pb2.AllocateBufferRequest(length=ROOM))
    assert reply.is_on_device
    with side_of(client) as side, pytest.raises(InvalidParameter, match="it is memory of the device"):
        side.ask(local_socket_pb2.LocalRequest(map={"buffer_id": reply.buffer.region.buffer_id}))


def test_constants_and_caches_in_it(client: RawClient, opaque: OpaqueDevice) -> None:
    """They are copied once, and count before they are."""
    values = np.arange(1_000_000, dtype=np.float32)
    draft, buffer_id = Draft.sum_of_input_and(values.tolist()), client.allocate(values.nbytes)
    for chunk in chunks(values.tobytes()):
        write(client, buffer_id, chunk.data, chunk.offset)
    sent = device_pb2.ConstantChunk(
        sha256=Draft.digest(values.tobytes()), size_bytes=values.nbytes, region=region(buffer_id, 0, values.nbytes)
    )
    assert client.ask("NnrtDevice.UploadConstants", sent).completed == 1
    assert opaque.bytes_of("read") == values.nbytes
    model_id = prepared(client, draft.message)
    exported = client.ask(
        "PreparedModel.ExportModelCache", prepared_model_pb2.ExportModelCacheRequest(model_id=model_id)
    )
    buffers = []
    for part in exported.buffers:
        data = client.read(part.region)
        there = client.allocate(len(data))
        for chunk in chunks(data):
            write(client, there, chunk.data, chunk.offset)
        buffers.append(model_pb2.SharedBuffer(region=region(there, 0, len(data))))
    restored = client.ask(
        "NnrtDevice.PrepareModelFromModelCache", device_pb2.PrepareFromBuffersRequest(buffers=buffers)
    )
    (result,) = client.run(restored.prepared.model_id, values)
    np.testing.assert_array_equal(result, 2 * values)


@pytest.mark.slow
def test_a_cache_that_is_larger_than_the_session_may_be(tmp_path: Path) -> None:
    """It is refused before it is copied."""
    small = OpaqueDevice(tmp_path, "--session-bytes", str(8 << 20))
    try:
        with RawClient(small.address) as client:
            buffer_id = client.allocate(4 << 20)
            small.mark()
            part = model_pb2.SharedBuffer(region=region(buffer_id, 0, 4 << 20))
            request = device_pb2.PrepareFromBuffersRequest(buffers=[part] * 50)
            with pytest.raises(NnrtError, match="--session-bytes"):
                client.ask("NnrtDevice.PrepareModelFromModelCache", request)
            assert small.copied() == (0, 0)
    finally:
        small.kill()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["free", "close"])
def test_a_device_that_hangs_when_a_session_expires(tmp_path: Path, what: str) -> None:
    """Whoever ends the session goes on, and finds the device stuck."""
    hanging = OpaqueDevice(tmp_path, "--lease-s", "0.1", "--max-run-s", "0.5", "--stuck-s", "0.2")
    try:
        with hanging.failing(f"hang in {what}"):
            client = RawClient(hanging.address)
            prepared(client, Draft.sum_of_input_and(VALUES).message)
            client.allocate(ROOM)
            client.session.cancel()
            client.channel.close()
            assert hanging.daemon.wait() == ExitCode.STUCK
    finally:
        hanging.kill()


# ---- random sequences, compared with a device that computes in memory of the host


class Tensor(NamedTuple):
    """An input that travels, or where one lies, or an output goes: None for an output that travels."""

    buffer: int | None
    offset: int


class Run(NamedTuple):
    model: int
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


class Write(NamedTuple):
    buffer: int
    offset: int
    seed: int


ELEMENT_COUNT = 4
BYTES = 4 * ELEMENT_COUNT
BUFFERS = 2


def models() -> list[tuple["model_pb2.Model", int, int]]:
    """Each with its numbers of inputs and outputs."""
    add, gather, two, reshape = Draft(), Draft(), Draft(), Draft()
    shape = (ELEMENT_COUNT,)
    add.node(NodeType.ADD_FUSION, [add.input(shape), add.input(shape)], [add.output(shape)])
    index = gather.input(shape, DataType.INT32)
    axis = gather.constant(np.zeros(1, np.int32))
    gather.node(NodeType.GATHER, [gather.input(shape), index, axis], [gather.output(shape)])
    x = two.input(shape)
    two.node(NodeType.ABS, [x], [two.output(shape)])
    two.node(NodeType.NEG, [x], [two.output(shape)])
    x = reshape.input(shape)
    reshape.node(NodeType.RESHAPE, [x, reshape.constant(np.array([2, 2], np.int64))], [reshape.output((2, 2))])
    return [(add.message, 2, 1), (gather.message, 2, 1), (two.message, 1, 2), (reshape.message, 1, 1)]


FLOAT32 = DataType.FLOAT32
# The model whose output has another shape, and the input of one that has indices.
RESHAPE, INDEX = 3, (1, 0)

tensors = st.builds(
    Tensor, st.one_of(st.none(), st.integers(0, BUFFERS - 1)), st.sampled_from([0, 8, 16, 24, 32, 48, 4, 20, 1])
)
runs = st.one_of(
    [
        st.builds(
            Run,
            st.just(number),
            st.lists(tensors, min_size=inputs, max_size=inputs),
            st.lists(tensors, min_size=outputs, max_size=outputs),
        )
        for number, (_, inputs, outputs) in enumerate(models())
    ]
)
steps = st.lists(
    st.one_of(
        runs, runs, runs, st.builds(Write, st.integers(0, BUFFERS - 1), st.integers(0, ROOM - BYTES), st.integers())
    ),
    max_size=12,
)


class Side:
    """A session with one of the devices, which does what it is told and says what comes out."""

    def __init__(self, closing: ExitStack, address: str, way: str, **config: Any) -> None:
        self.client = closing.enter_context(RawClient(address))
        self._way = closing.enter_context(ways.way_of(self.client, way))
        self._models = [prepared(self.client, model, **config) for model, _, _ in models()]
        # Kinds of runs whose descriptions the daemon has, by what they have in common.
        self._kinds: dict[Any, ways.Kind] = {}
        self._buffers: list[int] = []

    def begin(self) -> None:
        """Have new buffers."""
        self._buffers = [self.client.allocate(ROOM) for _ in range(BUFFERS)]

    def end(self) -> list[bytes]:
        """Give the buffers up; what was in them."""
        left = [self.client.read(region(buffer_id, 0, ROOM)) for buffer_id in self._buffers]
        for buffer_id in self._buffers:
            self.client.ask("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=buffer_id))
        return left

    def take(self, step: Run | Write) -> object:
        """What it gives, or the code of its error."""
        if isinstance(step, Write):
            data = np.random.default_rng(abs(step.seed)).integers(0, ELEMENT_COUNT, ELEMENT_COUNT, np.int32)
            write(self.client, self._buffers[step.buffer], data.tobytes(), step.offset)
            return None
        outcome = self._run(step)
        if isinstance(outcome, int):  # What it was to write may hold anything.
            for tensor in step.outputs:
                if tensor.buffer is not None:
                    write(self.client, self._buffers[tensor.buffer], bytes(BYTES), tensor.offset)
        return outcome

    def _run(self, run: Run) -> object:
        shape = (2, 2) if run.model == RESHAPE else (ELEMENT_COUNT,)
        inputs = [
            ways.Tensor((ELEMENT_COUNT,), _place(tensor), DataType.INT32 if (run.model, index) == INDEX else FLOAT32)
            for index, tensor in enumerate(run.inputs)
        ]
        outputs = [ways.Tensor(shape, _place(tensor)) for tensor in run.outputs]
        about = run.model, *map(_place, (*run.inputs, *run.outputs))
        kind = self._kinds.get(about)
        is_described = kind is None
        kind = kind or ways.Kind(self._models[run.model], inputs, outputs)
        regions = [
            number
            for tensor in (*run.inputs, *run.outputs)
            if tensor.buffer is not None
            for number in (self._buffers[tensor.buffer], tensor.offset, BYTES)
        ]
        given = [_elements(tensor) for tensor in run.inputs if tensor.buffer is None]
        answer = ways.ask(self._way, kind.frame(*given, regions=regions, is_described=is_described))
        if answer.error is not None:
            return int(answer.error.code)
        self._kinds[about] = kind
        told = answer.outcome.outputs or kind.description.outputs
        count = sum(output.place == ways.INLINE for output in told)
        return [answer.rest[at * BYTES : (at + 1) * BYTES] for at in range(count)]


def _place(tensor: Tensor) -> int:
    return ways.INLINE if tensor.buffer is None else ways.REGION


def _elements(tensor: Tensor) -> Array:
    """Small whole numbers, which may be indices, as their bits."""
    array: Array = (np.arange(ELEMENT_COUNT, dtype=np.int32) + tensor.offset) % ELEMENT_COUNT
    return array


@pytest.fixture(scope="module", params=["in regions", "arrays only", "started", "started, arrays only"])
def sides(
    request: pytest.FixtureRequest, shared_opaque: OpaqueDevice, shared_daemon: DaemonProcess
) -> Iterator[Sequence[Side]]:
    kinds = {name: b"1" for name in (ARRAYS_ONLY, STARTED) if name.replace("_", " ") in request.param}
    config = {"extensions": kinds}
    with ExitStack() as closing:
        yield [
            Side(closing, address, way, **about)
            for way in ways.WAYS
            for address, about in ((shared_opaque.address, config), (shared_daemon.address, {}))
        ]


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_any_sequence(sides: Sequence[Side], sequence: list[Run | Write]) -> None:
    """It gives what it gives where memory is the host's, bit by bit."""
    for side in sides:
        side.begin()
    for step in sequence:
        outcomes = [side.take(step) for side in sides]
        assert all(outcome == outcomes[0] for outcome in outcomes), step
    left = [side.end() for side in sides]
    assert all(each == left[0] for each in left)
