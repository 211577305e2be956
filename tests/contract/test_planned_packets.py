"""Planned packets: what is packed is what is read, by the layout that protos/README.md has."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from nnrt_hdi.wire.plans import PlanLayout

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.v2.local_socket_pb2 import LocalReply, LocalRequest
from nnrt_hdi.v2.prepared_model_pb2 import RunReply, RunRequest
from nnrt_hdi.wire import plans

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
# Bytes of a tensor; None for one in a region.
TENSORS = st.lists(st.one_of(st.none(), st.binary(min_size=1, max_size=300)), max_size=5)


def sizes(tensors: list[bytes | None]) -> list[int | None]:
    return [None if data is None else len(data) for data in tensors]


def inline(tensors: list[bytes | None]) -> list[bytes]:
    return [data for data in tensors if data is not None]


def found(packet: bytes, offsets: list[int | None], tensors: list[bytes | None]) -> list[bytes | None]:
    pairs = zip(offsets, tensors, strict=True)
    return [None if at is None or data is None else packet[at : at + len(data)] for at, data in pairs]


@given(TENSORS, TENSORS, U32, U64, U32, st.data())
def test_a_request_is_read_as_it_was_packed(
    inputs: list[bytes | None],
    outputs: list[bytes | None],
    plan: int,
    run_id: int,
    timeout_ms: int,
    data: st.DataObject,
) -> None:
    layout = PlanLayout(sizes(inputs), sizes(outputs))
    count = 3 * [*inputs, *outputs].count(None)
    regions = data.draw(st.lists(U64, min_size=count, max_size=count))
    packet = layout.pack_request(plans.REQUEST_MARK, plan, run_id, timeout_ms, *regions, *inline(inputs))
    assert len(packet) == layout.request_bytes
    assert packet[0] == 0
    assert plans.request_head.unpack_from(packet) == (plans.REQUEST_MARK, plan, run_id, timeout_ms)
    assert list(layout.read_regions(packet[layout.regions])) == regions
    assert found(packet, layout.input_offsets, inputs) == inputs
    assert all(at is None or at % 8 == 0 for at in layout.input_offsets)


@given(TENSORS, U64, st.lists(U64, min_size=6, max_size=6))
def test_a_reply_is_read_as_it_was_packed(outputs: list[bytes | None], run_id: int, times: list[int]) -> None:
    layout = PlanLayout([], sizes(outputs))
    packet = layout.pack_reply(plans.REPLY_MARK, run_id, *times, *inline(outputs))
    assert len(packet) == layout.reply_bytes
    assert packet[0] == 0
    assert layout.reply_head(packet) == (plans.REPLY_MARK, run_id, *times)
    assert found(packet, layout.output_offsets, outputs) == outputs


def test_the_layout_is_the_published_one() -> None:
    layout = PlanLayout([4, None, 3], [2, None, 1])
    packet = layout.pack_request(plans.REQUEST_MARK, 7, 8, 9, 1 << 63, 64, 16, 10, 128, 32, b"abcd", b"efg")
    assert packet == (
        b"\0\1\0\0" + b"\7\0\0\0" + b"\x08\0\0\0\0\0\0\0" + b"\x09\0\0\0" + bytes(4)
        # Input 1, then output 1.
        + b"\0\0\0\0\0\0\0\x80" + b"\x40\0\0\0\0\0\0\0" + b"\x10\0\0\0\0\0\0\0"
        + b"\x0a\0\0\0\0\0\0\0" + b"\x80\0\0\0\0\0\0\0" + b"\x20\0\0\0\0\0\0\0"
        + b"abcd" + bytes(4) + b"efg"
    )  # fmt: skip
    packet = layout.pack_reply(plans.REPLY_MARK, 8, 1, 2, 3, 4, 5, 6, b"hi", b"j")
    numbers = b"".join(number.to_bytes(8, "little") for number in (8, 1, 2, 3, 4, 5, 6))
    assert packet == b"\0\2\0\0" + bytes(4) + numbers + b"hi" + bytes(6) + b"j"


def test_tensors_are_views_of_the_packet() -> None:
    x = np.arange(6, dtype=np.float64)
    layout = PlanLayout([3, x.nbytes], [])
    packet = layout.pack_request(plans.REQUEST_MARK, 1, 1, 0, b"abc", x.tobytes())
    view = np.ndarray((6,), np.float64, packet, layout.input_offsets[1] or 0)
    np.testing.assert_array_equal(view, x)
    assert view.flags.aligned
    assert not view.flags.writeable


@pytest.mark.parametrize("kind", [LocalRequest, LocalReply, RunRequest, RunReply])
def test_no_message_of_protobuf_begins_like_one(kind: type[LocalRequest]) -> None:
    layout = PlanLayout([8], [8])
    for packet in (layout.pack_request(plans.REQUEST_MARK, 1, 1, 0, bytes(8)), b"\0", bytes(64)):
        with pytest.raises(DecodeError):
            kind.FromString(packet)


@pytest.mark.parametrize("sizes", [[0], [4, 0], [LOCAL_PACKET_BYTES], [40_000, None, 40_000]])
def test_what_has_no_place_in_a_packet_has_no_layout(sizes: list[int | None]) -> None:
    with pytest.raises(InvalidParameter, match="planned packet"):
        PlanLayout(sizes, [])
    with pytest.raises(InvalidParameter, match="planned packet"):
        PlanLayout([], sizes)


@given(st.sampled_from([1, 40, 63, 64, 127, 128, 16_000, 40_000]))
def test_over_grpc_it_is_a_field(size: int) -> None:
    layout = PlanLayout([size], [size])
    request = layout.pack_request(plans.REQUEST_MARK, 1, 2, 3, b"x" * size)
    message = plans.request_prefix(layout) + request
    assert RunRequest.FromString(message) == RunRequest(planned=request)
    assert plans.planned_request(message) == request
    reply = layout.pack_reply(plans.REPLY_MARK, 1, 2, 3, 4, 5, 6, 7, b"y" * size)
    message = plans.reply_prefix(layout) + reply
    assert RunReply.FromString(message) == RunReply(planned=reply)
    assert plans.planned_reply(message) == reply


@given(st.binary(max_size=200))
def test_of_other_messages_nothing_is_taken_for_a_planned_packet(data: bytes) -> None:
    for read, tag in ((plans.planned_request, 106), (plans.planned_reply, 82)):
        for message in (data, bytes((tag,)) + data, bytes((tag, len(data) & 0x7F)) + data):
            packet = read(message)
            if packet is not None:
                kind = RunRequest if tag == 106 else RunReply
                assert kind.FromString(message) == kind(planned=packet)
