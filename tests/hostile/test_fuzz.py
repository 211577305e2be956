"""Bytes, orders, sizes and numbers that no client should send. Every call is answered, the next one too.

The daemon is a small one, so that its limits are near.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import grpc
import numpy as np
import pytest
from daemon_process import DaemonProcess
from fuzzed_messages import loop_request, values_of
from google.protobuf.message import Message
from model_draft import Draft
from raw_client import (
    DEADLINE_S,
    METHODS,
    Metadata,
    RawClient,
    assert_unharmed,
    attacked_daemon,
    chunks,
    io_tensor,
)
from waiting import until
from ways import CHUNKS, INLINE, describe_runs

from nnrt_hdi import wire
from nnrt_hdi.enums import DataType, NodeType, PerformanceMode
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OutOfMemory, UnavailableDevice
from nnrt_hdi.v2 import device_pb2, model_pb2, prepared_model_pb2, sequence_pb2, session_pb2
from nnrt_hdi.v2.prepared_model_pb2 import RunPacket

pytestmark = pytest.mark.table

SESSION_BYTES = 8 << 20
MESSAGE_BYTES = 1 << 20
MODELS, STREAMS, SESSIONS = 4, 3, 5
LIMITS = {
    "--session-bytes": SESSION_BYTES,
    "--message-bytes": MESSAGE_BYTES,
    "--tensor-bytes": 1 << 20,
    "--session-models": MODELS,
    "--session-streams": STREAMS,
    "--max-sessions": SESSIONS,
    "--identity-share": 1,
}
# Bytes that gRPC itself lets through above --message-bytes.
OVERHEAD_BYTES = 64 * 1024
BATCH = 12


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with attacked_daemon(*(str(part) for flag in LIMITS.items() for part in flag)) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as client:
        yield client
    assert_unharmed(daemon)


@pytest.fixture
def other(daemon: DaemonProcess) -> Iterator[RawClient]:
    """The session of somebody else."""
    with RawClient(daemon.address) as other:
        yield other


@pytest.fixture
def model_id(client: RawClient) -> int:
    """y = x + [1, 2, 3]."""
    return client.prepare_sum([1, 2, 3])


# ---- bytes

Mutation = Callable[[Random, bytes], bytes]


def garbage(rng: Random, _: bytes) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 2, 10, 100, 10_000]))


def truncated(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def bits_flipped(rng: Random, data: bytes) -> bytes:
    flipped = bytearray(data or b"\0")
    for _ in range(rng.choice([1, 1, 2, 8])):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def spliced(rng: Random, data: bytes) -> bytes:
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start:]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mutate", [garbage, truncated, bits_flipped, spliced], ids=lambda mutate: mutate.__name__)
@pytest.mark.parametrize("seed", [1, 2], ids="seed{}".format)
def test_damaged_messages(client: RawClient, model_id: int, method: str, mutate: Mutation, seed: int) -> None:
    rng = Random(f"{seed} {method} {mutate.__name__}")  # noqa: S311
    valid = [request.SerializeToString() for request in valid_requests(client, model_id)[method]]
    for _ in range(BATCH):
        requests = [mutate(rng, rng.choice(valid)) for _ in range(rng.randint(1, 3))]
        if method == "DeviceSession.Open":
            answered(client, method, requests, ())  # With its id the session would be resumed.
        else:
            answered(client, method, requests, client.metadata)
            assert isinstance(answered(client, method, requests, ()), NnrtError)
        assert isinstance(answered(client, method, requests, hostile_metadata(rng)), NnrtError)


@pytest.mark.parametrize("method", METHODS)
def test_no_message_at_all(client: RawClient, method: str) -> None:
    """A stream that ends before it begins; where there is none, a message without a field."""
    metadata = () if method == "DeviceSession.Open" else client.metadata
    answered(client, method, [] if METHODS[method].client_streaming else [b""], metadata)


def answered(client: RawClient, method: str, requests: Sequence[bytes], metadata: Metadata) -> NnrtError | None:
    """Get the daemon's answer; a status without an error of the daemon's own is none, and fails the test."""
    try:
        client.call(method, *requests, metadata=metadata)
    except NnrtError as error:
        assert "daemon failed" not in error.message
        return error
    return None


def hostile_metadata(rng: Random) -> Metadata:
    key = wire.SESSION_METADATA
    wrong: list[Metadata] = [
        ((key, rng.randbytes(16)),),
        ((key, b""),),
        ((key, rng.randbytes(5000)),),
        ((key.removesuffix("-bin"), "text"), (key, bytes(16))),
        ((key, rng.randbytes(16)),) * 5,
    ]
    return rng.choice(wrong)


def valid_requests(client: RawClient, model_id: int) -> dict[str, list[Message]]:
    """Some of what each method takes."""
    buffer_id = client.allocate(100)
    draft = Draft.sum_of_input_and(list(range(300)))
    draft.message.sub_graph.add(name="all", input_indices=[0], output_indices=[2], node_indices=[0])
    region = model_pb2.BufferRegion(buffer_id=buffer_id, offset=4, data_size=12)
    in_buffer = model_pb2.SharedBuffer(region=region)
    config = model_pb2.ModelConfig(extensions={"knob": b"1"})
    inputs = [io_tensor(np.arange(3, dtype=np.float32), name="x", format=1)]
    run = prepared_model_pb2.RunRequest(model_id=model_id, inputs=inputs)
    x = np.arange(3, dtype=np.float32)
    frames = RunPacket(frames=describe_runs(model_id, x.shape).frame(x, timeout_ms=1000), padding=bytes(9))
    announced = RunPacket(frames=describe_runs(model_id, x.shape, (CHUNKS, INLINE)).frame(timeout_ms=1000))
    into_buffer = prepared_model_pb2.RunRequest(model_id=model_id, inputs=inputs)
    into_buffer.outputs.add(data=in_buffer)
    from_buffers = device_pb2.PrepareFromBuffersRequest(
        buffers=[in_buffer, model_pb2.SharedBuffer(inline=b"cache")], config=config
    )
    value_part = sequence_pb2.SequenceValue(data=bytes(4))
    by_digest = device_pb2.PrepareFromBuffersRequest(buffers=[BY_DIGEST] * 2)
    return {
        "DeviceSession.Open": [
            session_pb2.SessionRequest(hello=session_pb2.Hello(protocol_minor=1, features=["f"], client_name="c")),
            session_pb2.SessionRequest(beat=session_pb2.Beat(sequence=1)),
            session_pb2.SessionRequest(goodbye=session_pb2.Goodbye()),
        ],
        "NnrtDevice.GetDeviceStatus": [device_pb2.GetDeviceStatusRequest()],
        "NnrtDevice.GetCounters": [device_pb2.GetCountersRequest()],
        "NnrtDevice.GetSupportedOperation": [device_pb2.GetSupportedOperationRequest(model=draft.message)],
        "NnrtDevice.PrepareModel": [
            device_pb2.PrepareModelRequest(model=draft.message, request_id=bytes(16)),
            device_pb2.PrepareModelRequest(model=Draft.sum_of_input_and([1]).message, config=config),
        ],
        "NnrtDevice.PrepareModelFromModelCache": [from_buffers, by_digest],
        "NnrtDevice.PrepareOfflineModel": [from_buffers, by_digest],
        "NnrtDevice.UploadConstants": list(chunks(bytes(range(100)))),
        "NnrtDevice.AllocateBuffer": [device_pb2.AllocateBufferRequest(length=100_000)],
        "NnrtDevice.ReleaseBuffer": [device_pb2.ReleaseBufferRequest(buffer_id=buffer_id + 1)],
        "NnrtDevice.WriteBuffer": [device_pb2.BufferChunk(buffer_id=buffer_id, offset=10, data=b"data")],
        "NnrtDevice.ReadBuffer": [region],
        "PreparedModel.Run": [run, into_buffer],
        "PreparedModel.RunStream": [frames, announced, RunPacket(chunk=x.tobytes())],
        "PreparedModel.AwaitRun": [prepared_model_pb2.AwaitRunRequest(run_id=1)],
        "PreparedModel.CancelRuns": [prepared_model_pb2.CancelRunsRequest(run_ids=[1, 2**64 - 1])],
        "PreparedModel.ExportModelCache": [prepared_model_pb2.ExportModelCacheRequest(model_id=model_id)],
        "PreparedModel.GetInputDimRanges": [prepared_model_pb2.GetInputDimRangesRequest(model_id=model_id)],
        "PreparedModel.Release": [prepared_model_pb2.ReleaseRequest(model_id=model_id + 1)],
        "Sequences.Write": [sequence_pb2.SequenceWrite(sequence_id=7, values=[values_of(1, [0, 1, 2]), value_part])],
        "Sequences.Read": [sequence_pb2.SequenceRead(sequence_id=7, numbers=[1, 2])],
        "Sequences.Loop": [loop_request(model_id, sequence_id=8)],
        "Sequences.Stop": [sequence_pb2.StopLoopRequest(sequence_id=8)],
        "Sequences.Release": [sequence_pb2.ReleaseSequenceRequest(sequence_id=8)],
    }


# ---- the session

HELLO = session_pb2.SessionRequest(hello=session_pb2.Hello())
BEAT = session_pb2.SessionRequest(beat=session_pb2.Beat())
GOODBYE = session_pb2.SessionRequest(goodbye=session_pb2.Goodbye())


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([], "the first message of a session must be Hello"),
        ([session_pb2.SessionRequest()], "the first message of a session must be Hello"),
        ([BEAT, HELLO], "the first message of a session must be Hello"),
        ([GOODBYE], "the first message of a session must be Hello"),
        ([b"\xff"], "the request can't be decoded"),
        ([HELLO, HELLO], "after Welcome comes Beat or Goodbye, not hello"),
        ([HELLO, BEAT, b""], "after Welcome comes Beat or Goodbye, not nothing"),
        ([HELLO, b"\xff\xff"], "the request can't be decoded"),
    ],
)
def test_wrong_order_in_a_session(client: RawClient, requests: list[Message | bytes], said: str) -> None:
    with pytest.raises(InvalidParameter, match=said) as refusal:
        client.call("DeviceSession.Open", *requests)
    assert refusal.value.place in ("DeviceSession.Open", "DeviceSession/Open")


def test_session_ends_with_its_stream(client: RawClient, daemon: DaemonProcess) -> None:
    with RawClient(daemon.address) as gone:
        metadata = gone.metadata
    with pytest.raises(UnavailableDevice, match="no such session; it ended, or the daemon was restarted"):
        client.call("NnrtDevice.GetDeviceStatus", b"", metadata=metadata)


def test_client_name_that_forges_a_log(start_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = start_daemon("--heartbeat-timeout-s", "0.2")
    with RawClient(daemon.address) as client:
        silent = client.converse("DeviceSession.Open")
        name = "n\n2030-01-01 ERROR root: Traceback" + "\n" * (1 << 13)
        silent.send(session_pb2.SessionRequest(hello=session_pb2.Hello(client_name=name)))
        assert silent.receive().HasField("welcome")
        assert silent.failure() is grpc.StatusCode.CANCELLED
        client.session.failure()
    log = until(lambda: daemon.log() if "silent for too long" in daemon.log() else "")
    assert not any(line.startswith("2030") for line in log.splitlines())
    assert len(log) < 10_000


# ---- constants


def chunk(**fields: Any) -> "device_pb2.ConstantChunk":
    return device_pb2.ConstantChunk(**fields)


DIGEST = Draft.digest(b"0123456789")


@pytest.mark.parametrize(
    ("sent", "error", "said"),
    [
        ([chunk(data=b"1")], InvalidParameter, "a constant's digest has 0 bytes; a SHA-256 has 32"),
        ([chunk(sha256=b"abc", size_bytes=1)], InvalidParameter, "a constant's digest has 3 bytes"),
        ([chunk(sha256=bytes(500_000), size_bytes=1)], InvalidParameter, "a constant's digest has 500000 bytes"),
        ([chunk(sha256=DIGEST, size_bytes=10, offset=1)], InvalidParameter, "0 bytes at 1 do not follow the 0 of 10"),
        ([chunk(sha256=DIGEST, size_bytes=10, offset=2**64 - 1, data=b"0")], InvalidParameter, "do not follow"),
        ([chunk(sha256=DIGEST, size_bytes=2, data=b"012")], InvalidParameter, "3 bytes at 0 do not follow the 0 of 2"),
        ([chunk(sha256=DIGEST, data=b"0")], InvalidParameter, "1 bytes at 0 do not follow the 0 of 0"),
        (
            [chunk(sha256=DIGEST, size_bytes=10, data=b"01"), chunk(data=b"01")],
            InvalidParameter,
            "2 bytes at 0 do not follow the 2 of 10",
        ),
        (
            [chunk(sha256=DIGEST, size_bytes=10, data=b"01"), chunk(sha256=DIGEST, size_bytes=9, offset=2)],
            InvalidParameter,
            "its size is 9, before it was 10",
        ),
        ([*chunks(b"0123456789"), *chunks(b"0123456789")], InvalidParameter, "do not follow the 10 of 10 received"),
        ([chunk(sha256=DIGEST, size_bytes=10, data=b"9876543210")], InvalidFile, "the bytes received have another"),
        ([chunk(sha256=DIGEST, size_bytes=0)], InvalidFile, "the bytes received have another SHA-256"),
        ([chunk(sha256=DIGEST, size_bytes=SESSION_BYTES + 1)], OutOfMemory, "pass this session's limit of 8388608"),
        ([chunk(sha256=DIGEST, size_bytes=2**63)], OutOfMemory, "pass this session's limit"),
        ([chunk(sha256=DIGEST, size_bytes=2**64 - 1)], OutOfMemory, "pass this session's limit"),
        ([b"\xff"], InvalidParameter, "the request can't be decoded"),
    ],
)
def test_wrong_chunks(client: RawClient, sent: list[Message | bytes], error: type[NnrtError], said: str) -> None:
    with pytest.raises(error, match=said) as refusal:
        client.call("NnrtDevice.UploadConstants", *sent)
    assert type(refusal.value) is error


@pytest.mark.slow
def test_claims_that_send_nothing(client: RawClient, daemon: DaemonProcess) -> None:
    """Even the smallest constant costs something, or millions of them would cost more than the limit."""
    claims = (chunk(sha256=number.to_bytes(32, "big"), size_bytes=1) for number in range(100_000))
    with pytest.raises(OutOfMemory, match="1024 more bytes pass this session's limit"):
        client.call("NnrtDevice.UploadConstants", *claims)
    assert client.allocate(1)  # What the broken call left makes room.


# ---- buffers

ABSENT = 2**64 - 1
REGIONS: list[tuple[dict[str, int], type[NnrtError], str]] = [
    ({"offset": 97}, InvalidParameter, "12 bytes at 97 pass the end; it has 100 bytes"),
    ({"offset": 2**64 - 12}, InvalidParameter, "pass the end"),
    ({"offset": 2**64 - 1}, InvalidParameter, "pass the end"),
    ({"data_size": 2**64 - 1}, InvalidParameter, "pass the end"),
    ({"offset": 2**63, "data_size": 2**63}, InvalidParameter, "pass the end"),
    ({"buffer_id": ABSENT}, UnavailableDevice, "this session has no buffer"),
    ({"buffer_id": 0}, UnavailableDevice, "this session has no buffer 0"),
]


@pytest.mark.parametrize(("fields", "error", "said"), REGIONS)
def test_hostile_regions(
    client: RawClient, model_id: int, fields: dict[str, int], error: type[NnrtError], said: str
) -> None:
    region = hostile_region(client.allocate(100), **fields)
    for attempt in region_users(client, model_id, region):
        with pytest.raises(error, match=said):
            attempt()


def test_buffers_of_others_and_released_ones(client: RawClient, other: RawClient, model_id: int) -> None:
    for _ in range(5):
        theirs = other.allocate(100)
    released = client.allocate(100)
    for _ in range(2):
        client.call("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=released))
    for buffer_id in (theirs, released):
        for attempt in region_users(client, model_id, hostile_region(buffer_id)):
            with pytest.raises(UnavailableDevice, match=f"this session has no buffer {buffer_id}"):
                attempt()
    assert other.read(hostile_region(theirs)) == bytes(12)


def test_models_of_others_and_released_ones(client: RawClient, other: RawClient, model_id: int) -> None:
    client.call("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
    for somebody in (client, other):
        for method in ("Run", "ExportModelCache", "GetInputDimRanges"):
            request = METHODS[f"PreparedModel.{method}"].request(model_id=model_id)
            with pytest.raises(UnavailableDevice, match=f"this session has no model {model_id}"):
                somebody.call(f"PreparedModel.{method}", request)


def hostile_region(existing: int, **fields: int) -> "model_pb2.BufferRegion":
    """Twelve bytes at the start of a buffer that exists, unless the fields say otherwise."""
    return model_pb2.BufferRegion(**{"buffer_id": existing, "offset": 0, "data_size": 12, **fields})


def region_users(client: RawClient, model_id: int, region: "model_pb2.BufferRegion") -> Iterator[Callable[[], Any]]:
    """Every way to have a daemon touch a region."""
    place = model_pb2.SharedBuffer(region=region)
    x = io_tensor(np.zeros(3, np.float32))
    from_region = model_pb2.IOTensor(data_type=wire.number(DataType.FLOAT32), dimensions=[3], data=place)
    run = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[from_region])
    into = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[x], outputs=[model_pb2.IOTensor(data=place)])
    restore = device_pb2.PrepareFromBuffersRequest(buffers=[place])
    write = device_pb2.BufferChunk(buffer_id=region.buffer_id, offset=region.offset, data=bytes(12))
    yield lambda: client.call("NnrtDevice.ReadBuffer", region)
    yield lambda: client.call("PreparedModel.Run", run)
    yield lambda: client.call("NnrtDevice.PrepareModelFromModelCache", restore)
    yield lambda: client.call("NnrtDevice.PrepareOfflineModel", restore)
    if region.data_size == 12:
        yield lambda: client.call("PreparedModel.Run", into)
        yield lambda: client.call("NnrtDevice.WriteBuffer", write)


@pytest.mark.parametrize("length", [0, 2**30 + 1, 2**63, 2**64 - 1])
def test_buffer_of_no_allowed_length(client: RawClient, length: int) -> None:
    with pytest.raises(InvalidParameter, match=f"length is {length}; use 1..1073741824") as refusal:
        client.allocate(length)
    assert refusal.value.place == "AllocateBuffer"


def test_one_buffer_restored_from_a_hundred_times(client: RawClient) -> None:
    """Each use is a copy, so each counts."""
    place = model_pb2.SharedBuffer(
        region=hostile_region(client.allocate(SESSION_BYTES // 2), data_size=SESSION_BYTES // 2)
    )
    with pytest.raises(OutOfMemory, match="pass this session's limit"):
        client.call(
            "NnrtDevice.PrepareModelFromModelCache", device_pb2.PrepareFromBuffersRequest(buffers=[place] * 100)
        )


# ---- runs


def run_request(model_id: int, *inputs: "model_pb2.IOTensor", **fields: Any) -> "prepared_model_pb2.RunRequest":
    return prepared_model_pb2.RunRequest(model_id=model_id, inputs=inputs, **fields)


def changed(**fields: Any) -> "model_pb2.IOTensor":
    """The input [0, 0, 0] with some fields replaced."""
    message = io_tensor(np.zeros(3, np.float32))
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(message, name)[:] = value
        elif isinstance(value, Message):
            getattr(message, name).CopyFrom(value)
        else:
            setattr(message, name, value)
    return message


X = changed()
BY_DIGEST = model_pb2.SharedBuffer(constant=model_pb2.ConstantRef(sha256=DIGEST, size_bytes=12))
SHORT = model_pb2.SharedBuffer(region=model_pb2.BufferRegion(buffer_id=1, data_size=11))


@pytest.mark.parametrize(
    ("inputs", "outputs", "place", "said"),
    [
        ([], [], "", "0 inputs were given; the model takes 1"),
        ([X, X], [], "", "2 inputs were given; the model takes 1"),
        ([X] * 10_000, [], "", "10000 inputs were given; the model takes 1"),
        ([changed(data_type=DataType.INT32.value)], [], "input 0 'x'", "it is int32[3]; the model takes FLOAT32[3]"),
        ([changed(data_type=31)], [], "input 0", "data_type is 31; use one of"),
        ([changed(data_type=0)], [], "input 0", "the data type is UNKNOWN; give one"),
        ([changed(format=5)], [], "input 0", "format is 5; use one of"),
        ([changed(dimensions=[3, 1])], [], "input 0 'x'", "it is float32[3, 1]; the model takes FLOAT32[3]"),
        ([changed(dimensions=[])], [], "input 0", "there are 12 bytes of data; FLOAT32[] has 4"),
        ([changed(dimensions=[4])], [], "input 0", "there are 12 bytes of data; FLOAT32[4] has 16"),
        ([changed(dimensions=[-1])], [], "input 0", "dimensions are [-1]; a run needs every one of them"),
        ([changed(dimensions=[-7])], [], "input 0", "dimension 0 is -7; use"),
        ([changed(dimensions=[2**31 - 1] * 3)], [], "input 0", "FLOAT32 overflows 2^63 bytes"),
        ([changed(dimensions=[0] + [2**31 - 1] * 3)], [], "input 0", "FLOAT32 overflows 2^63 bytes"),
        ([changed(dimensions=[1] * 100_000)], [], "input 0", "there are 100000 dimensions; use at most 32"),
        ([changed(data=model_pb2.SharedBuffer())], [], "input 0", "it has no data; send it inline or in a buffer"),
        ([changed(data=BY_DIGEST)], [], "input 0", "data by digest is only for constants of a model"),
        ([changed(data=SHORT)], [], "input 0", "there are 11 bytes of data; FLOAT32[3] has 12"),
        ([X], [X, X], "", "2 regions for outputs were given; the model has 1"),
        ([X], [changed(data=SHORT)], "output 0", "it has 12 bytes, its region 11; give it more"),
    ],
)
def test_wrong_runs(
    client: RawClient, model_id: int, inputs: list[Any], outputs: list[Any], place: str, said: str
) -> None:
    """In a call of its own; those of streams are in `test_kept_descriptions.py`."""
    assert client.allocate(100) == 1
    wrong = run_request(model_id, *inputs, outputs=outputs)
    with pytest.raises(InvalidParameter) as refusal:
        client.call("PreparedModel.Run", wrong)
    assert refusal.value.place == place
    assert said in refusal.value.message
    assert client.run(model_id, np.zeros(3, np.float32))[0].tolist() == [1, 2, 3]


def test_bytes_that_end_a_run_stream(client: RawClient, model_id: int) -> None:
    with pytest.raises(InvalidParameter, match="the request can't be decoded"):
        frame = describe_runs(model_id, (3,)).frame(np.zeros(3, np.float32))
        client.call("PreparedModel.RunStream", RunPacket(frames=frame), b"\xff")


def test_configurations_the_device_does_not_know(client: RawClient) -> None:
    model = Draft.sum_of_input_and([1]).message
    for fields, said in (
        ({"mode": 9}, "ModelConfig.mode is 9; use one of"),
        ({"priority": -1}, "ModelConfig.priority is -1; use one of"),
        ({"extensions": {"k" * 100_000: b""}}, "the reference backend knows no extension"),
        ({"mode": PerformanceMode.HIGH}, "the device doesn't support it; leave it at its default"),
    ):
        with pytest.raises(NnrtError, match=said):
            client.prepare(model, model_pb2.ModelConfig(**fields))


def test_caches_the_device_did_not_export(client: RawClient) -> None:
    for method in ("NnrtDevice.PrepareModelFromModelCache", "NnrtDevice.PrepareOfflineModel"):
        with pytest.raises(InvalidFile, match="another kind of file, or damaged"):
            client.call(method, device_pb2.PrepareFromBuffersRequest(buffers=[{"inline": b"cache"}]))


# ---- limits


@pytest.mark.slow
def test_messages_above_the_limit(client: RawClient) -> None:
    """gRPC refuses them before they reach anybody who could add a detail."""
    for method in ("NnrtDevice.GetSupportedOperation", "NnrtDevice.UploadConstants"):
        with pytest.raises(grpc.RpcError) as refusal:
            client.call(method, bytes(MESSAGE_BYTES + OVERHEAD_BYTES + 1))
        assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_answers_above_the_limit(client: RawClient) -> None:
    draft = Draft()
    wide = draft.input([1 << 18])
    for _ in range(5):
        draft.node(NodeType.ADD_FUSION, [wide, draft.constant(np.zeros(1, np.float32))], [draft.output([1 << 18])])
    prepared = client.prepare(draft.message).prepared
    buffer_id = client.allocate(1 << 20)
    x = model_pb2.IOTensor(
        data_type=wire.number(DataType.FLOAT32),
        dimensions=[1 << 18],
        data={"region": {"buffer_id": buffer_id, "data_size": 1 << 20}},
    )
    with pytest.raises(OutOfMemory, match="or have them written to a buffer"):
        client.call("PreparedModel.Run", run_request(prepared.model_id, x))


def test_too_many_tensors_of_a_message(client: RawClient) -> None:
    """A megabyte of empty tensors, nodes, buffers: counted before anything is made of them."""
    for method, field, error in (
        ("NnrtDevice.GetSupportedOperation", b"\x0a\x80\x80\x40" + b"\x2a\x00" * (1 << 19), InvalidParameter),
        ("NnrtDevice.PrepareModel", b"\x0a\x80\x80\x40" + b"\x22\x00" * (1 << 19), InvalidParameter),
        ("NnrtDevice.PrepareOfflineModel", b"\x0a\x00" * (1 << 19), InvalidParameter),
    ):
        with pytest.raises(error):
            client.call(method, field)


def test_too_many_models(client: RawClient) -> None:
    model = Draft.sum_of_input_and([1]).message
    ids = [client.prepare(model).prepared.model_id for _ in range(MODELS)]
    with pytest.raises(OutOfMemory, match=f"this session has {MODELS} prepared models, its limit"):
        client.prepare(model)
    client.call("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=ids[0]))
    assert client.prepare(model).prepared.model_id not in ids


def test_models_with_large_inline_constants(client: RawClient) -> None:
    """They count like uploaded ones, and the request that brings them while it is worked on."""
    draft = Draft.sum_of_input_and([0])
    draft.tensors[0].dims[0] = draft.tensors[1].dims[0] = draft.tensors[2].dims[0] = 200_000
    draft.tensors[1].data.inline = bytes(800_000)
    buffer_id = client.allocate(SESSION_BYTES - 2_000_000)
    client.prepare(draft.message)
    client.prepare(draft.message)  # The same model, which counts once.
    draft.tensors[1].data.inline = b"\1" * 800_000
    with pytest.raises(OutOfMemory, match="pass this session's limit"):
        client.prepare(draft.message)
    client.call("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=buffer_id))
    client.prepare(draft.message)


def test_too_many_buffers(client: RawClient) -> None:
    client.allocate(SESSION_BYTES)
    for length in (1, SESSION_BYTES, 2**30):
        with pytest.raises(OutOfMemory, match=f"pass this session's limit of {SESSION_BYTES}"):
            client.allocate(length)


def test_too_many_sessions(daemon: DaemonProcess) -> None:
    clients = [RawClient(daemon.address) for _ in range(SESSIONS)]
    with pytest.raises(OutOfMemory, match=f"the daemon serves {SESSIONS} clients, its limit"):
        RawClient(daemon.address)
    for client in clients:
        client.close()
    assert_unharmed(daemon)


# Methods of which a session, or the daemon, has only so many open at a time.
STREAM_METHODS = ("PreparedModel.RunStream", "NnrtDevice.UploadConstants", "NnrtDevice.WriteBuffer")
LIMITED = (*STREAM_METHODS, "DeviceSession.Open")


@pytest.mark.parametrize("method", STREAM_METHODS)
@pytest.mark.slow
def test_silent_streams(client: RawClient, method: str) -> None:
    silent = [client.converse(method) for _ in range(STREAMS)]
    assert until(lambda: refused(client, method))
    for conversation in silent:
        conversation.cancel()
    assert until(lambda: not refused(client, method))


@pytest.mark.slow
def test_streams_that_nobody_reads() -> None:
    """Each keeps a thread of the daemon as soon as gRPC's own buffers are full, so they count like the others."""
    with attacked_daemon("--session-streams", str(STREAMS)) as daemon, RawClient(daemon.address) as client:
        size = 1 << 28
        region = model_pb2.BufferRegion(buffer_id=client.allocate(size), data_size=size)
        unread = [client.converse("NnrtDevice.ReadBuffer") for _ in range(STREAMS)]
        for conversation in unread:
            conversation.send(region)
        assert until(lambda: refused(client, "NnrtDevice.UploadConstants"))
        with pytest.raises(OutOfMemory, match=f"this session has {STREAMS} streams open, its limit"):
            client.read(region)
        for conversation in unread:
            conversation.cancel()
        assert until(lambda: not refused(client, "NnrtDevice.UploadConstants"))


def test_calls_that_never_send_their_request(client: RawClient) -> None:
    silent = [client.converse(method) for method in METHODS if method not in LIMITED]
    assert client.allocate(1)
    for conversation in silent:
        conversation.cancel()


def refused(client: RawClient, method: str) -> bool:
    """Tell if one more stream is over the limit."""
    try:
        client.call(method)
    except OutOfMemory as error:
        assert f"this session has {STREAMS} streams open, its limit" in error.message
        return True
    return False


def test_unknown_methods(client: RawClient) -> None:
    for path in (
        "/nnrt_hdi.v2.NnrtDevice/Explode",
        "/nnrt_hdi.v2.Nothing/Run",
        "/nnrt_hdi.v1.NnrtDevice/GetDeviceStatus",
    ):
        with pytest.raises(grpc.RpcError) as refusal:
            client.channel.unary_unary(path)(b"", metadata=client.metadata, timeout=DEADLINE_S)
        assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED
