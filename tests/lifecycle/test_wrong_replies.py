"""A daemon whose replies are not what the model says: the application gets an error, and nothing else."""

from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pytest
from daemon_process import DaemonProcess
from networks import identity_model
from relay import Relay
from tensor_runs import compiled

from nnrt_client import Executor, InvalidParameter, NnrtError, OperationFailed, Settings
from nnrt_hdi import wire
from nnrt_hdi.enums import DataType
from nnrt_hdi.v2 import device_pb2
from nnrt_hdi.v2.prepared_model_pb2 import (
    TENSOR_PLACE_CHUNKS,
    TENSOR_PLACE_NOWHERE,
    TENSOR_PLACE_REGION,
    RunOutcome,
    RunPacket,
)
from nnrt_hdi.wire.packet import padded, reply_head

DEADLINE_S = 20.0
OVER_GRPC = Settings(share_memory=False)
SMALL, LARGE = 4, 60_000
# Changes what a reply says of its only output; gives the bytes that the frame is to have of it.
Forge = Callable[["RunOutcome", bytes], bytes]


def forged(forge: Forge) -> Callable[[bytes], bytes]:
    """Replies to runs that say of their only output what isn't so."""

    def change(data: bytes) -> bytes:
        message = RunPacket.FromString(data)
        if not message.frames:
            return data
        mark, _, run_id, *times, size = reply_head.unpack_from(message.frames)
        inline = message.frames[reply_head.size + padded(size) :]
        outcome = RunOutcome.FromString(message.frames[reply_head.size : reply_head.size + size])
        if not size:
            outcome.outputs.add(data_type=wire.number(DataType.FLOAT32), dimensions=[len(inline) // 4])
        inline = forge(outcome, inline)
        told = outcome.SerializeToString()
        head = reply_head.pack(
            mark, reply_head.size + padded(len(told)) + padded(len(inline)), run_id, *times, len(told)
        )
        frame = b"".join((head, told, bytes(-len(told) % 8), inline, bytes(-len(inline) % 8)))
        return RunPacket(frames=frame).SerializeToString()

    return change


def other_type(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].data_type = wire.number(DataType.INT32)
    return inline


def other_rank(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].dimensions.append(1)
    return inline


def other_size(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].dimensions[0] //= 2
    return inline[: len(inline) // 2]


def negative(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].dimensions[0] *= -1
    return inline


def fewer_bytes(outcome: "RunOutcome", inline: bytes) -> bytes:
    return inline[: len(inline) // 2]


def in_a_region(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].place = TENSOR_PLACE_REGION
    return b""


def nowhere(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].place = TENSOR_PLACE_NOWHERE
    return b""


def in_no_place(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].place = 99  # type: ignore[assignment]
    return b""


def announced(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].dimensions[:] = [1 << 20, 1 << 18]
    outcome.outputs[0].place = TENSOR_PLACE_CHUNKS
    return b""


def much_announced(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs[0].dimensions[:] = [1 << 29]
    outcome.outputs[0].place = TENSOR_PLACE_CHUNKS
    return b""


def two_outputs(outcome: "RunOutcome", inline: bytes) -> bytes:
    outcome.outputs.append(outcome.outputs[0])
    return inline + inline


def refused(executor: Executor, elements: int) -> NnrtError:
    error = executor.submit([np.ones(elements, np.float32)]).exception(DEADLINE_S)
    assert isinstance(error, NnrtError)
    return error


@pytest.mark.parametrize("elements", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "forge",
    [other_type, other_rank, other_size, negative, fewer_bytes, in_a_region, nowhere, in_no_place, announced],
)
def test_an_output_that_is_not_the_models(shared_daemon: DaemonProcess, forge: Forge, elements: int) -> None:
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        _, executor = compiled(closing, relay.address, identity_model(elements=elements), OVER_GRPC)
        relay.forgers["RunStream"] = forged(forge)
        error = refused(executor, elements)
        assert isinstance(error, OperationFailed) and "output 0" in str(error), error
        relay.forgers.clear()
        executor.run_sync([np.ones(elements, np.float32)])


def test_more_than_any_tensor_has(shared_daemon: DaemonProcess) -> None:
    """Of an output whose shape isn't known before: what never comes is not waited for."""
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        _, executor = compiled(closing, relay.address, identity_model(), OVER_GRPC)
        relay.forgers["RunStream"] = forged(much_announced)
        error = refused(executor, SMALL)
        assert isinstance(error, InvalidParameter) and "the daemon's limit of a tensor" in str(error), error


def test_another_number_of_outputs(shared_daemon: DaemonProcess) -> None:
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        _, executor = compiled(closing, relay.address, identity_model(), OVER_GRPC)
        relay.forgers["RunStream"] = forged(two_outputs)
        assert isinstance(refused(executor, SMALL), OperationFailed)
        relay.forgers.clear()
        executor.run_sync([np.ones(SMALL, np.float32)])


def test_too_few_answers_about_operators(shared_daemon: DaemonProcess) -> None:
    def fewer(data: bytes) -> bytes:
        reply = device_pb2.GetSupportedOperationReply.FromString(data)
        return device_pb2.GetSupportedOperationReply(nodes=reply.nodes[1:]).SerializeToString()

    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        device, _ = compiled(closing, relay.address, identity_model(), OVER_GRPC)
        relay.forgers["GetSupportedOperation"] = fewer
        with pytest.raises(OperationFailed, match="0 answers about 1 node"):
            identity_model().supported_operations(device)
