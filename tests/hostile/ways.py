"""Frames of runs, built and read without the client's code, and the connections that carry them to a daemon."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytest
from daemon_process import DaemonProcess
from local_side import Side, side_of
from raw_client import Conversation, RawClient, attacked_daemon

from nnrt_hdi import wire
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import NUMPY_DTYPES, Array
from nnrt_hdi.v2.prepared_model_pb2 import RunDescription, RunOutcome, RunPacket, TensorDescription
from nnrt_hdi.wire.packet import REPLY_MARK, REQUEST_MARK, FrameLayout, frames_of, padded, reply_head, request_head

INLINE, REGION, CHUNKS, NOWHERE = range(4)
_numbers = count(1)
# Ids above those that tests choose, and so different that no changed byte turns one into another.
RUN_IDS = (number * 0x9E3779B97F4A7C15 % (1 << 63) for number in count(100_000))


class Tensor(NamedTuple):
    """Tensor in a run description."""

    dims: Sequence[int]
    place: int = INLINE
    data_type: DataType = DataType.FLOAT32
    is_open: bool = False

    @property
    def inline_bytes(self) -> int | None:
        if self.place != INLINE or self.is_open:
            return None
        return int(np.prod(self.dims)) * NUMPY_DTYPES[self.data_type].itemsize

    def message(self) -> TensorDescription:
        place: Any = self.place  # Tests also use invalid numbers.
        data_type = wire.number(self.data_type)
        return TensorDescription(data_type=data_type, dimensions=self.dims, place=place, is_open=self.is_open)


class Kind:
    """Runs that share one description."""

    def __init__(
        self, model_id: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor], number: int = 0, **fields: Any
    ) -> None:
        """Build the description; without a number it gets a unique one."""
        self.number = number or next(_numbers)
        self.description = RunDescription(
            model_id=model_id,
            inputs=[tensor.message() for tensor in inputs],
            outputs=[tensor.message() for tensor in outputs],
            **fields,
        )
        places = [tensor.place for tensor in (*inputs, *outputs)]
        self.layout = FrameLayout(
            [tensor.inline_bytes for tensor in inputs],
            [tensor.inline_bytes for tensor in outputs],
            places.count(REGION),
        )

    def frame(
        self,
        *tensors: Array,
        run_id: int | None = None,
        regions: Sequence[int] = (),
        is_described: bool = True,
        number: int | None = None,
        timeout_ms: int = 0,
    ) -> bytes:
        """Return the frame of a run; without `run_id` it gets a unique one."""
        described = self.description.SerializeToString() if is_described else b""
        number = self.number if number is None else number
        run_id = next(RUN_IDS) if run_id is None else run_id
        return self.layout.request(number, run_id, timeout_ms, regions, tensors, described)

    def bare(self, *tensors: Array, run_id: int | None = None, regions: Sequence[int] = (), **fields: int) -> bytes:
        """Return the frame of a run without its description."""
        return self.frame(*tensors, run_id=run_id, regions=regions, is_described=False, **fields)


def describe_runs(
    model_id: int,
    dims: Sequence[int],
    places: tuple[int, int] = (INLINE, INLINE),
    output_dims: Sequence[int] | None = None,
    number: int = 0,
    is_open: bool = False,
    **fields: Any,
) -> Kind:
    """Describe runs with one input and one output, of the same shape unless `output_dims` is given."""
    output = Tensor(dims if output_dims is None else output_dims, places[1], is_open=is_open)
    return Kind(model_id, [Tensor(dims, places[0])], [output], number, **fields)


def raw_frame(run_id: int, body: bytes = b"", number: int = 0, described: bytes = b"", timeout_ms: int = 0) -> bytes:
    """Return a frame of a description and a body that need not match."""
    size = request_head.size + padded(len(described)) + padded(len(body))
    head = request_head.pack(REQUEST_MARK, size, run_id, timeout_ms, number, len(described))
    return b"".join((head, described, bytes(-len(described) % 8), body, bytes(-len(body) % 8)))


class Answer(NamedTuple):
    """Parsed frame of a reply."""

    run_id: int
    times: Sequence[int]
    outcome: RunOutcome
    rest: bytes

    @property
    def error(self) -> NnrtError | None:
        """Error of the run, or None."""
        return wire.error_from_detail(self.outcome.error) if self.outcome.HasField("error") else None

    @property
    def refusal(self) -> NnrtError:
        """Error of the run; fails the test if the reply contains anything else."""
        error = self.error
        assert error is not None, self
        assert [field.name for field, _ in self.outcome.ListFields()] == ["error"] and not self.rest
        return error

    @property
    def floats(self) -> Array:
        """The only inline output as FLOAT32 numbers, including padding.

        Fails the test if the reply deviates from the run's description.
        """
        assert not self.outcome.ByteSize(), self.outcome
        return np.frombuffer(self.rest, np.float32)

    def first(self, size: int) -> list[float]:
        """Return the first `size` numbers of `floats`."""
        return [float(each) for each in self.floats[:size]]

    def inline_outputs(self) -> list[Array]:
        """Return the inline outputs that the outcome describes."""
        arrays, at = [], 0
        for output in self.outcome.outputs:
            if output.place == INLINE:
                dtype = NUMPY_DTYPES[DataType(output.data_type)]
                size = int(np.prod(output.dimensions)) * dtype.itemsize
                arrays.append(np.frombuffer(self.rest[at : at + size], dtype).reshape(output.dimensions))
                at += padded(size)
        return arrays


def answers_of(packet: bytes) -> list[Answer]:
    """Parse the frames of replies in a packet."""
    answers = []
    for begin, end in frames_of(REPLY_MARK, packet):
        _, _, run_id, *times, size = reply_head.unpack_from(packet, begin)
        at = begin + reply_head.size
        outcome = RunOutcome.FromString(packet[at : at + size])
        answers.append(Answer(run_id, times, outcome, packet[at + padded(size) : end]))
    return answers


class Way(Protocol):
    """Connection that carries runs."""

    def send(self, *frames: bytes) -> None:
        """Send frames in one packet."""

    def receive(self) -> list[Answer]:
        """Return the frames of the next packet of replies.

        Raises the error that ended the connection, or StopIteration if it ended normally.
        """


class OnLocalSocket:
    def __init__(self, side: Side) -> None:
        self.side = side

    def send(self, *frames: bytes) -> None:
        self.side.send(b"".join(frames))

    def receive(self) -> list[Answer]:
        packet = self.side.receive_packet()
        if packet[:1] == b"\0":
            return answers_of(packet)
        assert self.side.reply_of(packet) is None
        raise StopIteration


class OnStream:
    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    def send(self, *frames: bytes) -> None:
        self.conversation.send(RunPacket(frames=b"".join(frames)))

    def receive(self) -> list[Answer]:
        return answers_of(self.conversation.receive().frames)


def ask_all(way: Way, *frames: bytes) -> list[Answer]:
    """Send frames in one packet, and return their replies, sorted by run id."""
    way.send(*frames)
    answers: list[Answer] = []
    while len(answers) < len(frames):
        answers += way.receive()
    return sorted(answers, key=lambda answer: answer.run_id)


def ask(way: Way, frame: bytes) -> Answer:
    """Send a frame, and return its reply."""
    (answer,) = ask_all(way, frame)
    assert answer.run_id == request_head.unpack_from(frame)[2]
    return answer


WAYS = ("local socket", "stream")


# ---- fixtures for the tests that import them


@pytest.fixture(scope="module", params=["reference", "starting"])
def daemon(request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """Daemon whose runs have a thread each, then one whose backend starts runs asynchronously."""
    with attacked_daemon("--backend", request.param) as daemon:
        yield daemon


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, client: RawClient) -> Iterator[Way]:
    with way_of(client, request.param) as way:
        yield way


@contextmanager
def way_of(client: RawClient, kind: str) -> Iterator[Way]:
    if kind == "local socket":
        with side_of(client) as side:
            yield OnLocalSocket(side)
    else:
        conversation = client.converse("PreparedModel.RunStream")
        try:
            yield OnStream(conversation)
        finally:
            conversation.cancel()
