"""Server: the repository of models, and the faces by which clients reach it."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nnrt_client.model_session.pool import Pool
from nnrt_client.serving.access_log import AccessLog
from nnrt_client.serving.calls import Calls
from nnrt_client.serving.grpc.server import GrpcServer
from nnrt_client.serving.guard import Guard
from nnrt_client.serving.inference import Inference
from nnrt_client.serving.intake import Intake
from nnrt_client.serving.repository.folder import Folder
from nnrt_client.serving.repository.loader import Loader
from nnrt_client.serving.repository.mirror import Mirror, is_remote
from nnrt_client.serving.repository.repository import Repository
from nnrt_client.serving.server_settings import NOWHERE, ServerSettings
from nnrt_client.serving.server_state import ServerState
from nnrt_client.serving.shared_memory import SharedMemory
from nnrt_client.session.io_loop import io_loop
from nnrt_client.settings import TRACE_VARIABLE, Settings, addresses_from_environment
from nnrt_hdi.access.access_file import AccessFile
from nnrt_hdi.access.audit import AuditLog
from nnrt_hdi.access.certificates import watch_certificates
from nnrt_hdi.errors import InvalidParameter

if TYPE_CHECKING:
    from nnrt_client.serving.request_spans import RequestSpans
    from nnrt_client.serving.rest.server import RestServer

_log = logging.getLogger(__name__)


class Server:
    """Server of models. It lives in the loop of the process, so that a request needs no other thread on its way."""

    def __init__(self, settings: ServerSettings, client: Settings) -> None:
        """Create it. `client` has the settings for its daemons. Raises InvalidFile for a certificate."""
        self._settings = settings
        self._client = client
        self._tls = watch_certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._events = io_loop().events
        self._stopping = asyncio.Event()

    def run(
        self,
        on_ready: Callable[[Sequence[str]], object],
        on_progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        """Serve until `stop` is called.

        Args:
            on_ready: Called with the addresses when every model was tried, in another thread.
            on_progress: Called in the loop with the number of models that were tried, and that of all.

        Raises:
            NnrtError: The server can't start.
        """
        asyncio.run_coroutine_threadsafe(self._serve(on_ready, on_progress), self._events).result()

    def stop(self) -> None:
        """End `run` once the requests under way have ended. Any thread may call it."""
        self._events.call_soon_threadsafe(self._stopping.set)

    async def _serve(
        self, on_ready: Callable[[Sequence[str]], object], on_progress: Callable[[int, int], object]
    ) -> None:
        settings = self._settings
        async with AsyncExitStack() as stack:
            calls = self._calls(stack)
            # In other threads, because the loop must not wait for itself.
            pool = await asyncio.to_thread(Pool, settings.devices or None, settings=self._client)
            stack.push_async_callback(asyncio.to_thread, pool.close)
            repository = await self._repository(pool)
            memory = SharedMemory(is_offered=settings.shared_memory)
            intake = Intake(settings.request_bytes, settings.held_bytes)
            state = ServerState(
                repository,
                Inference(repository.route, passes_identities=settings.pass_identities),
                memory,
                intake,
                calls,
            )
            faces = self._faces(state, pool)
            stack.push_async_callback(repository.close)
            servers = (*faces, *self._metrics(state, pool))
            stack.push_async_callback(_stop, servers, settings.drain_s)
            for one in servers:
                await one.start()
            starting = asyncio.create_task(repository.start(on_progress))
            stopping = asyncio.create_task(self._stopping.wait())
            for task in (starting, stopping):
                stack.callback(task.cancel)
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                await asyncio.to_thread(on_ready, [face.address for face in faces])
            await stopping

    async def _repository(self, pool: Pool) -> Repository:
        settings = self._settings
        mirror = await asyncio.to_thread(Mirror, settings.models) if is_remote(settings.models) else None
        return Repository(
            Folder(
                mirror.folder if mirror else Path(settings.models), settings.devices or addresses_from_environment()
            ),
            Loader(pool, self._client),
            mirror=mirror,
            control=settings.control,
            look_s=settings.look_s,
            quiet_s=settings.quiet_s,
        )

    def _calls(self, stack: AsyncExitStack) -> Calls:
        """Return what lets calls in; what it needs is closed with the stack."""
        settings = self._settings
        access = AccessFile(Path(settings.access)) if settings.access else None
        guard = Guard(access, AuditLog(settings.audit_log), settings.most_waiting_per_identity)
        stack.callback(guard.close)
        stack.callback(asyncio.create_task(guard.watch()).cancel)
        log = spans = None
        if settings.access_log:
            log = AccessLog(settings.access_log)
            stack.push_async_callback(log.close)
        if self._client.trace:
            spans = _request_spans()
            stack.push_async_callback(asyncio.to_thread, spans.close)
        return Calls(guard, log, spans)

    def _faces(self, state: ServerState, pool: Pool) -> "Sequence[GrpcServer | RestServer]":
        """Return the faces of the addresses that are given. Raises InvalidParameter if one can't listen."""
        settings = self._settings
        for place, address in (("--http", settings.http), ("--grpc", settings.grpc)):
            if address != NOWHERE:
                settings.require_guarded(place, address)
        faces: list[GrpcServer | RestServer] = []
        if settings.http != NOWHERE:
            faces.append(self._http(state, pool))
        if settings.grpc != NOWHERE:
            faces.append(GrpcServer(state, settings.grpc, settings.request_bytes, self._tls))
        return faces

    def _http(self, state: ServerState, pool: Pool) -> "RestServer":
        settings = self._settings
        with _needed_for("--http"):
            from nnrt_client.serving.rest.application import Application
            from nnrt_client.serving.rest.metrics import Metrics
            from nnrt_client.serving.rest.server import RestServer
        application = Application(state, Metrics(state, pool, settings.tls_cert).respond, settings.read_s)
        return RestServer(application.asgi(), settings.http, "--http", settings.read_s, self._tls)

    def _metrics(self, state: ServerState, pool: Pool) -> "Sequence[RestServer]":
        """Return the server of metrics, if it has an address. Raises InvalidParameter if it can't listen."""
        settings = self._settings
        if settings.metrics == NOWHERE:
            return ()
        with _needed_for("--metrics"):
            from nnrt_client.serving.rest.metrics import Metrics
            from nnrt_client.serving.rest.server import RestServer
        application = Metrics(state, pool, settings.tls_cert).asgi()
        server = RestServer(application, settings.metrics, "--metrics", settings.read_s, self._tls)
        _log.info("metrics are at %s/metrics", server.address)
        return (server,)


async def _stop(faces: "Sequence[GrpcServer | RestServer]", drain_s: float) -> None:
    """Stop all at once, so that clients of one don't get new requests through while another ends those under way."""
    await asyncio.gather(*(face.stop(drain_s) for face in faces))


def _request_spans() -> "RequestSpans":
    with _needed_for(TRACE_VARIABLE):
        from nnrt_client.serving.request_spans import RequestSpans
    return RequestSpans(TRACE_VARIABLE)


@contextmanager
def _needed_for(place: str) -> Iterator[None]:
    """Raise InvalidParameter if a package is missing for an option."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"it needs {error.name}; pip install 'nnrt[serving,tracing]'", place=place) from error
