"""Frames and messages of runs: what is packed is what is read, by the layout that protos/README.md has."""

import zlib
from struct import pack

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from nnrt_hdi import wire
from nnrt_hdi.chunks import Assembly, array_stub, beyond_inline, pieces
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import MAX_FRAMES
from nnrt_hdi.operator_times import Besides, OperatorTime
from nnrt_hdi.tensor import Array, TensorSpec
from nnrt_hdi.v2.local_socket_pb2 import LocalReply, LocalRequest
from nnrt_hdi.v2.prepared_model_pb2 import RunOutcome, RunPacket
from nnrt_hdi.wire.packet import (
    REPLY_MARK,
    REQUEST_MARK,
    FrameLayout,
    frames_of,
    padded,
    reply_head,
    reply_with_outcome,
    request_head,
)
from nnrt_hdi.wire.run_messages import Chunk, chunk_message, frames_message, read_message

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
# Bytes of tensors in a frame.
TENSORS = st.lists(st.binary(max_size=300).map(lambda data: np.frombuffer(data, np.uint8)), max_size=5)


@pytest.fixture(params=["packed", "joined"], autouse=True)
def way_to_make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long frames are made in another way than short ones; here both are short."""
    if request.param == "joined":
        monkeypatch.setattr("nnrt_hdi.wire.packet._JOINED_BYTES", 0)


@given(TENSORS, st.integers(0, 3), U32, U64.filter(bool), U32, st.binary(max_size=50), st.data())
def test_a_request_is_read_as_it_was_packed(
    inputs: list[Array],
    region_count: int,
    number: int,
    run_id: int,
    timeout_ms: int,
    description: bytes,
    data: st.DataObject,
) -> None:
    layout = FrameLayout([each.nbytes for each in inputs], [], region_count)
    regions = data.draw(st.lists(U64, min_size=3 * region_count, max_size=3 * region_count))
    frame = layout.request(number, run_id, timeout_ms, regions, inputs, description)
    shift = padded(len(description))
    assert len(frame) == layout.request_bytes + shift and len(frame) % 8 == 0
    assert request_head.unpack_from(frame) == (REQUEST_MARK, len(frame), run_id, timeout_ms, number, len(description))
    assert frame[request_head.size : request_head.size + len(description)] == description
    assert list(layout.read_regions(frame, request_head.size + shift)) == regions
    for each, at in zip(inputs, layout.input_offsets, strict=True):
        assert at is not None and at % 8 == 0
        assert frame[at + shift : at + shift + each.nbytes] == each.tobytes()
    assert frames_of(REQUEST_MARK, frame * 2) == [(0, len(frame)), (len(frame), 2 * len(frame))]


@given(TENSORS, U64, st.lists(U64, min_size=6, max_size=6), st.binary(max_size=50))
def test_a_reply_is_read_as_it_was_packed(outputs: list[Array], run_id: int, times: list[int], outcome: bytes) -> None:
    layout = FrameLayout([], [each.nbytes for each in outputs], 0)
    plain, told = layout.reply(run_id, times, outputs), reply_with_outcome(run_id, times, outcome, outputs)
    assert len(plain) == layout.reply_bytes
    for frame, size in ((plain, 0), (told, len(outcome))):
        assert reply_head.unpack_from(frame) == (REPLY_MARK, len(frame), run_id, *times, size)
        for each, at in zip(outputs, layout.output_offsets, strict=True):
            begin = (at or 0) + padded(size)
            assert frame[begin : begin + each.nbytes] == each.tobytes()
    assert frames_of(REPLY_MARK, plain + told) == [(0, len(plain)), (len(plain), len(plain) + len(told))]


def test_the_layout_is_the_published_one() -> None:
    layout = FrameLayout([4, None, 3], [2, None, 1], 1)
    tensors = [np.frombuffer(data, np.uint8) for data in (b"abcd", b"efg")]
    frame = layout.request(7, 8, 9, (1 << 63, 64, 16), tensors)
    assert frame == (
        b"\0\1\0\0" + b"\x48\0\0\0" + b"\x08\0\0\0\0\0\0\0" + b"\x09\0\0\0" + b"\7\0\0\0" + bytes(8)
        + b"\0\0\0\0\0\0\0\x80" + b"\x40\0\0\0\0\0\0\0" + b"\x10\0\0\0\0\0\0\0"
        + b"abcd" + bytes(4) + b"efg" + bytes(5)
    )  # fmt: skip
    numbers = b"".join(number.to_bytes(8, "little") for number in (8, 1, 2, 3, 4, 5, 6))
    frame = reply_with_outcome(8, (1, 2, 3, 4, 5, 6), b"told", tensors[1:])
    assert frame == b"\0\2\0\0" + b"\x58\0\0\0" + numbers + b"\4\0\0\0" + bytes(4) + b"told" + bytes(
        4
    ) + b"efg" + bytes(5)


@pytest.mark.parametrize(
    "packet",
    [b"", b"\0", bytes(31), bytes(100), pack("<II", REQUEST_MARK, 24) + bytes(16)]
    + [pack("<II", REQUEST_MARK, size) + bytes(24) for size in (0, 8, 31, 33, 40, 2**32 - 8, 2**32 - 1)]
    + [pack("<II", mark, 32) + bytes(24) for mark in (0, 0x100 + 1, REPLY_MARK, 0x01000100)]
    + [(pack("<II", REQUEST_MARK, 32) + bytes(24)) * (MAX_FRAMES + 1)],
)
def test_what_can_not_be_cut_into_frames(packet: bytes) -> None:
    with pytest.raises(InvalidParameter, match="frame"):
        frames_of(REQUEST_MARK, packet)


@given(st.binary(max_size=300))
def test_frames_that_are_found_are_the_packet(packet: bytes) -> None:
    for data in (packet, pack("<II", REQUEST_MARK, len(packet) // 8 * 8) + packet):
        try:
            frames = frames_of(REQUEST_MARK, data)
        except InvalidParameter:
            continue
        assert b"".join(data[begin:end] for begin, end in frames) == data


@pytest.mark.parametrize("kind", [LocalRequest, LocalReply, RunPacket])
def test_no_message_of_protobuf_begins_like_one(kind: type[LocalRequest]) -> None:
    for packet in (FrameLayout([], [], 0).request(1, 1, 0, (), ()), b"\0", bytes(64)):
        with pytest.raises(DecodeError):
            kind.FromString(packet)


# ---- messages of streams


@given(st.sampled_from([1, 8, 63, 64, 127, 128, 16_000, 40_000]))
def test_what_is_written_is_the_message(size: int) -> None:
    """Protobuf reads every byte, and frames lie where their tensors can be computed with."""
    data = b"x" * size
    message = frames_message(data)
    parsed = RunPacket.FromString(message)
    assert (parsed.frames, parsed.chunk, set(parsed.padding)) == (data, b"", {0})
    view = read_message(message)
    assert view == data and isinstance(view, memoryview) and view.obj is message
    assert (len(message) - size) % 16 == 0
    chunk = chunk_message(memoryview(data))
    assert RunPacket.FromString(chunk) == RunPacket(chunk=data)
    assert read_message(chunk) == Chunk(data, 0)
    packed = zlib.compress(data)
    compressed = chunk_message(memoryview(data), packed)
    assert RunPacket.FromString(compressed) == RunPacket(chunk=packed, expanded_bytes=size)
    read = read_message(compressed)
    assert isinstance(read, Chunk) and read.piece == data


def assert_as_protobuf(data: bytes) -> None:
    try:
        wanted = RunPacket.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_message(data)
        return
    assert read_message(data) == (wanted.frames or Chunk(wanted.chunk, wanted.expanded_bytes))


PACKETS = st.builds(
    RunPacket,
    padding=st.binary(max_size=20),
    frames=st.binary(max_size=300),
    chunk=st.binary(max_size=300),
    expanded_bytes=U32,
)


@given(st.lists(PACKETS, max_size=3), st.lists(st.tuples(st.integers(0, 999), st.binary(max_size=4)), max_size=4))
def test_any_messages_are_read_as_protobuf_reads_them(messages: list[RunPacket], put: list[tuple[int, bytes]]) -> None:
    data = bytearray(b"".join(message.SerializeToString() for message in messages))
    assert_as_protobuf(bytes(data))
    for at, content in put:
        at %= len(data) + 1
        data[at : at + 1] = content
    assert_as_protobuf(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x12\x88\x00" + bytes(8),
        b"\x12\x88\x80\x80\x80\x00" + bytes(8),
        b"\x12\x88\x80\x80\x80\x80\x80\x80\x80\x80\x00" + bytes(8),
        b"\x12\x88\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00" + bytes(8),
        b"\x92\x00\x08" + bytes(8),
        b"\x12\x08" + bytes(7),
        b"\x12\x08" + bytes(8) + b"\x7a\x01x",
        b"\x12\x08" + bytes(8) + b"\x12\x04" + bytes(4),
        b"\x12\x08" + bytes(8) + b"\x12\x00",
        b"\x0a\x02\0\0\x0a\x01\0\x12\x08" + bytes(8),
        b"\x0a\x80\x01" + bytes(128) + b"\x12\x08" + bytes(8),
        b"\x12\xff\xff\xff\xff\x0f" + bytes(8),
        b"\x12" + b"\xff" * 9 + b"\x01" + bytes(8),
        b"\x1a\x08" + bytes(8) + b"\x20\x05",
        b"\x20\x05\x1a\x08" + bytes(8),
        b"\x10\x05",
        b"\x0a",
        b"\x0a\x05",
    ],
)
def test_odd_messages_are_read_as_protobuf_reads_them(data: bytes) -> None:
    assert_as_protobuf(data)


# ---- cutting and putting together


@given(st.lists(st.integers(0, 40), max_size=5), st.integers(1, 64))
def test_pieces_make_the_arrays_again(sizes: list[int], message_bytes: int) -> None:
    arrays = [np.arange(size, dtype=np.int16) + size for size in sizes]
    copies = [np.zeros_like(array) for array in arrays]
    assembly, unwanted = Assembly(copies), Assembly([array_stub(TensorSpec(DataType.INT16, (size,))) for size in sizes])
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


# ---- times of operators


def sent(times: list[OperatorTime], message_bytes: int = 64 << 20) -> list[OperatorTime]:
    outcome = RunOutcome()
    wire.add_operator_times(outcome, times, message_bytes)
    return wire.operator_times(RunOutcome.FromString(outcome.SerializeToString()))


def test_times_of_operators_arrive_as_they_are() -> None:
    times = [OperatorTime("conv1", "CONV2D_FUSION", 0, 1000), OperatorTime("", "Softmax", 1000, 5)]
    assert sent(times) == times


def test_what_was_done_besides_arrives_as_that() -> None:
    times = [Besides("", "open", 0, 7), OperatorTime("", "Softmax", 7, 5)]
    assert [(type(one), one) for one in sent(times)] == [(type(one), one) for one in times]


def test_there_are_not_too_many() -> None:
    times = [OperatorTime(str(number), "Add", number, 1) for number in range(20_000)]
    assert sent(times) == times[:10_000]
    assert len(sent(times, message_bytes=64 << 10)) == 32


def test_names_are_short_and_times_none_that_no_message_holds() -> None:
    (time,) = sent([OperatorTime("\ud800" + "ä" * 10_000, "x" * 201, -5, -1)])
    assert len(time.name.encode()) <= 200
    assert len(time.operator.encode()) <= 200
    assert time[2:] == (0, 0)
