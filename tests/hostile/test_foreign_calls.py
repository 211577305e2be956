"""Calls that ask for more time, or more places, than there are."""

import queue
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc
from model_draft import Draft
from raw_client import DEADLINE_S, INPUT, METHODS, SUM, VALUES, RawClient, attacked_daemon, io_tensor
from waiting import until

from nnrt_device_service.transport.grpc.admission import FOREIGN_CALLS
from nnrt_device_service.transport.grpc.requests import CONTROL_BYTES
from nnrt_hdi import wire
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2

REQUEST_ID = bytes(range(16))


@pytest.mark.slow
def test_runs_without_a_deadline() -> None:
    """gRPC's own default. One waits for the other."""
    with attacked_daemon() as daemon, RawClient(daemon.address) as client:
        model_id = client.prepare_sum()
        run = client.channel.unary_unary(
            METHODS["PreparedModel.Run"].path,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=prepared_model_pb2.RunReply.FromString,
        )
        request = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[io_tensor(np.array(INPUT, np.float32))])
        for call in [run.future(request, metadata=client.metadata) for _ in range(20)]:
            assert wire.io_array(call.result(DEADLINE_S).outputs[0]).tolist() == list(SUM)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1e9, 1e300])
def test_a_deadline_in_the_far_future(seconds: float) -> None:
    with attacked_daemon() as daemon, RawClient(daemon.address) as client:
        model_id = client.prepare_sum()
        request = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[io_tensor(np.array(INPUT, np.float32))])
        run = client.channel.unary_unary(METHODS["PreparedModel.Run"].path)
        hours = f"{min(seconds / 3600, 99_999_999):.0f}H"
        calls = [
            run.future(request.SerializeToString(), metadata=(*client.metadata, ("grpc-timeout", hours)))
            for _ in range(4)
        ]
        for call in calls:
            assert prepared_model_pb2.RunReply.FromString(call.result(DEADLINE_S)).outputs


@pytest.mark.slow
def test_other_services_have_so_many_places() -> None:
    """Calls that are never ended give way to later ones, and nobody is kept out."""
    silent: queue.SimpleQueue[Any] = queue.SimpleQueue()
    flags = ("--max-sessions", "2", "--session-streams", "2", "--session-calls", "1")
    with attacked_daemon(*flags) as daemon, grpc.insecure_channel(daemon.address) as channel:
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        streams = [reflection.ServerReflectionInfo(iter(silent.get, None)) for _ in range(3 * FOREIGN_CALLS)]
        watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(3 * FOREIGN_CALLS)]
        checks = [
            channel.stream_unary("/grpc.health.v1.Health/Check").future(iter(silent.get, None))
            for _ in range(3 * FOREIGN_CALLS)
        ]
        for calls in (streams, checks):
            until(lambda calls=calls: sum(call.done() for call in calls) == 2 * FOREIGN_CALLS)  # type: ignore[misc]
        watches.append(health.Watch(health_pb2.HealthCheckRequest()))
        assert next(watches[-1]) == serving
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S) == serving
        with RawClient(daemon.address) as client:
            assert client.prepare_sum()
        for call in (*streams, *watches, *checks):
            call.cancel()
            silent.put(None)


@pytest.mark.slow
def test_a_health_check_without_a_request() -> None:
    with attacked_daemon() as daemon, grpc.insecure_channel(daemon.address) as channel:
        with pytest.raises(grpc.RpcError, match="ended without a request") as refusal:
            channel.stream_unary("/grpc.health.v1.Health/Check")(iter(()), timeout=DEADLINE_S)
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("/grpc.health.v1.Health/Check", "unary_unary"),
        ("/grpc.health.v1.Health/Watch", "unary_stream"),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "stream_stream"),
    ],
)
def test_other_services_are_asked_in_few_bytes(path: str, call: str) -> None:
    """They are asked by name, and names are short: more is not even parsed."""
    with attacked_daemon() as daemon, grpc.insecure_channel(daemon.address) as channel:
        request: Any = bytes(CONTROL_BYTES + 1)
        method = getattr(channel, call)(path)
        with pytest.raises(grpc.RpcError, match=rf"the request has {CONTROL_BYTES + 1} bytes; use at most") as refusal:
            answer = method(iter([request]) if call.startswith("stream") else request, timeout=DEADLINE_S)
            next(iter(answer))
        assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


# ---- what a client has given up


@pytest.mark.slow
def test_a_compilation_that_was_given_up() -> None:
    """Before it has begun, and after it has ended."""
    with attacked_daemon("--session-models", "1") as daemon, RawClient(daemon.address) as client:
        draft = Draft.sum_of_input_and(VALUES).message
        release = prepared_model_pb2.ReleaseRequest(request_id=REQUEST_ID)
        request = device_pb2.PrepareModelRequest(model=draft, request_id=REQUEST_ID)
        client.ask("NnrtDevice.PrepareModel", request)
        client.ask("PreparedModel.Release", release)
        client.ask("NnrtDevice.PrepareModel", request)  # It comes too late, and goes at once.
        assert client.prepare(draft).prepared.model_id  # There is room for it.


@pytest.mark.slow
def test_exported_buffers_go_with_their_model() -> None:
    with attacked_daemon() as daemon, RawClient(daemon.address) as client:
        model_id = client.prepare_sum()
        export = prepared_model_pb2.ExportModelCacheRequest(model_id=model_id)
        regions = [buffer.region for buffer in client.ask("PreparedModel.ExportModelCache", export).buffers]
        assert all(client.read(region) for region in regions)
        client.ask("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id))
        for region in regions:
            with pytest.raises(Exception, match="no buffer"):
                client.read(region)
