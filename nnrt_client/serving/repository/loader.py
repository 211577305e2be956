"""Loader: puts versions of models on devices, a few at a time."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nnrt_client.model_session.loading import LoadOptions
from nnrt_client.model_session.pool import Pool, PooledSession
from nnrt_client.serving.errors import NotReady
from nnrt_client.serving.repository.folder import FoundVersion, print_version
from nnrt_client.serving.repository.model_settings import ModelSettings
from nnrt_client.serving.repository.warm_up import warm_up
from nnrt_client.settings import Settings
from nnrt_hdi.errors import InvalidPath, NnrtError

# Versions that are loaded at a time.
_LOADS = 4


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a version: its file and options. A version whose source is still equal needs no other load."""

    found: FoundVersion
    # The model's file; None if `error` says why there is none.
    file: Path | None
    options: LoadOptions
    devices: tuple[str, ...]
    error: NnrtError | None = field(compare=False, default=None)

    @classmethod
    def of(cls, found: FoundVersion, settings: ModelSettings) -> "Source":
        """Return the source of a version with these settings."""
        file, error = None, None
        try:
            file = found.file(settings.file)
        except NnrtError as wrong:
            error = wrong
        return cls(found, file, settings.options, settings.devices, error)


class Loader:
    """Loads versions of models on the server's devices. Only the server's loop uses it."""

    def __init__(self, pool: Pool, settings: Settings | None = None) -> None:
        """Take the pool of all devices; `settings` are for pools of some of them, which the loader makes itself."""
        self._pools: dict[tuple[str, ...], Pool] = {(): pool}
        self._settings = settings
        self._loads = asyncio.Semaphore(_LOADS)
        self._making = asyncio.Lock()

    async def load(self, source: Source, settings: ModelSettings) -> PooledSession:
        """Load a version, and warm it up.

        Raises:
            NotReady: Its files changed meanwhile.
            NnrtError: It can't be loaded, or a warm-up run fails.
        """
        async with self._loads:
            pool = await self._pool(source.devices)
            return await asyncio.to_thread(_load, pool, source, settings)

    async def close(self) -> None:
        """Close the pools that the loader made."""
        for devices, pool in self._pools.items():
            if devices:
                await asyncio.to_thread(pool.close)

    async def _pool(self, devices: tuple[str, ...]) -> Pool:
        async with self._making:
            if devices not in self._pools:
                self._pools[devices] = await asyncio.to_thread(Pool, devices, settings=self._settings)
            return self._pools[devices]


def _load(pool: Pool, source: Source, settings: ModelSettings) -> PooledSession:
    """Load a version. Runs in a thread of its own, because it waits."""
    found = source.found
    assert source.file is not None
    make_runs = partial(warm_up, runs=settings.warm_up)
    with ExitStack() as stack:
        session = pool.load(source.file, replicas=settings.first_replicas, warm_up=make_runs, **source.options)
        stack.callback(session.close)
        try:
            is_same = print_version(found.folder) == found.prints
        except OSError as error:
            raise InvalidPath(f"it can't be read: {error.strerror}") from error
        if not is_same:
            raise NotReady("its files changed while it was loaded")
        stack.pop_all()
    return session
