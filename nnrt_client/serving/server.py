"""Server: the repository of models, and the faces by which clients reach it."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from nnrt_client.model_session.pool import Pool
from nnrt_client.serving.grpc.server import GrpcServer
from nnrt_client.serving.inference import Inference
from nnrt_client.serving.repository.repository import Repository
from nnrt_client.serving.server_state import ServerState
from nnrt_client.serving.shared_memory import SharedMemory
from nnrt_client.settings import Settings


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server; the options of `nnrt serve` describe them."""

    models: Path
    devices: tuple[str, ...]
    http: str
    grpc: str
    shared_memory: bool = False
    most_bytes: int = 1 << 30
    drain_s: float = 30.0


async def serve(
    settings: ServerSettings, client: Settings, stop: asyncio.Event, ready: "asyncio.Future[list[str]]"
) -> None:
    """Serve until `stop` is set. `ready` gets the addresses when requests are taken.

    Raises:
        NnrtError: The server can't start.
    """
    async with AsyncExitStack() as stack:
        pool = stack.enter_context(Pool(settings.devices or None, settings=client))
        repository = Repository(settings.models, pool)
        state = ServerState(repository, Inference(repository.choose), SharedMemory(is_offered=settings.shared_memory))
        grpc_server = GrpcServer(state, settings.grpc, settings.most_bytes)
        await repository.start()
        await grpc_server.start()
        ready.set_result([grpc_server.address])
        await stop.wait()
        await grpc_server.stop(settings.drain_s)
        await repository.close()
