"""Calls of the protocol over HTTP."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from nnrt_client.serving import descriptions
from nnrt_client.serving.call import Call
from nnrt_client.serving.errors import RETRY_AFTER_S, NotReady, http_status
from nnrt_client.serving.rest.bodies import BodyOfParts, OneLength, read_body
from nnrt_client.serving.rest.documents import field, parse, text_of
from nnrt_client.serving.rest.messages import parts_of, request_of
from nnrt_client.serving.server_state import ServerState
from nnrt_hdi.access.callers import host_at
from nnrt_hdi.errors import InvalidParameter, NnrtError, Unsupported

# Header with the number of bytes of the JSON, of a body that has the bytes of tensors behind it.
_JSON_BYTES = "inference-header-content-length"
_NUMBER = re.compile("[0-9]{1,18}")
_RETRY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
# nginx' status for a client that went away, which nobody reads.
_GONE = 499

ResultT = TypeVar("ResultT")
Endpoint = Callable[[Request], Awaitable[Response]]


class Application:
    """Calls of the protocol, for a server of ASGI."""

    def __init__(self, state: ServerState, metrics: Endpoint, read_s: float) -> None:
        """Create it. `metrics` tells metrics; a body must begin to come within `read_s` seconds."""
        self._state = state
        self._metrics = metrics
        self._read_s = read_s

    def asgi(self) -> Starlette:
        """Return the application that a server runs."""
        model = "/v2/models/{model}"
        region = "/v2/systemsharedmemory/region/{region}"
        unregister = "SystemSharedMemoryUnregister"
        routes = [
            self._route("/metrics", "Metrics", self._metrics),
            self._route("/v2", "ServerMetadata", self._metadata),
            self._route("/v2/health/live", "ServerLive", self._live),
            self._route("/v2/health/ready", "ServerReady", self._ready),
            self._route("/v2/models/stats", "ModelStatistics", self._statistics),
            *(
                self._route(f"{of}{path}", call, endpoint, method)
                for of in (model, model + "/versions/{version}")
                for path, call, endpoint, method in (
                    ("", "ModelMetadata", self._model_metadata, "GET"),
                    ("/ready", "ModelReady", self._model_ready, "GET"),
                    ("/config", "ModelConfig", self._model_config, "GET"),
                    ("/stats", "ModelStatistics", self._statistics, "GET"),
                    ("/infer", "ModelInfer", self._infer, "POST"),
                )
            ),
            self._route("/v2/repository/index", "RepositoryIndex", self._index, "POST"),
            self._route("/v2/repository/models/{model}/load", "RepositoryModelLoad", self._load, "POST"),
            self._route("/v2/repository/models/{model}/unload", "RepositoryModelUnload", self._unload, "POST"),
            self._route("/v2/systemsharedmemory/status", "SystemSharedMemoryStatus", self._regions),
            self._route(region + "/status", "SystemSharedMemoryStatus", self._regions),
            self._route(region + "/register", "SystemSharedMemoryRegister", self._register, "POST"),
            self._route(region + "/unregister", unregister, self._unregister, "POST"),
            self._route("/v2/systemsharedmemory/unregister", unregister, self._unregister, "POST"),
        ]
        handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
            NnrtError: _told_error,
            HTTPException: _told_http_error,
            ClientDisconnect: _told_nobody,
            Exception: _told_fault,
        }
        return Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(OneLength)])

    def _route(self, path: str, name: str, endpoint: Endpoint, method: str = "GET") -> Route:
        """Return the route of a call, whose name is that in gRPC."""

        async def respond(request: Request) -> Response:
            call = _call_of(request, name)
            return await self._state.calls.make(call, lambda: _response_to(call, endpoint(request)))

        return Route(path, respond, methods=[method])

    async def _live(self, request: Request) -> Response:
        return _document({"live": True})

    async def _ready(self, request: Request) -> Response:
        if not self._state.repository.is_ready:
            raise NotReady("not every model is ready")
        return _document({"ready": True})

    async def _metadata(self, request: Request) -> Response:
        return _document(descriptions.server(self._state))

    async def _model_metadata(self, request: Request) -> Response:
        version = self._state.repository.choose(*_named(request))
        return _document(descriptions.metadata(version, self._state.repository.versions(version.model)))

    async def _model_ready(self, request: Request) -> Response:
        model, version = _named(request)
        self._state.require_ready(model, version)
        return _document({"name": model, "ready": True})

    async def _model_config(self, request: Request) -> Response:
        return _document(descriptions.config(self._state.repository.choose(*_named(request))))

    async def _statistics(self, request: Request) -> Response:
        versions = self._state.repository.find_all(*_named(request))
        return _document({"model_stats": [descriptions.statistics(version) for version in versions]})

    async def _index(self, request: Request) -> Response:
        only_ready = (await self._read(request)).get("ready") or False
        if not isinstance(only_ready, bool):
            raise InvalidParameter(f"the field 'ready' is {type(only_ready).__name__}; use true or false")
        return _document(descriptions.index(self._state.repository.index(), only_ready=only_ready))

    async def _load(self, request: Request) -> Response:
        if parameters := field(await self._read(request), "parameters", dict, "request", {}):
            raise Unsupported(f"the parameters {sorted(parameters)} are given; a model's settings are in its folder")
        await self._state.repository.load(_named(request)[0])
        return Response()

    async def _unload(self, request: Request) -> Response:
        await self._read(request)
        await self._state.repository.unload(_named(request)[0])
        return Response()

    async def _regions(self, request: Request) -> Response:
        regions = self._state.memory.regions(request.path_params.get("region", ""))
        return _document([descriptions.region(one) for one in regions.values()])

    async def _register(self, request: Request) -> Response:
        given, region = await self._read(request), request.path_params["region"]
        place = f"shared memory {region!r}"
        key, size, offset = field(given, "key", str, place), given.get("byte_size"), given.get("offset") or 0
        if type(size) is not int or type(offset) is not int:
            raise InvalidParameter("the fields 'byte_size' and 'offset' are not both whole numbers", place=place)
        self._state.memory.register(region, key, offset, size)
        return Response()

    async def _unregister(self, request: Request) -> Response:
        await self._read(request)
        self._state.memory.unregister(request.path_params.get("region", ""))
        return Response()

    async def _infer(self, request: Request) -> Response:
        state = self._state
        with state.intake.request() as held:
            body = await read_body(request, held, self._read_s)
            given = request_of(*_named(request), body, _json_bytes(request), state.memory, held)
            response = await _while_connected(request, state.inference.infer(given, request.state.call))
        head, parts = await parts_of(response)
        headers = {_JSON_BYTES: str(len(head))} if parts else {}
        told = BodyOfParts([head, *parts], headers, "application/octet-stream" if parts else "application/json")
        await told.compress(request.headers.get("accept-encoding", ""))
        return told

    async def _read(self, request: Request) -> dict[str, Any]:
        """Return the document in the body of a request."""
        with self._state.intake.request() as held:
            return parse(memoryview(await read_body(request, held, self._read_s)))


def _call_of(request: Request, name: str) -> Call:
    """Return the call that a request makes; its endpoint finds it in the request's state."""
    host, port = request.client or ("", 0)
    model, version = _named(request)
    call = Call(
        "http",
        name,
        f"{host}:{port}",
        host_at(host),
        request.headers,
        partial(getattr, request.state, "certificate", ""),
        model=model,
        version=version,
        in_bytes=int(request.headers.get("content-length", 0)),
    )
    request.state.call = call
    return call


async def _response_to(call: Call, work: Awaitable[Response]) -> Response:
    """Return the response to a call, and note in the call what is told of it."""
    try:
        response = await work
    except HTTPException as error:
        call.status = HTTPStatus(error.status_code).name
        raise
    except ClientDisconnect:
        call.status = "CANCELLED"
        raise
    call.out_bytes = int(response.headers.get("content-length", 0))
    return response


async def _while_connected(request: Request, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Return the result of the work, which is cancelled if the client goes away. Raises ClientDisconnect then."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_gone(request))
    gone.add_done_callback(lambda _: task.cancel())
    try:
        return await task
    except asyncio.CancelledError:
        if gone.done():
            raise ClientDisconnect from None
        raise
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    """Wait until the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _named(request: Request) -> tuple[str, str]:
    """Return the name of the model and the version in a path, empty if they are missing."""
    return request.path_params.get("model", ""), request.path_params.get("version", "")


def _json_bytes(request: Request) -> int | None:
    given = request.headers.getlist(_JSON_BYTES)
    if not given:
        return None
    if len(given) > 1 or not _NUMBER.fullmatch(given[0]):
        raise InvalidParameter(f"the header {_JSON_BYTES} is {', '.join(given)!r}; use a number of bytes")
    return int(given[0])


def _document(document: Any, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return Response(text_of(document), status, headers, "application/json")


def _error(message: str, status: int) -> Response:
    headers = {"retry-after": str(RETRY_AFTER_S)} if status in _RETRY else {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return _document({"error": message}, status, headers)


async def _told_error(request: Request, error: NnrtError) -> Response:
    return _error(str(error), http_status(error))


async def _told_http_error(request: Request, error: HTTPException) -> Response:
    told = _error(error.detail, error.status_code)
    told.headers.update(error.headers or {})
    return told


async def _told_nobody(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=_GONE)


async def _told_fault(request: Request, error: Exception) -> Response:
    return _error("the server has a fault; its log says more", HTTPStatus.INTERNAL_SERVER_ERROR)
