"""Server: the repository of models, and the faces by which clients reach it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nnrt_client.model_session.pool import Pool
from nnrt_client.serving.grpc.server import GrpcServer
from nnrt_client.serving.inference import Inference
from nnrt_client.serving.intake import Intake
from nnrt_client.serving.repository.folder import Folder
from nnrt_client.serving.repository.loader import Loader
from nnrt_client.serving.repository.mirror import Mirror, is_remote
from nnrt_client.serving.repository.repository import Control, Repository
from nnrt_client.serving.server_state import ServerState
from nnrt_client.serving.shared_memory import SharedMemory
from nnrt_client.session.io_loop import io_loop
from nnrt_client.settings import Settings, addresses_from_environment
from nnrt_hdi.errors import InvalidParameter

if TYPE_CHECKING:
    from nnrt_client.serving.rest.server import RestServer

# Stands for an address of a face that is left out.
NOWHERE = "none"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server; the options of `nnrt serve` describe them."""

    models: str
    devices: tuple[str, ...]
    http: str
    grpc: str
    shared_memory: bool = False
    request_bytes: int = 1 << 30
    held_bytes: int = 4 << 30
    read_s: float = 60.0
    control: Control = Control.WATCH
    look_s: float = 5.0
    quiet_s: float = 1.0
    drain_s: float = 30.0


class Server:
    """Server of models. It lives in the loop of the process, so that a request needs no other thread on its way."""

    def __init__(self, settings: ServerSettings, client: Settings) -> None:
        """Create it. `client` has the settings for its daemons."""
        self._settings = settings
        self._client = client
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
        # In other threads, because the loop must not wait for itself.
        pool = await asyncio.to_thread(Pool, settings.devices or None, settings=self._client)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(asyncio.to_thread, pool.close)
            repository = await self._repository(pool)
            memory = SharedMemory(is_offered=settings.shared_memory)
            intake = Intake(settings.request_bytes, settings.held_bytes)
            state = ServerState(repository, Inference(repository.route), memory, intake)
            faces = self._faces(state)
            stack.push_async_callback(repository.close)
            stack.push_async_callback(_stop, faces, settings.drain_s)
            for face in faces:
                await face.start()
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

    def _faces(self, state: ServerState) -> "Sequence[GrpcServer | RestServer]":
        """Return the servers of the addresses that are given. Raises InvalidParameter if one can't listen."""
        settings = self._settings
        faces: list[GrpcServer | RestServer] = []
        if settings.http != NOWHERE:
            faces.append(_rest(state, settings))
        if settings.grpc != NOWHERE:
            faces.append(GrpcServer(state, settings.grpc, settings.request_bytes))
        return faces


async def _stop(faces: "Sequence[GrpcServer | RestServer]", drain_s: float) -> None:
    """Stop all at once, so that clients of one don't get new requests through while another ends those under way."""
    await asyncio.gather(*(face.stop(drain_s) for face in faces))


def _rest(state: ServerState, settings: ServerSettings) -> "RestServer":
    try:
        from nnrt_client.serving.rest.server import RestServer
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"it needs {error.name}; pip install 'nnrt[serving]'", place="--http") from error
    return RestServer(state, settings.http, settings.read_s)
