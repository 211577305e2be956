"""Raw contents of a message are views of its bytes, and a message that is cut or wrong is refused."""

import random

import pytest

from nnrt_client.serving.errors import TooLarge
from nnrt_client.serving.grpc.raw_contents import split
from nnrt_client.serving.requests import MOST_TEXT_BYTES
from nnrt_client.serving.wire import open_inference_pb2 as pb
from nnrt_hdi.errors import InvalidParameter

LARGE = bytes(1 << 16)


def message(*contents: bytes) -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name="m", id="7", raw_input_contents=contents)
    made.inputs.add(name="x", datatype="FP32", shape=[1 << 14])
    made.parameters["timeout"].double_param = 2.5
    return made


@pytest.mark.parametrize("contents", [(LARGE,), (b"", LARGE, b"abc"), (LARGE, LARGE)])
def test_contents_are_views_and_the_rest_is_the_message_without_them(contents: tuple[bytes, ...]) -> None:
    rest, found = split(message(*contents).SerializeToString())
    assert [bytes(one) for one in found] == list(contents)
    assert pb.ModelInferRequest.FromString(rest) == message()


def test_a_small_message_stays_as_it_is() -> None:
    data = message(b"abc").SerializeToString()
    assert split(data) == (data, [])


def test_a_message_that_is_cut_is_refused() -> None:
    data = message(LARGE).SerializeToString()
    for end in range(1 << 16, len(data)):
        with pytest.raises(InvalidParameter, match="no ModelInferRequest"):
            split(data[:end])


def test_bytes_that_are_no_message_are_refused_or_left_to_protobuf() -> None:
    rng = random.Random(0)  # noqa: S311
    for _ in range(200):
        try:
            split(rng.randbytes(1 << 16))
        except InvalidParameter as error:
            assert "no ModelInferRequest" in str(error)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x2a\x00" * (1 << 20), "more than 16384 fields"),
        (b"\x78\x00" * (1 << 20), "more than 16384 fields"),
        (pb.ModelInferRequest(id="7" * (MOST_TEXT_BYTES + 1)).SerializeToString(), "besides raw contents"),
    ],
)
def test_a_message_that_would_take_much_more_memory_than_it_has_bytes_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(TooLarge, match=said):
        split(data)
