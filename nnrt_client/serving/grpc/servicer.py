"""Calls of the protocol's gRPC service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import grpc

from nnrt_client.serving import descriptions
from nnrt_client.serving.call import Call
from nnrt_client.serving.errors import RETRY_AFTER_S, Denied, UnknownCaller, grpc_status
from nnrt_client.serving.grpc.messages import bytes_of, field_head, request_of
from nnrt_client.serving.server_state import ServerState
from nnrt_client.serving.wire import open_inference_pb2 as pb
from nnrt_hdi.access.callers import host_of
from nnrt_hdi.errors import NnrtError, OutOfMemory, UnavailableDevice, Unsupported

# Requests of a stream that are computed at a time.
_STREAM_REQUESTS = 16
_PUSHBACK = ("grpc-retry-pushback-ms", str(RETRY_AFTER_S * 1000))
# Most bytes of an error's message: it is a header of HTTP/2, and clients refuse long ones.
_MOST_MESSAGE_BYTES = 2000
# Field of a response of a stream that has a ModelInferResponse.
_RESPONSE = pb.ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER

Method = Callable[[Any, Any, Any], Awaitable[Any]]


def _made(method: Method) -> Method:
    """Return the method, which gets the request and its call, for gRPC: with the context, and statuses for errors."""

    @wraps(method)
    async def respond(self: Any, request: Any, context: Any) -> Any:
        call = _call_of(context, method.__name__)
        if method.__name__.startswith("Model") and not isinstance(request, bytes):
            call.model, call.version = request.name, request.version
        try:
            return await self._state.calls.make(call, lambda: method(self, request, call))
        except NnrtError as error:
            if isinstance(error, OutOfMemory | UnavailableDevice):
                context.set_trailing_metadata((_PUSHBACK,))
            message = str(error).encode(errors="replace")[:_MOST_MESSAGE_BYTES].decode(errors="ignore")
            await context.abort(grpc.StatusCode[grpc_status(error)], message)

    return respond


def _call_of(context: Any, name: str) -> Call:
    peer = context.peer()

    def certificate() -> str:
        names = context.auth_context().get("x509_common_name") or (b"",)
        return str(names[0].decode(errors="replace"))

    metadata = dict(context.invocation_metadata())
    return Call("grpc", name, peer, host_of(peer), metadata, certificate, context.time_remaining())


class Servicer:
    """Calls of `inference.GRPCInferenceService`, with the protocol's names."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        # Tasks that read the requests of streams.
        self._readers: set[asyncio.Task[None]] = set()

    def end_streams(self) -> None:
        """Read no more requests of streams, which end when those that were read are answered."""
        for reader in self._readers:
            reader.cancel()

    @_made
    async def ServerLive(self, request: Any, call: Call) -> Any:
        """Answer that the server lives."""
        return pb.ServerLiveResponse(live=True)

    @_made
    async def ServerReady(self, request: Any, call: Call) -> Any:
        """Answer whether every model that should be served is."""
        return pb.ServerReadyResponse(ready=self._state.repository.is_ready)

    @_made
    async def ModelReady(self, request: Any, call: Call) -> Any:
        """Answer whether a request for the model would be computed now."""
        return pb.ModelReadyResponse(ready=self._state.is_model_ready(request.name, request.version))

    @_made
    async def ServerMetadata(self, request: Any, call: Call) -> Any:
        """Answer with the server's name, version and extensions."""
        return pb.ServerMetadataResponse(**descriptions.server(self._state))

    @_made
    async def ModelMetadata(self, request: Any, call: Call) -> Any:
        """Answer with the inputs and outputs of a model."""
        version = self._state.repository.choose(request.name, request.version)
        told = descriptions.metadata(version, self._state.repository.versions(version.model))
        return pb.ModelMetadataResponse(**told)

    @_made
    async def ModelConfig(self, request: Any, call: Call) -> Any:
        """Answer with what of Triton's configuration of a model has a meaning here."""
        return pb.ModelConfigResponse(
            config=descriptions.config(self._state.repository.choose(request.name, request.version))
        )

    @_made
    async def ModelStatistics(self, request: Any, call: Call) -> Any:
        """Answer with the counters of one version, of all of a model, or of all models."""
        versions = self._state.repository.find_all(request.name, request.version)
        return pb.ModelStatisticsResponse(model_stats=[descriptions.statistics(version) for version in versions])

    @_made
    async def RepositoryIndex(self, request: Any, call: Call) -> Any:
        """Answer with the state of every version of every model."""
        told = descriptions.index(self._state.repository.index(), only_ready=request.ready)
        return pb.RepositoryIndexResponse(models=told)

    @_made
    async def RepositoryModelLoad(self, request: Any, call: Call) -> Any:
        """Load a model, or what has changed of it."""
        call.model = request.model_name
        if request.parameters:
            raise Unsupported(
                f"the parameters {sorted(request.parameters)} are given; a model's settings are in its folder"
            )
        await self._state.repository.load(request.model_name)
        return pb.RepositoryModelLoadResponse()

    @_made
    async def RepositoryModelUnload(self, request: Any, call: Call) -> Any:
        """Serve a model no more."""
        call.model = request.model_name
        await self._state.repository.unload(request.model_name)
        return pb.RepositoryModelUnloadResponse()

    @_made
    async def SystemSharedMemoryStatus(self, request: Any, call: Call) -> Any:
        """Answer with the regions that are registered."""
        regions = self._state.memory.regions(request.name)
        told: Any = {name: descriptions.region(one) for name, one in regions.items()}
        return pb.SystemSharedMemoryStatusResponse(regions=told)

    @_made
    async def SystemSharedMemoryRegister(self, request: Any, call: Call) -> Any:
        """Register a region of shared memory."""
        self._state.memory.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    @_made
    async def SystemSharedMemoryUnregister(self, request: Any, call: Call) -> Any:
        """Forget a region, or all."""
        self._state.memory.unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    @_made
    async def ModelInfer(self, request: bytes, call: Call) -> bytes:
        """Compute a request; both are bytes, which gRPC needs not decode."""
        return await self._infer(request, call)

    async def ModelStreamInfer(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Compute the requests of a stream, several at a time, and answer in their order."""
        free = asyncio.Semaphore(_STREAM_REQUESTS)
        tasks: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()

        async def read() -> None:
            try:
                async for request in requests:
                    await free.acquire()
                    tasks.put_nowait(asyncio.create_task(self._streamed(request, context)))
            finally:
                tasks.put_nowait(None)

        reader = asyncio.create_task(read())
        self._readers.add(reader)
        try:
            while (task := await tasks.get()) is not None:
                yield await task
                free.release()
        except (UnknownCaller, Denied) as error:
            await context.abort(grpc.StatusCode[error.grpc_status], str(error))
        finally:
            self._readers.discard(reader)
            reader.cancel()
            while not tasks.empty():
                if (left := tasks.get_nowait()) is not None:
                    left.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    async def _streamed(self, request: bytes, context: Any) -> bytes:
        call = _call_of(context, "ModelStreamInfer")
        try:
            response = await self._state.calls.make(call, lambda: self._infer(request, call))
        except (UnknownCaller, Denied):
            raise
        except NnrtError as error:
            return pb.ModelStreamInferResponse(error_message=str(error)).SerializeToString()
        return b"".join((field_head(_RESPONSE, len(response)), response))

    async def _infer(self, request: bytes, call: Call) -> bytes:
        state = self._state
        call.in_bytes = len(request)
        with state.intake.request() as held:
            asked = request_of(request, state.memory, held, call.timeout_s)
            response = bytes_of(await state.inference.infer(asked, call))
        call.out_bytes = len(response)
        return response
