"""Exit with 0 if the server at the address NNRT_HEALTH says that it serves. The image's health check."""

import os
import sys

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

try:
    with grpc.insecure_channel(os.environ["NNRT_HEALTH"]) as channel:
        status = HealthStub(channel).Check(HealthCheckRequest(), timeout=3).status
except grpc.RpcError as error:
    sys.exit(f"{os.environ['NNRT_HEALTH']}: {error.details()}")
if status != HealthCheckResponse.SERVING:
    sys.exit(HealthCheckResponse.ServingStatus.Name(status))
