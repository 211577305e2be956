"""Things that a client gives a session to keep: constants by digest, and buffers that runs read and write."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from model_draft import Draft
from raw_client import INPUT, RawClient, attacked_daemon, chunks, client, io_tensor
from waiting import until

from nnrt_device_service.memory.buffers import BufferPool
from nnrt_device_service.memory.constants import ConstantPool
from nnrt_device_service.memory.memory_budget import LEAST_BYTES, MemoryBudget
from nnrt_device_service.runs.tensors import UNCOUNTED_BYTES
from nnrt_hdi import wire
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import (
    InvalidFile,
    InvalidParameter,
    OutOfMemory,
    UnavailableDevice,
    Unsupported,
)
from nnrt_hdi.graph import Constant
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import device_pb2, model_pb2, prepared_model_pb2

__all__ = ["client"]  # A fixture.

SESSION_BYTES = 4 << 20
# Constants that are large enough to travel by digest, each another one.
FLOATS = 250_000
_numbers = count(1)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with attacked_daemon("--session-bytes", str(SESSION_BYTES)) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def caching_daemon() -> Iterator[DaemonProcess]:
    flags = ("--backend", "cached", "--session-bytes", str(SESSION_BYTES))
    with attacked_daemon(*flags, sum_of_two=INPUT) as daemon:  # All models of this backend are the identity.
        yield daemon


@pytest.fixture
def other(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as other:
        yield other


def new_constant(elements: int = FLOATS) -> Array:
    return np.full(elements, next(_numbers), np.float32)


def adding(constant: Array) -> Draft:
    """y = x + constant for one x."""
    draft = Draft()
    draft.node(NodeType.ADD_FUSION, [draft.input([1]), draft.constant(constant)], [draft.output(constant.shape)])
    return draft


def missing(client: RawClient, draft: Draft) -> dict[bytes, int]:
    """Ask PrepareModel what is missing, with the bytes that are there."""
    reply = client.prepare(draft.message)
    return {entry.sha256: entry.received_bytes for entry in reply.missing.constants}


def prepare(client: RawClient, draft: Draft) -> int:
    return int(client.prepare(draft.message).prepared.model_id)


def release(client: RawClient, model_id: int) -> None:
    client.call("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))


# ---- constants


def test_chunks_in_a_buffer(client: RawClient) -> None:
    """The daemon takes the bytes out of it, and none that it doesn't have."""
    data = new_constant(1000).tobytes()
    buffer_id = client.allocate(3 * len(data))
    client.ask("NnrtDevice.WriteBuffer", device_pb2.BufferChunk(buffer_id=buffer_id, offset=5, data=data))

    def sent(offset: int) -> int:
        region = model_pb2.BufferRegion(buffer_id=buffer_id, offset=offset, data_size=len(data))
        chunk = device_pb2.ConstantChunk(sha256=Draft.digest(data), size_bytes=len(data), region=region)
        return int(client.ask("NnrtDevice.UploadConstants", chunk).completed)

    with pytest.raises(InvalidParameter, match="pass the end"):
        sent(2 * len(data) + 1)
    with pytest.raises(InvalidFile, match="another SHA-256"):
        sent(0)
    assert sent(5) == 1
    client.call("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=buffer_id))
    with pytest.raises(UnavailableDevice, match="no buffer"):
        sent(5)


def test_several_chunks_in_a_message(client: RawClient) -> None:
    """Those in it count, in their order; those that one of them has don't."""
    parts = [new_constant().tobytes() for _ in range(3)]
    (first,), (second,), (third,) = (
        [device_pb2.ConstantChunk(sha256=Draft.digest(part), size_bytes=len(part), data=part)] for part in parts
    )
    half = len(parts[1]) // 2
    begin = device_pb2.ConstantChunk(sha256=second.sha256, size_bytes=len(parts[1]), data=parts[1][:half])
    end = device_pb2.ConstantChunk(offset=half, data=parts[1][half:])  # Of the constant before, as it doesn't say.
    end.more.append(third)
    first.more.extend([begin, end])
    assert client.ask("NnrtDevice.UploadConstants", first).completed == 2


def test_a_second_prepare_needs_no_upload(client: RawClient) -> None:
    draft = adding(new_constant())
    (constant,) = draft.uploads
    assert missing(client, draft) == {draft.digest(constant): 0}
    assert client.upload(constant) == 1
    first = prepare(client, draft)
    release(client, first)
    second = prepare(client, draft)
    assert second != first
    (result,) = client.run(second, np.ones(1, np.float32))
    np.testing.assert_array_equal(result, np.frombuffer(constant, np.float32) + 1)


def test_an_upload_goes_on_where_it_broke_off(client: RawClient) -> None:
    draft = adding(new_constant())
    (constant,) = draft.uploads
    sent = chunks(constant)[:4]
    half_chunk = device_pb2.ConstantChunk(data=constant[400_000:450_000], offset=400_000)
    client.call("NnrtDevice.UploadConstants", *sent, half_chunk)
    assert missing(client, draft) == {draft.digest(constant): 450_000}
    # A wrong chunk ends its call, not the upload.
    with pytest.raises(InvalidParameter, match="do not follow the 450000 of 1000000 received"):
        client.call("NnrtDevice.UploadConstants", *chunks(constant))
    assert missing(client, draft) == {draft.digest(constant): 450_000}
    (reply,) = client.call("NnrtDevice.UploadConstants", *chunks(constant, start=450_000))
    assert reply.completed == 1
    assert prepare(client, draft)


def test_an_upload_survives_a_call_that_is_cancelled(client: RawClient) -> None:
    draft = adding(new_constant())
    (constant,) = draft.uploads
    call = client.converse("NnrtDevice.UploadConstants")
    call.send(*chunks(constant)[:3])
    expected = {draft.digest(constant): 300_000}
    assert until(lambda: missing(client, draft) == expected)
    call.cancel()
    client.call("NnrtDevice.UploadConstants", *chunks(constant, start=300_000))
    assert prepare(client, draft)


def test_bytes_that_are_not_the_constant_are_dropped(client: RawClient) -> None:
    draft = adding(new_constant())
    (constant,) = draft.uploads
    digest = draft.digest(constant)
    wrong = constant[:-1] + b"\x01"
    with pytest.raises(InvalidFile, match="the bytes received have another SHA-256; send them again") as refusal:
        client.call("NnrtDevice.UploadConstants", *chunks(wrong, digest))
    assert refusal.value.place == f"constant {digest.hex()[:12]}"
    assert missing(client, draft) == {digest: 0}
    assert client.allocate(SESSION_BYTES), "their memory is free again"


def test_constants_of_one_call(client: RawClient) -> None:
    constants = [new_constant(300).tobytes() for _ in range(20)]
    assert client.upload(*constants) == 20


def test_a_chunk_may_leave_out_what_the_one_before_said(client: RawClient) -> None:
    draft = adding(new_constant())
    (constant,) = draft.uploads
    first, *others = chunks(constant)
    short = [device_pb2.ConstantChunk(offset=chunk.offset, data=chunk.data) for chunk in others]
    (reply,) = client.call("NnrtDevice.UploadConstants", first, *short)
    assert reply.completed == 1


def test_a_constant_above_the_limit_takes_no_memory(client: RawClient, daemon: DaemonProcess) -> None:
    kept = adding(new_constant())
    client.upload(*kept.uploads)
    too_large = bytes(SESSION_BYTES + 1)
    with pytest.raises(OutOfMemory, match=f"pass this session's limit of {SESSION_BYTES}"):
        client.upload(too_large)
    # Nor does it push out what is there.
    assert prepare(client, kept)


def test_unused_constants_make_room_for_others(client: RawClient) -> None:
    first, second, third = (adding(new_constant(FLOATS * 2)) for _ in range(3))
    client.upload(*first.uploads)
    client.upload(*second.uploads)
    model_id = prepare(client, second)
    client.upload(*third.uploads)
    assert missing(client, first)
    assert prepare(client, third)
    with pytest.raises(OutOfMemory):
        client.upload(*first.uploads)
    release(client, model_id)
    client.upload(*first.uploads)
    assert missing(client, second)


def test_unused_constants_make_room_for_buffers(client: RawClient) -> None:
    draft = adding(new_constant(FLOATS * 3))
    client.upload(*draft.uploads)
    model_id = prepare(client, draft)
    with pytest.raises(OutOfMemory):
        client.allocate(SESSION_BYTES // 2)
    release(client, model_id)
    assert client.allocate(SESSION_BYTES // 2)
    assert missing(client, draft)


def test_a_model_keeps_its_constants(client: RawClient) -> None:
    """Uploading more than fits does not touch what a model runs with, whatever else was prepared with it."""
    shared = adding(new_constant(FLOATS * 2))
    client.upload(*shared.uploads)
    first, second = prepare(client, shared), prepare(client, shared)
    release(client, first)
    assert client.upload(*(new_constant(FLOATS).tobytes() for _ in range(5))) == 5
    (result,) = client.run(second, np.zeros(1, np.float32))
    assert result.tobytes() == shared.uploads[0]


def test_one_constant_as_two_tensors(client: RawClient) -> None:
    """Two tensors have one constant's bytes: one FLOAT32, one INT32."""
    array = new_constant(300)
    draft = adding(array)
    whole = draft.constant(array.view(np.int32))
    draft.node(NodeType.ADD_FUSION, [draft.input([1], DataType.INT32), whole], [draft.output([300])])
    assert client.upload(draft.uploads[0]) == 1
    sums = client.run(prepare(client, draft), np.zeros(1, np.float32), np.zeros(1, np.int32))
    assert [result.tobytes() for result in sums] == [array.tobytes()] * 2


def test_a_constant_of_another_size_than_its_upload(client: RawClient) -> None:
    draft = adding(new_constant(300))
    client.upload(*draft.uploads)
    larger = adding(np.zeros(301, np.float32))
    larger.tensors[1].data.constant.sha256 = draft.digest(draft.uploads[0])
    with pytest.raises(InvalidParameter, match="is 1204 bytes in the model and 1200 in its upload; they must agree"):
        client.prepare(larger.message)


def test_knowing_a_digest_is_not_having_the_constant(client: RawClient, other: RawClient) -> None:
    draft = adding(new_constant())
    client.upload(*draft.uploads)
    release(client, prepare(client, draft))  # Else the sessions, of one identity, would share the model.
    assert missing(other, draft) == {draft.digest(draft.uploads[0]): 0}


def test_constants_without_bytes(client: RawClient) -> None:
    """Inline like every small one; uploading the empty constant does no harm."""
    assert client.upload(b"") == 1
    assert client.upload(b"", b"") == 2
    draft = Draft()
    parts = [draft.input([2, 2]), draft.constant(np.zeros((2, 0), np.float32))]
    draft.node(NodeType.CONCAT, parts, [draft.output([2, 2])], axis=1)
    (result,) = client.run(prepare(client, draft), np.eye(2, dtype=np.float32))
    assert result.tolist() == [[1, 0], [0, 1]]


def test_a_host_without_memory_is_out_of_memory() -> None:
    """Neither leaves anything taken."""
    budget = MemoryBudget(1 << 62)
    with pytest.raises(OutOfMemory, match="the daemon's host has no"):
        ConstantPool(budget).write(bytes(32), 1 << 61, 0, b"")
    with pytest.raises(OutOfMemory, match="the daemon's host has no"):
        budget.allocate(1 << 60)
    assert budget.used_bytes == 0


def test_everything_held_costs_something() -> None:
    budget = MemoryBudget(10 * LEAST_BYTES)
    buffers, constants = BufferPool(budget), ConstantPool(budget)
    for number in range(9):
        constants.write(bytes([number] * 32), 1, 0, b"")
    buffer_id = buffers.allocate(1)
    with pytest.raises(OutOfMemory):
        buffers.allocate(1)
    assert budget.used_bytes == 10 * LEAST_BYTES
    buffers.release(buffer_id)
    constants.clear()
    assert budget.used_bytes == 0


def test_a_digest_names_the_bytes_of_an_array() -> None:
    for array in (np.arange(6.0).reshape(2, 3), np.float32(3), np.zeros((0, 4), np.int8)):
        assert Constant.of(np.asarray(array)).sha256 == Draft.digest(array.tobytes())


# ---- buffers


def write(client: RawClient, *pieces: tuple[int, int, bytes]) -> int:
    reply = client.ask(
        "NnrtDevice.WriteBuffer",
        *(device_pb2.BufferChunk(buffer_id=buffer, offset=offset, data=data) for buffer, offset, data in pieces),
    )
    return int(reply.written_bytes)


def region(buffer_id: int, offset: int, size: int) -> "model_pb2.BufferRegion":
    return model_pb2.BufferRegion(buffer_id=buffer_id, offset=offset, data_size=size)


def test_buffers_are_zeroed_written_and_read(client: RawClient) -> None:
    first, second = client.allocate(1000), client.allocate(3_000_000)
    assert client.read(region(first, 0, 1000)) == bytes(1000)
    # An id of 0 means the buffer of the chunk before.
    assert write(client, (first, 10, b"abc"), (0, 20, b"de"), (second, 2_999_999, b"f"), (0, 0, b"")) == 6
    assert client.read(region(first, 9, 13)) == b"\0abc\0\0\0\0\0\0\0de"
    whole = client.call("NnrtDevice.ReadBuffer", region(second, 5, 2_999_995))
    assert [chunk.offset for chunk in whole] == [5, 5 + (1 << 20), 5 + (2 << 20)]
    assert b"".join(chunk.data for chunk in whole) == bytes(2_999_994) + b"f"
    assert client.read(region(second, 3_000_000, 0)) == b""


def test_a_write_that_fails_leaves_what_came_before(client: RawClient) -> None:
    buffer_id = client.allocate(10)
    with pytest.raises(InvalidParameter, match="3 bytes at 8 pass the end; it has 10 bytes") as refusal:
        write(client, (buffer_id, 0, b"ab"), (buffer_id, 8, b"cde"))
    assert refusal.value.place == f"buffer {buffer_id}"
    assert client.read(region(buffer_id, 0, 10)) == b"ab" + bytes(8)


def test_a_released_buffer_gives_its_memory_back(client: RawClient) -> None:
    for _ in range(3):
        buffer_id = client.allocate(SESSION_BYTES)
        for _ in range(2):
            client.call("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=buffer_id))
        with pytest.raises(UnavailableDevice):
            client.read(region(buffer_id, 0, 1))


@pytest.mark.parametrize("offset", [0, 1, 4])
def test_runs_read_and_write_buffers(client: RawClient, offset: int) -> None:
    """At any offset, and in place: input and output may be one region."""
    model_id = prepare(client, Draft.sum_of_input_and([1, 2, 3]))
    buffer_id = client.allocate(100)
    write(client, (buffer_id, offset, np.array([10, 20, 30], np.float32).tobytes()))
    place = model_pb2.SharedBuffer(region=region(buffer_id, offset, 12))
    x = model_pb2.IOTensor(data_type=wire.number(DataType.FLOAT32), dimensions=[3], data=place)
    for target in (region(buffer_id, 50, 50), place.region):
        y = model_pb2.IOTensor(data=model_pb2.SharedBuffer(region=target))
        request = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[x], outputs=[y])
        (output,) = client.ask("PreparedModel.Run", request).outputs
        written = output.data.region
        assert (written.buffer_id, written.offset, written.data_size) == (buffer_id, target.offset, 12)
        assert (list(output.dimensions), output.data_type) == ([3], DataType.FLOAT32)
        assert np.frombuffer(client.read(written), np.float32).tolist() == [11, 22, 33]


@pytest.mark.parametrize("offset", [0, 16, 32])
def test_outputs_over_the_inputs(client: RawClient, offset: int) -> None:
    """However they overlap, the results are those of the inputs as they were when the run began."""
    model_id = prepare(client, Draft.sum_of_input_and([1] * 8))
    buffer_id = client.allocate(100)
    numbers = np.arange(8, dtype=np.float32)
    write(client, (buffer_id, 16, numbers.tobytes()))
    x = model_pb2.IOTensor(data_type=wire.number(DataType.FLOAT32), dimensions=[8])
    x.data.region.CopyFrom(region(buffer_id, 16, 32))
    y = model_pb2.IOTensor(data=model_pb2.SharedBuffer(region=region(buffer_id, offset, 32)))
    client.ask("PreparedModel.Run", prepared_model_pb2.RunRequest(model_id=model_id, inputs=[x], outputs=[y]))
    written = np.frombuffer(client.read(region(buffer_id, offset, 32)), np.float32)
    np.testing.assert_array_equal(written, numbers + 1)


def test_what_is_read_in_place_needs_no_memory(client: RawClient) -> None:
    """The session's is used up. A copy needs it from the size on that is counted."""
    floats, size_bytes = UNCOUNTED_BYTES // 4, UNCOUNTED_BYTES
    draft = Draft()
    draft.node(NodeType.ADD_FUSION, [draft.input([floats]), draft.constant(np.float32(1))], [draft.output([floats])])
    model_id = prepare(client, draft)
    buffer_id = client.allocate(SESSION_BYTES - 8 * 1024)
    x = model_pb2.IOTensor(data_type=wire.number(DataType.FLOAT32), dimensions=[floats])
    x.data.region.CopyFrom(region(buffer_id, 0, size_bytes))
    y = model_pb2.IOTensor(data=model_pb2.SharedBuffer(region=region(buffer_id, size_bytes, size_bytes)))
    request = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[x], outputs=[y])
    client.ask("PreparedModel.Run", request)
    request.inputs[0].data.region.offset = 1  # No processor reads this where it is.
    with pytest.raises(OutOfMemory, match="pass this session's limit"):
        client.call("PreparedModel.Run", request)


def test_outputs_without_elements_and_without_dimensions(client: RawClient) -> None:
    draft = Draft()
    draft.node(NodeType.ADD_FUSION, [draft.input([]), draft.constant(np.float32(1))], [draft.output([])])
    draft.node(NodeType.SOFTMAX, [draft.input([0])], [draft.output([0])])
    model_id = prepare(client, draft)
    buffer_id = client.allocate(4)
    inputs = [io_tensor(np.asarray(np.float32(2))), io_tensor(np.zeros(0, np.float32))]
    places = [model_pb2.IOTensor(data=model_pb2.SharedBuffer(region=region(buffer_id, 0, size))) for size in (4, 0)]
    reply = client.ask(
        "PreparedModel.Run", prepared_model_pb2.RunRequest(model_id=model_id, inputs=inputs, outputs=places)
    )
    assert [output.data.region.data_size for output in reply.outputs] == [4, 0]
    assert np.frombuffer(client.read(region(buffer_id, 0, 4)), np.float32).tolist() == [3]


def test_some_outputs_inline_and_others_in_a_buffer(client: RawClient) -> None:
    draft = Draft.sum_of_input_and([1, 2, 3])
    draft.node(NodeType.SOFTMAX, [2], [draft.output([3])])
    draft.node(NodeType.SHAPE, [2], [draft.output([1])])
    model_id = prepare(client, draft)
    buffer_id = client.allocate(12)
    places = [model_pb2.IOTensor(), model_pb2.IOTensor(), model_pb2.IOTensor()]
    places[1].data.region.CopyFrom(region(buffer_id, 0, 12))
    x = io_tensor(np.array([-1, -2, -3], np.float32))
    request = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[x], outputs=places)
    total, softmax, shape = client.ask("PreparedModel.Run", request).outputs
    assert wire.io_array(total).tolist() == [0, 0, 0]
    assert softmax.data.region.buffer_id == buffer_id
    assert np.frombuffer(client.read(softmax.data.region), np.float32) == pytest.approx(1 / 3)
    assert wire.io_array(shape).tolist() == [3]


# ---- caches


def test_a_cache_goes_from_one_session_to_another(caching_daemon: DaemonProcess) -> None:
    with RawClient(caching_daemon.address) as maker:
        model_id = prepare(maker, Draft.sum_of_input_and([1, 2, 3]))
        exported = maker.ask(
            "PreparedModel.ExportModelCache", prepared_model_pb2.ExportModelCacheRequest(model_id=model_id)
        ).buffers
        parts = [maker.read(place.region) for place in exported]
    with RawClient(caching_daemon.address) as client:
        buffer_ids = [client.allocate(len(part)) for part in parts]
        write(client, *((buffer_id, 0, part) for buffer_id, part in zip(buffer_ids, parts, strict=True)))
        in_buffers = [
            model_pb2.SharedBuffer(region=region(buffer_id, 0, len(part)))
            for buffer_id, part in zip(buffer_ids, parts, strict=True)
        ]
        inline = [model_pb2.SharedBuffer(inline=part) for part in parts]
        for buffers in (in_buffers, inline, [in_buffers[0], inline[1]]):
            reply = client.ask(
                "NnrtDevice.PrepareModelFromModelCache", device_pb2.PrepareFromBuffersRequest(buffers=buffers)
            )
            (result,) = client.run(reply.prepared.model_id, np.array([1, 2, 3], np.float32))
            assert result.tolist() == [1, 2, 3]
            release(client, reply.prepared.model_id)
        for buffers in ([], in_buffers[:1], in_buffers[::-1], [*in_buffers, in_buffers[0]]):
            with pytest.raises(InvalidFile):
                client.ask(
                    "NnrtDevice.PrepareModelFromModelCache", device_pb2.PrepareFromBuffersRequest(buffers=buffers)
                )


@pytest.mark.parametrize("dims", [(), (3,)])
def test_a_cache_whose_runs_can_not_be_computed_together(daemon: DaemonProcess, dims: tuple[int, ...]) -> None:
    """Although the client says so, who has brought the right bytes of a model that has no rows."""
    draft = Draft()
    draft.node(NodeType.NEG, [draft.input(dims)], [draft.output(dims)])
    with RawClient(daemon.address) as client:
        exported = client.ask(
            "PreparedModel.ExportModelCache",
            prepared_model_pb2.ExportModelCacheRequest(model_id=prepare(client, draft)),
        ).buffers
        request = device_pb2.PrepareFromBuffersRequest(buffers=exported)
        assert client.ask("NnrtDevice.PrepareModelFromModelCache", request).prepared.model_id
        request.batching.max_size = 16
        with pytest.raises(Unsupported, match="first dimension that is open"):
            client.ask("NnrtDevice.PrepareModelFromModelCache", request)


# What the test backend `cached` exports.
PARTS = [b"compiled", bytes(range(256)) * 4096]


def named(part: bytes, **fields: Any) -> "model_pb2.SharedBuffer":
    """A part by its digest."""
    ref: dict[str, Any] = {"sha256": Draft.digest(part), "size_bytes": len(part)}
    return model_pb2.SharedBuffer(constant=model_pb2.ConstantRef(**(ref | fields)))


def restored(client: RawClient, *buffers: "model_pb2.SharedBuffer", method: str = "PrepareModelFromModelCache") -> Any:
    """The last reply: `prepared` or `missing`."""
    return client.ask(f"NnrtDevice.{method}", device_pb2.PrepareFromBuffersRequest(buffers=buffers))


@pytest.mark.parametrize("method", ["PrepareModelFromModelCache", "PrepareOfflineModel"])
def test_parts_of_a_cache_by_digest(caching_daemon: DaemonProcess, method: str) -> None:
    """Uploaded like constants, from where an upload broke off; not copied, and kept as long as the model."""
    buffers = [named(part) for part in PARTS]
    with RawClient(caching_daemon.address) as client:
        prepare(client, Draft.sum_of_input_and([1, 2, 3]))  # This backend restores the model it compiled last.
        client.call("NnrtDevice.UploadConstants", *chunks(PARTS[1])[:4])
        reply = restored(client, *buffers, method=method)
        assert {entry.sha256: entry.received_bytes for entry in reply.missing.constants} == {
            Draft.digest(PARTS[0]): 0,
            Draft.digest(PARTS[1]): 400_000,
        }
        client.call("NnrtDevice.UploadConstants", *chunks(PARTS[0]), *chunks(PARTS[1], start=400_000))
        taken = client.allocate(SESSION_BYTES - len(PARTS[1]) - 10 * LEAST_BYTES)
        prepared = restored(client, *buffers, method=method).prepared
        assert prepared.origin == device_pb2.PreparedModelInfo.RESTORED
        mixed = restored(client, model_pb2.SharedBuffer(inline=PARTS[0]), buffers[1], method=method).prepared
        (result,) = client.run(mixed.model_id, np.array([4, 5, 6], np.float32))
        assert result.tolist() == [4, 5, 6]
        client.call("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=taken))
        with pytest.raises(OutOfMemory):
            client.allocate(SESSION_BYTES - len(PARTS[1]) // 2)
        for model_id in (prepared.model_id, mixed.model_id):
            release(client, model_id)
        client.allocate(SESSION_BYTES - len(PARTS[1]) // 2)
        assert restored(client, *buffers).HasField("missing")


@pytest.mark.parametrize(
    ("buffers", "place", "said"),
    [
        ([named(PARTS[0], sha256=b"x" * 31)], "buffer 0", "its digest has 31 bytes; a SHA-256 has 32"),
        ([named(PARTS[0]), named(PARTS[0], sha256=b"")], "buffer 1", "its digest has 0 bytes; a SHA-256 has 32"),
        ([model_pb2.SharedBuffer()], "buffer 0", "it has no data; send it inline or in a buffer"),
        ([named(PARTS[0], size_bytes=9)], "", "is 9 bytes in the model and 8 in its upload; they must agree"),
        ([named(PARTS[0], size_bytes=0)], "", "is 0 bytes in the model and 8 in its upload; they must agree"),
        ([named(PARTS[0], size_bytes=2**64 - 1)], "", "is 18446744073709551615 bytes in the model and 8 in its upload"),
        ([named(PARTS[0])] * 101, "", "there are 101 buffers; use at most 100"),
    ],
)
def test_wrong_parts_by_digest(caching_daemon: DaemonProcess, buffers: list[Any], place: str, said: str) -> None:
    with RawClient(caching_daemon.address) as client:
        client.upload(PARTS[0])
        for method in ("PrepareModelFromModelCache", "PrepareOfflineModel"):
            with pytest.raises(InvalidParameter) as refusal:
                restored(client, *buffers, method=method)
            assert refusal.value.place == place
            assert said in refusal.value.message
        assert client.allocate(SESSION_BYTES), "nothing is held"


def test_parts_that_are_no_model(caching_daemon: DaemonProcess) -> None:
    """Empty ones, one many times, and such that nobody could ever upload."""
    with RawClient(caching_daemon.address) as client:
        client.upload(b"", PARTS[0])
        for part in (b"", PARTS[0]):
            with pytest.raises(InvalidFile):
                restored(client, *[named(part)] * 100)
        reply = restored(
            client, *(named(b"", sha256=bytes([number] * 32), size_bytes=2**64 - 1) for number in range(9))
        )
        assert [entry.received_bytes for entry in reply.missing.constants] == [0] * 9
        with pytest.raises(OutOfMemory):
            client.call(
                "NnrtDevice.UploadConstants",
                device_pb2.ConstantChunk(sha256=bytes(32), size_bytes=2**64 - 1, data=b"x"),
            )
        assert client.allocate(SESSION_BYTES), "nothing is held"


def test_an_exported_model_can_not_be_written(caching_daemon: DaemonProcess) -> None:
    """Its buffers are the bytes of the backend, not copies."""
    with RawClient(caching_daemon.address) as client:
        model_id = prepare(client, Draft.sum_of_input_and([1, 2, 3]))
        exported = client.ask(
            "PreparedModel.ExportModelCache", prepared_model_pb2.ExportModelCacheRequest(model_id=model_id)
        ).buffers
        place = exported[1].region
        run = prepared_model_pb2.RunRequest(
            model_id=model_id,
            inputs=[io_tensor(np.zeros(3, np.float32))],
            outputs=[model_pb2.IOTensor(data=exported[1])],
        )
        buffer = f"buffer {place.buffer_id}"
        for attempt, where in (
            (lambda: write(client, (place.buffer_id, 0, b"x")), buffer),
            (lambda: client.call("PreparedModel.Run", run), f"output 0: {buffer}"),
        ):
            with pytest.raises(InvalidParameter, match="it can only be read, for it holds an exported") as refusal:
                attempt()
            assert refusal.value.place == where
        assert [client.read(buffer.region) for buffer in exported] == PARTS
        assert restored(client, *exported).HasField("prepared")


def test_exported_parts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit for buffers that clients allocate is none for them; the session's memory is."""
    monkeypatch.setattr("nnrt_device_service.memory.buffers.MAX_BUFFER_BYTES", 10)
    budget = MemoryBudget(100_000)
    pool = BufferPool(budget)
    large = bytes(50_000)
    first, empty = pool.adopt_all([large, b""], owner=1)
    region = pool.region(first, 0, 50_000)
    assert isinstance(region, memoryview)
    assert region.obj is large
    assert pool.region(empty, 0, 0).nbytes == 0
    with pytest.raises(OutOfMemory):
        pool.adopt_all([b"fits", large], owner=1)
    assert budget.used_bytes == 50_000 + LEAST_BYTES
    pool.close()
    assert budget.used_bytes == 0


def test_a_cache_that_does_not_fit_leaves_nothing_behind(caching_daemon: DaemonProcess) -> None:
    with RawClient(caching_daemon.address) as client:
        model_id = prepare(client, Draft.sum_of_input_and([1, 2, 3]))
        # The cache has two parts: a short one, which fits, and one of a megabyte.
        room = 500_000
        taken = client.allocate(SESSION_BYTES - room)
        with pytest.raises(OutOfMemory):
            client.ask("PreparedModel.ExportModelCache", prepared_model_pb2.ExportModelCacheRequest(model_id=model_id))
        assert client.allocate(room - 2 * LEAST_BYTES) == taken + 2, "the first part took an id, and no memory"


def test_a_device_without_caches(start_daemon: StartDaemon) -> None:
    with RawClient(start_daemon("--backend", "plain").address) as client:
        model_id = prepare(client, Draft.sum_of_input_and([1, 2, 3]))
        with pytest.raises(Unsupported, match="this device does not export compiled models"):
            client.ask("PreparedModel.ExportModelCache", prepared_model_pb2.ExportModelCacheRequest(model_id=model_id))
        with pytest.raises(Unsupported, match="this device does not restore compiled models"):
            client.ask(
                "NnrtDevice.PrepareModelFromModelCache",
                device_pb2.PrepareFromBuffersRequest(buffers=[model_pb2.SharedBuffer(inline=b"compiled")]),
            )
