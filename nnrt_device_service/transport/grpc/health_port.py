"""Port that only answers health checks, for supervisors that can't use TLS."""

import logging

import grpc
from grpc_health.v1 import health, health_pb2

from nnrt_device_service.transport.grpc.admission import FOREIGN_CALLS
from nnrt_device_service.transport.grpc.call_threads import CallThreads
from nnrt_hdi.errors import InvalidParameter

_log = logging.getLogger(__name__)

_CONNECTIONS = 256
# A request has only the name of a service.
_MESSAGE_BYTES = 4096
_HANDSHAKE_S, _IDLE_S = 5.0, 30.0


class HealthPort:
    """Server of the health service's method Check, without TLS, at an address of its own.

    It has no Watch, as each call would keep a thread busy for an unknown client.
    """

    def __init__(self, address: str, servicer: health.HealthServicer, calls: CallThreads) -> None:
        """Start to serve the answers of `servicer`; raise InvalidParameter if the address can't be bound."""
        self._server = grpc.server(
            calls,
            maximum_concurrent_rpcs=FOREIGN_CALLS,
            options=[
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
                ("grpc.server_handshake_timeout_ms", int(_HANDSHAKE_S * 1000)),
                ("grpc.max_connection_idle_ms", int(_IDLE_S * 1000)),
                ("grpc.max_allowed_incoming_connections", _CONNECTIONS),
            ],
        )
        check = grpc.unary_unary_rpc_method_handler(
            servicer.Check,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(health.SERVICE_NAME, {"Check": check})
        self._server.add_generic_rpc_handlers([service])
        try:
            port = self._server.add_insecure_port(address)
        except (RuntimeError, ValueError) as error:
            raise InvalidParameter(f"can't listen there: {error}", place=f"--health-listen {address!r}") from error
        self._server.start()
        _log.info("health service on %s:%d", address.rpartition(":")[0], port)

    def stop(self) -> None:
        """Close the port and end its calls now."""
        self._server.stop(None)
