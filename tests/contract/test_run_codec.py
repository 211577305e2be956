"""Messages of runs: what is written is protobuf, and what is read is what protobuf reads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st
from nnrt_hdi.wire.run_codec import Incoming

from nnrt_hdi import wire
from nnrt_hdi.chunks import Assembly, beyond_inline, outline, pieces
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import TensorSpec
from nnrt_hdi.v2 import model_pb2, prepared_model_pb2
from nnrt_hdi.wire import run_codec

RunRequest, RunReply = prepared_model_pb2.RunRequest, prepared_model_pb2.RunReply
Read = Callable[[bytes], Incoming]


@pytest.fixture(autouse=True)
def looks_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of a few bytes count as large ones."""
    monkeypatch.setattr(run_codec, "VIEWED_BYTES", 4)


def whole(incoming: Incoming) -> Any:
    """The message with what is beside it back in its places."""
    message: Any = type(incoming.message)()
    message.CopyFrom(incoming.message)
    tensors = message.inputs if isinstance(message, RunRequest) else message.outputs
    for index, view in incoming._inline.items():
        assert tensors[index].data.inline == b"" and tensors[index].data.HasField("inline")
        tensors[index].data.inline = bytes(view)
    message.chunk = bytes(incoming.chunk)
    return message


def assert_as_protobuf(kind: Any, read: Read, data: bytes) -> None:
    try:
        wanted = kind.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            read(data)
        return
    incoming = read(data)
    # Serialized, because NaN and unknown fields don't show in a comparison of messages.
    assert whole(incoming).SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)
    assert incoming.is_chunk == (bool(wanted.chunk) and [field.name for field, _ in wanted.ListFields()] == ["chunk"])


SHARED = st.one_of(
    st.builds(model_pb2.SharedBuffer),
    st.builds(model_pb2.SharedBuffer, inline=st.binary(max_size=300)),
    st.builds(model_pb2.SharedBuffer, chunked=st.integers(0, 2**64 - 1)),
    st.builds(lambda size: model_pb2.SharedBuffer(region={"buffer_id": 1, "data_size": size}), st.integers(0, 99)),
)
TENSOR = st.builds(
    model_pb2.IOTensor,
    name=st.text(max_size=9),
    data_type=st.sampled_from([0, 43, 999]),
    dimensions=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
    data=SHARED,
    padding=st.binary(max_size=4),
)
REQUEST = st.builds(
    RunRequest,
    model_id=st.integers(0, 2**64 - 1),
    inputs=st.lists(TENSOR, max_size=4),
    outputs=st.lists(TENSOR, max_size=2),
    run_id=st.integers(0, 2**64 - 1),
    chunk=st.binary(max_size=300),
    takes_chunks=st.booleans(),
)
REPLY = st.builds(
    RunReply,
    outputs=st.lists(TENSOR, max_size=4),
    chunk=st.binary(max_size=300),
    times=st.builds(prepared_model_pb2.RunTimes, queued_ns=st.integers(0, 2**64 - 1)),
    kept=st.booleans(),
)
KINDS: list[tuple[Any, Read, Any]] = [
    (RunRequest, run_codec.read_request, REQUEST),
    (RunReply, run_codec.read_reply, REPLY),
]


@st.composite
def damaged(draw: st.DrawFn, messages: "st.SearchStrategy[Message]") -> bytes:
    """A message, or several one behind the other, cut, doubled, with bytes changed and put in."""
    data = bytearray(b"".join(message.SerializeToString() for message in draw(st.lists(messages, max_size=3))))
    for _ in range(draw(st.integers(0, 4))):
        begin, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        match draw(st.sampled_from(["change", "insert", "cut", "double", "truncate"])):
            case "change" if begin < len(data):
                data[begin] = draw(st.integers(0, 255))
            case "insert":
                data[begin:begin] = draw(st.binary(max_size=12))
            case "cut":
                del data[begin : min(end, begin + 8)]
            case "double":
                data += data[begin:end]
            case "truncate":
                del data[end:]
    return bytes(data)


@given(st.data())
@pytest.mark.parametrize(("kind", "read", "messages"), KINDS, ids=["request", "reply"])
@pytest.mark.slow
def test_damaged_messages_are_read_as_protobuf_reads_them(kind: Any, read: Read, messages: Any, data: Any) -> None:
    assert_as_protobuf(kind, read, data.draw(damaged(messages)))


@given(st.data())
@pytest.mark.parametrize(("kind", "read", "messages"), KINDS, ids=["request", "reply"])
def test_sound_messages_are_read_as_views(kind: Any, read: Read, messages: Any, data: Any) -> None:
    message = data.draw(messages)
    serialized = message.SerializeToString()
    assert_as_protobuf(kind, read, serialized)
    incoming = read(serialized)
    tensors = message.inputs if kind is RunRequest else message.outputs
    if len(serialized) >= run_codec.VIEWED_BYTES:
        large = {index for index, tensor in enumerate(tensors) if len(tensor.data.inline) >= run_codec.VIEWED_BYTES}
        assert set(incoming._inline) == large
        assert all(view.obj is serialized for view in incoming._inline.values())


def field(number: int, content: bytes, extra_length_bytes: int = 0) -> bytes:
    """A length-delimited field, its length in more bytes than it needs."""
    length = bytearray([len(content)])
    for _ in range(extra_length_bytes):
        length[-1] |= 0x80
        length.append(0)
    return bytes([number * 8 + 2]) + bytes(length) + content


INLINE = field(1, b"12345678")
ODD = {
    "data twice, to be merged": field(2, field(5, INLINE) + field(5, field(1, b"abcdefgh"))),
    "inline twice": field(2, field(5, INLINE + INLINE)),
    "inline and then a region": field(2, field(5, INLINE + field(2, b"\x08\x01"))),
    "data of an unknown field only": field(2, field(5, field(9, b"12345678"))),
    "long length": field(2, field(5, INLINE), 2),
    "long length inside": field(2, field(5, field(1, b"12345678", 3))),
    "long length of ten bytes": field(2, field(5, INLINE), 9),
    "long length of eleven bytes": field(2, field(5, INLINE), 10),
    "tag of two bytes": b"\x92\x00" + field(2, field(5, INLINE))[1:],
    "tag of field 0": field(0, INLINE),
    "a group": b"\x0b\x08\x01\x0c" + field(2, field(5, INLINE)),
    "the end of a group": b"\x0c" + field(2, field(5, INLINE)),
    "a group that isn't closed": field(2, b"\x0b" + field(5, INLINE)),
    "fixed numbers": b"\x79" + bytes(8) + b"\x7d" + bytes(4) + field(2, field(5, INLINE)),
    "tensors as a number": b"\x10\x05" + field(2, field(5, INLINE)),
    "data as a number": field(2, b"\x28\x05" + field(5, INLINE)),
    "inline as a number": field(2, field(5, b"\x08\x05" + INLINE)),
    "a name that is no text": field(2, field(1, b"\xff\xfe") + field(5, INLINE)),
    "a number of eleven bytes": b"\x08" + b"\xff" * 10 + b"\x01" + field(2, field(5, INLINE)),
    "a number of ten bytes": b"\x08" + b"\xff" * 9 + b"\x7f" + field(2, field(5, INLINE)),
    "longer than the message": field(2, field(5, INLINE))[:-1],
    "longer than the tensor": b"\x12\x06" + field(5, INLINE) + bytes(8),
    "length of 4 GiB": b"\x12\xff\xff\xff\xff\x0f" + INLINE,
    "length of 16 EiB": b"\x12" + b"\xff" * 9 + b"\x01" + INLINE,
    "two chunks": field(6, b"12345678") + field(6, b"abcdefgh"),
    "two chunks, the last one empty": field(6, b"12345678") + field(6, b""),
    "a chunk and more": field(6, b"12345678") + b"\x08\x01",
    "a chunk and something unknown": field(6, b"12345678") + field(15, b"12345678"),
    "more fields than are looked at": b"\x08\x01" * 2000 + field(2, field(5, INLINE)),
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
@pytest.mark.parametrize(("kind", "read", "messages"), KINDS, ids=["request", "reply"])
def test_odd_messages_are_read_as_protobuf_reads_them(kind: Any, read: Read, messages: Any, data: bytes) -> None:
    for around in (data, field(2, field(5, INLINE)) + data, data + field(2, field(5, INLINE))):
        assert_as_protobuf(kind, read, around)


# ---- writing


@given(sizes=st.lists(st.integers(0, 300), max_size=4), name=st.text(max_size=20), model_id=st.integers(0, 2**64 - 1))
def test_what_is_written_is_the_message(sizes: list[int], name: str, model_id: int) -> None:
    """Protobuf reads every byte, and the data lies where it can be computed with."""
    arrays = [np.arange(size, dtype=np.float64) for size in sizes]
    specs = [TensorSpec(DataType.FLOAT64, array.shape, name=name) for array in arrays]
    given = [(wire.io_bare_message(spec, array), array) for spec, array in zip(specs, arrays, strict=True)]
    data = run_codec.with_tensors(RunRequest(model_id=model_id, run_id=3), given)
    message = RunRequest.FromString(data)
    assert (message.model_id, message.run_id) == (model_id, 3)
    for tensor, spec, array in zip(message.inputs, specs, arrays, strict=True):
        assert wire.io_spec(tensor) == spec
        assert tensor.data.inline == array.tobytes()
    read = run_codec.read_request(data)
    for index, found in read.arrays(read.message.inputs, "input").items():
        np.testing.assert_array_equal(found, arrays[index])
        assert found.flags.aligned and not found.flags.writeable and not found.flags.owndata


def test_data_that_is_not_aligned_is_copied() -> None:
    for skew in range(8):
        tensor = wire.io_tensor_message(TensorSpec(DataType.FLOAT64, (9,), name="x" * skew), np.arange(9.0))
        read = run_codec.read_request(RunRequest(inputs=[tensor]).SerializeToString())
        (found,) = read.arrays(read.message.inputs, "input").values()
        np.testing.assert_array_equal(found, np.arange(9.0))
        assert found.flags.aligned and not found.flags.writeable


@given(st.binary(min_size=1, max_size=300))
def test_chunks(piece: bytes) -> None:
    request, reply = run_codec.request_chunk(memoryview(piece)), run_codec.reply_chunk(memoryview(piece))
    assert RunRequest.FromString(request) == RunRequest(chunk=piece)
    assert RunReply.FromString(reply) == RunReply(chunk=piece)
    for incoming in (run_codec.read_request(request), run_codec.read_reply(reply)):
        assert incoming.is_chunk and incoming.chunk == piece


# ---- cutting and putting together


@given(st.lists(st.integers(0, 40), max_size=5), st.integers(1, 64))
def test_pieces_make_the_arrays_again(sizes: list[int], message_bytes: int) -> None:
    arrays = [np.arange(size, dtype=np.int16) + size for size in sizes]
    copies = [np.zeros_like(array) for array in arrays]
    assembly, unwanted = Assembly(copies), Assembly([outline(TensorSpec(DataType.INT16, (size,))) for size in sizes])
    for piece in pieces(arrays, message_bytes):
        assert 1 <= len(piece) <= message_bytes and not assembly.is_complete
        assembly.take(bytes(piece))
        unwanted.take(piece)
    assert assembly.is_complete and unwanted.is_complete
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(copy, array)
    with pytest.raises(InvalidParameter, match="a chunk has 1 bytes; 0 are missing"):
        assembly.take(b"x")


def test_pieces_that_do_not_fit() -> None:
    assembly = Assembly([np.zeros(3, np.int8), np.zeros(0, np.int8), np.zeros(4, np.int8)])
    for piece, missing in ((b"1234", 3), (b"", 3)):
        with pytest.raises(InvalidParameter, match=f"a chunk has {len(piece)} bytes; {missing} are missing"):
            assembly.take(piece)
    assembly.take(b"123")
    with pytest.raises(InvalidParameter, match="a chunk has 5 bytes; 4 are missing"):
        assembly.take(b"12345")


def test_which_tensors_travel_inside() -> None:
    """As many as there is room for, in order."""
    assert beyond_inline([10, 60, 50, 30, 0], 100) == {2}
    assert beyond_inline([1 << 20, 1, 0], 1 << 30) == {1}
