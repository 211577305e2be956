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
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2

DEADLINE_S = 20.0
OVER_GRPC = Settings(share_memory=False)
SMALL, LARGE = 4, 60_000
Forge = Callable[["prepared_model_pb2.RunReply"], None]


def forged(forge: Forge) -> Callable[[bytes], bytes]:
    """Replies to runs that something has been done to."""

    def change(data: bytes) -> bytes:
        reply = prepared_model_pb2.RunReply.FromString(data)
        forge(reply)
        return reply.SerializeToString()

    return change


def other_type(reply: "prepared_model_pb2.RunReply") -> None:
    reply.outputs[0].data_type = 34  # type: ignore[assignment]  # INT32


def other_rank(reply: "prepared_model_pb2.RunReply") -> None:
    reply.outputs[0].dimensions.append(1)


def other_size(reply: "prepared_model_pb2.RunReply") -> None:
    reply.outputs[0].dimensions[0] //= 2
    reply.outputs[0].data.inline = reply.outputs[0].data.inline[: len(reply.outputs[0].data.inline) // 2]


def in_a_region(reply: "prepared_model_pb2.RunReply") -> None:
    reply.outputs[0].data.region.buffer_id = 1


def announced(reply: "prepared_model_pb2.RunReply") -> None:
    reply.outputs[0].dimensions[:] = [1 << 20, 1 << 18]
    reply.outputs[0].data.chunked = 1 << 40


def much_announced(reply: "prepared_model_pb2.RunReply") -> None:
    reply.outputs[0].dimensions[:] = [1 << 29]
    reply.outputs[0].data.chunked = 1 << 31


def refused(executor: Executor, elements: int) -> NnrtError:
    error = executor.submit([np.ones(elements, np.float32)]).exception(DEADLINE_S)
    assert isinstance(error, NnrtError)
    return error


@pytest.mark.parametrize("elements", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("forge", [other_type, other_rank, other_size, in_a_region, announced])
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


def test_too_few_answers_about_operators(shared_daemon: DaemonProcess) -> None:
    def fewer(data: bytes) -> bytes:
        reply = device_pb2.GetSupportedOperationReply.FromString(data)
        return device_pb2.GetSupportedOperationReply(nodes=reply.nodes[1:]).SerializeToString()

    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        device, _ = compiled(closing, relay.address, identity_model(), OVER_GRPC)
        relay.forgers["GetSupportedOperation"] = fewer
        with pytest.raises(OperationFailed, match="0 answers about 1 node"):
            identity_model().supported_operations(device)
