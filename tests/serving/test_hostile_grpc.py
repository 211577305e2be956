"""Calls over gRPC that are wrong or too large, and clients that stay."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nnrt_client.serving.wire import open_inference_pb2 as pb
from serving.conftest import StartServer
from serving.served import ServerProcess

SERVICE = "/inference.GRPCInferenceService/"
_DEADLINE_S = 30.0


def refused(server: ServerProcess, call: str, request: bytes) -> grpc.RpcError:
    """Make a call that must fail, and return its error."""
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options) as channel, pytest.raises(grpc.RpcError) as refusal:
        channel.unary_unary(SERVICE + call)(request, timeout=_DEADLINE_S)
    return refusal.value


@pytest.mark.parametrize("letter", ["m", "é"])
def test_long_messages_of_errors_are_cut(shared_server: ServerProcess, letter: str) -> None:
    request = pb.ModelMetadataRequest(name=letter * 100_000)
    error: Any = refused(shared_server, "ModelMetadata", request.SerializeToString())
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details().startswith(f"there is no model '{letter}{letter}")


def test_calls_that_are_too_large(shared_server: ServerProcess) -> None:
    many: Any = refused(shared_server, "ModelInfer", b"\x2a\x00" * (1 << 20))
    long: Any = refused(shared_server, "ModelReady", pb.ModelReadyRequest(name="m" * (1 << 20)).SerializeToString())
    assert (many.code(), long.code()) == (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INVALID_ARGUMENT)
    assert "more than 16384 fields" in many.details()
    assert "use at most 1048576" in long.details()


def test_clients_that_stay_do_not_hold_up_the_end(start_server: StartServer, models: Path) -> None:
    """An open stream and a watch of the health end with the server."""
    server, ended = start_server(models), threading.Event()

    def requests() -> Iterator[bytes]:
        yield b""
        ended.wait(_DEADLINE_S)

    with grpc.insecure_channel(server.grpc) as channel:
        answers: Any = channel.stream_stream(SERVICE + "ModelStreamInfer")(requests(), timeout=_DEADLINE_S)
        assert "there is no model ''" in pb.ModelStreamInferResponse.FromString(next(answers)).error_message
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=_DEADLINE_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < _DEADLINE_S / 2
        assert list(answers) == []
        ended.set()
