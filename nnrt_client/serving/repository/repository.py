"""Repository: the models of a folder, each with the versions that are served."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nnrt_client.model_session.pool import Pool
from nnrt_client.serving.errors import NotReady, UnknownModel
from nnrt_client.serving.repository.model_settings import ModelSettings
from nnrt_client.serving.repository.served_version import ServedVersion


class State(Enum):
    """State of a version, in the protocol's words."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Entry:
    """Line of the index: a version, its state, and why it is not ready."""

    model: str
    version: str
    state: State
    reason: str = ""


class Repository:
    """Models of a folder, loaded on the devices of a pool. Only the server's loop uses it."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        """Create it; `start` loads the models."""
        self._folder = folder
        self._pool = pool
        self._models: dict[str, dict[str, ServedVersion]] = {}

    @property
    def models(self) -> Mapping[str, Mapping[str, ServedVersion]]:
        """Versions that take requests, by model."""
        return self._models

    @property
    def is_ready(self) -> bool:
        """Whether every model that should be served is."""
        return all(self._models.values())

    async def start(self) -> None:
        """Load the models."""
        for path in sorted(self._folder.glob("*/*/model.onnx")):
            session = await asyncio.to_thread(self._pool.load, path)
            name, version = path.parent.parent.name, path.parent.name
            self._models.setdefault(name, {})[version] = ServedVersion(name, version, session, ModelSettings())

    def choose(self, model: str, version: str) -> ServedVersion:
        """Return the version that a request goes to.

        Raises:
            UnknownModel: There is no such model or version.
            NotReady: It can't be used now.
        """
        versions = self._models.get(model)
        if versions is None:
            raise UnknownModel(f"there is no model {model!r}; there are {list(self._models)}")
        if not versions:
            raise NotReady("no version of it is ready", place=f"model {model!r}")
        if not version:
            return versions[max(versions, key=int)]
        try:
            return versions[version]
        except KeyError:
            raise UnknownModel(
                f"there is no version {version!r}; there are {list(versions)}", place=f"model {model!r}"
            ) from None

    def versions(self, model: str) -> Sequence[str]:
        """Return the versions of a model that take requests, in order. Raises UnknownModel."""
        return [one.version for one in self.find_all(model)]

    def find_all(self, model: str = "", version: str = "") -> Sequence[ServedVersion]:
        """Return a version, or all versions of a model, or all of all models. Raises UnknownModel."""
        if version:
            return [self.choose(model, version)]
        if model:
            self.choose(model, "")
        chosen = [self._models[model]] if model else list(self._models.values())
        return [one for versions in chosen for _, one in sorted(versions.items(), key=lambda item: int(item[0]))]

    def index(self) -> Sequence[Entry]:
        """Return the state of every version."""
        return [Entry(model, version, State.READY) for model, versions in self._models.items() for version in versions]

    async def load(self, model: str) -> None:
        """Load a model, or its changes, and return when it is ready. Raises UnknownModel, or why it failed."""
        raise NotReady("it can't be loaded", place=f"model {model!r}")

    async def unload(self, model: str) -> None:
        """Drain and free a model, and serve it no more until it is loaded again. Raises UnknownModel."""
        raise NotReady("it can't be unloaded", place=f"model {model!r}")

    async def close(self) -> None:
        """Drain and free all models."""
        for versions in self._models.values():
            for version in versions.values():
                await version.drained()
                await asyncio.to_thread(version.close)
