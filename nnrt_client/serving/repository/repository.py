"""Repository: the models of a folder, each with the versions that are served."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

from nnrt_client.serving.errors import UnknownModel
from nnrt_client.serving.repository.alarm import Alarm
from nnrt_client.serving.repository.control import Control
from nnrt_client.serving.repository.folder import Folder, FoundModel
from nnrt_client.serving.repository.loader import Loader
from nnrt_client.serving.repository.mirror import Mirror
from nnrt_client.serving.repository.served_model import ServedModel
from nnrt_client.serving.repository.served_version import ServedVersion
from nnrt_client.serving.repository.version import Entry
from nnrt_client.serving.repository.watching import watch
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

# Seconds between two looks at the numbers of requests.
_SCALE_S = 0.25


class Repository:
    """Models of a folder, loaded on devices. Only the server's loop uses it.

    One task compares what is in the folder with what is served, and begins what brings the latter to the former.
    """

    def __init__(
        self,
        folder: Folder,
        loader: Loader,
        *,
        mirror: Mirror | None = None,
        control: Control = Control.WATCH,
        look_s: float = 5.0,
        quiet_s: float = 1.0,
    ) -> None:
        """Create it; `start` loads the models.

        Args:
            folder: The folder.
            loader: Loads models.
            mirror: Keeps the folder like a place elsewhere.
            control: Whether the folder or calls decide what is loaded.
            look_s: Seconds after which the folder is looked at although the host told of no change.
            quiet_s: Seconds for which files must be unchanged before they are loaded.
        """
        self._folder = folder
        self._loader = loader
        self._mirror = mirror
        self._control = control
        self._look_s = look_s
        self._quiet_s = quiet_s
        self._models: dict[str, ServedModel] = {}
        # What the models are brought to. With explicit control, it is what was there at the call.
        self._found: dict[str, FoundModel] = {}
        # Models that a call has loaded (Control.EXPLICIT) or unloaded (Control.WATCH).
        self._named: set[str] = set()
        self._looking = asyncio.Lock()
        self._alarm = Alarm()
        self._has_started = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def models(self) -> Mapping[str, Mapping[str, ServedVersion]]:
        """Versions that take requests, by model."""
        return {name: model.ready for name, model in self._models.items()}

    @property
    def is_ready(self) -> bool:
        """True if every model that should be served has a ready version on a living device."""
        return self._has_started and all(
            model.is_ready for name, model in self._models.items() if name in self._found and self._is_loaded(name)
        )

    async def start(self, on_progress: Callable[[int, int], object] = lambda done, total: None) -> None:
        """Load the models, and return when each was tried.

        Args:
            on_progress: Called with the number of models that were tried, and that of all.

        Raises:
            NnrtError: The folder can't be read.
        """
        await self._look(hurries=True)
        self._tasks = [asyncio.create_task(one) for one in (self._follow(), self._scale())]
        if self._mirror is None and self._control is Control.WATCH:
            self._tasks.append(asyncio.create_task(watch(self._folder.root, self._alarm.set)))
        models = list(self._models.values())
        for done, tried in enumerate(asyncio.as_completed([model.tried() for model in models])):
            on_progress(done, len(models))
            await tried
        on_progress(len(models), len(models))
        self._has_started = True

    # ---- for requests

    def route(self, model: str, version: str) -> ServedVersion:
        """Return the version that a request goes to.

        Raises:
            UnknownModel: There is no such model or version.
            NotReady: It can't be used now.
        """
        return self._model(model).route(version)

    def choose(self, model: str, version: str) -> ServedVersion:
        """Return the version that is described to a client: the newest that has no share of a canary, or the named one.

        Raises:
            UnknownModel: There is no such model or version.
            NotReady: It can't be used now.
        """
        return self._model(model).find(version)

    def versions(self, model: str) -> Sequence[str]:
        """Return the versions of a model that take requests, in order. Raises UnknownModel."""
        return list(self._model(model).ready)

    def find_all(self, model: str = "", version: str = "") -> Sequence[ServedVersion]:
        """Return a version, or all versions of a model, or all of all models. Raises UnknownModel and NotReady."""
        if version:
            return [self.choose(model, version)]
        chosen = [self._model(model)] if model else list(self._models.values())
        return [version for one in chosen for version in one.ready.values()]

    def index(self) -> Sequence[Entry]:
        """Return the state of every version."""
        return [entry for _, model in sorted(self._models.items()) for entry in model.index]

    # ---- for operators

    async def load(self, model: str) -> None:
        """Load a model, or its changes, and return when it is ready. Raises UnknownModel, or why it can't be loaded."""
        found = await self._scan()
        if model not in found:
            raise UnknownModel(f"there is no model {model!r}; there are {sorted(found)}")
        self._found[model] = found[model]
        self._named = self._named | {model} if self._control is Control.EXPLICIT else self._named - {model}
        served = self._served(model)
        served.forget_failures()
        self._update(model, hurries=True)
        await served.tried()
        served.require_loaded()

    async def unload(self, model: str) -> None:
        """Drain and free a model, and serve it no more until it is loaded again. Raises UnknownModel."""
        served = self._model(model)
        self._named = self._named - {model} if self._control is Control.EXPLICIT else self._named | {model}
        self._update(model)
        await served.settled()

    async def close(self) -> None:
        """Drain and free all models."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._alarm.close()
        models, self._found = list(self._models.values()), {}
        for model in models:
            model.abandon()
            model.update(None)
        for model in models:
            await model.settled()
        await self._loader.close()

    # ---- the task

    async def _follow(self) -> None:
        told = ""
        while True:
            await self._alarm.wait(self._look_s)
            try:
                await self._look()
                told = ""
            except NnrtError as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning("what is served stays as it is: %s", told)
            except Exception:
                _log.exception("looking at %s failed", self._folder.root)

    async def _look(self, *, hurries: bool = False) -> None:
        """Compare the folder with what is served once."""
        self._found, former = dict(await self._scan()), self._found
        if self._control is Control.EXPLICIT:
            self._found |= {name: former[name] for name in self._named & former.keys()}
        for name in sorted(self._models.keys() | self._found.keys()):
            self._served(name)
            self._update(name, hurries=hurries)

    async def _scan(self) -> Mapping[str, FoundModel]:
        async with self._looking:
            if self._mirror is not None:
                await asyncio.to_thread(self._mirror.update)
            return await asyncio.to_thread(self._folder.scan)

    async def _scale(self) -> None:
        while True:
            await asyncio.sleep(_SCALE_S)
            for model in self._models.values():
                model.scale(time.monotonic())

    def _update(self, name: str, *, hurries: bool = False) -> None:
        model = self._models.get(name)
        if model is None:
            return
        due_s = model.update(self._found.get(name), is_unloaded=not self._is_loaded(name), hurries=hurries)
        if name not in self._found and model.is_over:
            del self._models[name]
        if due_s < math.inf:
            self._alarm.set_in(due_s)

    def _served(self, name: str) -> ServedModel:
        if name not in self._models:
            self._models[name] = ServedModel(name, self._loader, self._quiet_s, lambda: self._update(name))
        return self._models[name]

    def _model(self, name: str) -> ServedModel:
        try:
            return self._models[name]
        except KeyError:
            raise UnknownModel(f"there is no model {name!r}; there are {sorted(self._models)}") from None

    def _is_loaded(self, name: str) -> bool:
        return (name in self._named) is (self._control is Control.EXPLICIT)
