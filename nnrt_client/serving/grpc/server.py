"""gRPC server of the protocol."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from nnrt_client.serving.grpc.reflection import SERVICE, offer_reflection
from nnrt_client.serving.grpc.servicer import Servicer
from nnrt_client.serving.server_state import ServerState
from nnrt_client.serving.wire import open_inference_pb2 as pb
from nnrt_hdi.access.certificates import Certificates
from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.errors import InvalidParameter

# Call of a method of the servicer: its request and context to its response.
Call = Callable[[Any, Any], Awaitable[Any]]

# Calls at a time. gRPC refuses more with RESOURCE_EXHAUSTED.
_MOST_CALLS = 4096
# Bytes of a request, but for those of an inference, whose bytes are counted.
_MOST_BYTES = 1 << 20
# Calls that get and return bytes.
_RAW = ("ModelInfer", "ModelStreamInfer")


def _as_it_is(data: bytes) -> bytes:
    return data


def _decoded(method: Call, kind: Any) -> Call:
    """Return the method of a call that gets messages of a kind, for bytes."""

    async def call(request: bytes, context: Any) -> Any:
        if len(request) > _MOST_BYTES:
            told = f"the request has {len(request)} bytes; use at most {_MOST_BYTES}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, told)
        try:
            message = kind.FromString(request)
        except DecodeError as error:
            told = f"the request is no {kind.DESCRIPTOR.name}: {error}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, told)
        return await method(message, context)

    return call


def _handlers(servicer: Servicer) -> Any:
    """Return the handlers of the service, under the protocol's name, by the methods that its description lists."""
    methods = {}
    for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
        call = getattr(servicer, method.name)
        write: Callable[[Any], bytes] = _as_it_is
        if method.name not in _RAW:
            call = _decoded(call, getattr(pb, method.input_type.name))
            write = getattr(pb, method.output_type.name).SerializeToString
        make = grpc.stream_stream_rpc_method_handler if method.client_streaming else grpc.unary_unary_rpc_method_handler
        methods[method.name] = make(call, _as_it_is, write)
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def _credentials(tls: WatchedFiles[Certificates]) -> Any:
    """Return gRPC's credentials, which take the files' content anew when it changes."""

    def configuration() -> Any:
        now = tls.content()
        return grpc.ssl_server_certificate_configuration([(now.key, now.certificate)], now.client_ca)

    return grpc.dynamic_ssl_server_credentials(configuration(), configuration, tls.content().client_ca is not None)


class _Health(health.HealthServicer):  # type: ignore[misc]  # It has no types.
    """Health of a server, for clients that ask or watch. At its end they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: set[asyncio.Task[None]] = set()

    async def Watch(self, request: Any, context: Any) -> None:
        """Tell the health now, and whenever it changes."""
        watch = asyncio.create_task(super().Watch(request, context))
        self._watches.add(watch)
        try:
            await watch
        except asyncio.CancelledError:
            if watch in self._watches:  # The client has gone away.
                raise
        finally:
            self._watches.discard(watch)

    def end_watches(self) -> None:
        """Let go those who watch."""
        while self._watches:
            self._watches.pop().cancel()


class GrpcServer:
    """gRPC server at an address."""

    def __init__(
        self, state: ServerState, address: str, most_bytes: int, tls: WatchedFiles[Certificates] | None = None
    ) -> None:
        """Listen. Messages have at most `most_bytes`. Raises InvalidParameter if it can't listen."""
        options = [
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_MOST_CALLS)
        self._servicer = Servicer(state)
        self._server.add_generic_rpc_handlers((_handlers(self._servicer),))
        self._health = _Health()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        offer_reflection(self._server)
        host = address.rpartition(":")[0]
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, _credentials(tls))
        except RuntimeError as error:
            raise InvalidParameter("can't listen there", place=f"--grpc {address!r}") from error
        # Address that clients use.
        self.address = f"{'grpc' if tls is None else 'grpcs'}://{host}:{port}"

    async def start(self) -> None:
        """Take calls."""
        for service in ("", SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and wait at most `grace_s` for those under way."""
        await self._health.enter_graceful_shutdown()
        stopping = asyncio.create_task(self._server.stop(grace_s))
        await asyncio.sleep(0)  # From here on nothing is begun.
        self._health.end_watches()
        self._servicer.end_streams()
        await stopping
