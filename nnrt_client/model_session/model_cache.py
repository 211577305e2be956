"""Cache of compiled models in the user's directory, which `load` writes and reads."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from nnrt_client.build.build_result import BuildResult
from nnrt_client.build.build_task import BuildTask
from nnrt_client.build.options import Options
from nnrt_client.model.model import Model
from nnrt_client.model_session.background_write import BackgroundWrite
from nnrt_client.session.device import Device
from nnrt_hdi.errors import (
    InvalidParameter,
    InvalidPath,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    SaveCacheFailed,
)
from nnrt_hdi.files.compiled import CompiledModel, Target
from nnrt_hdi.files.model_store import ModelStore
from nnrt_hdi.files.store_directory import SHOWN_KEY, Recipe

_log = logging.getLogger(__name__)

BYTES_VARIABLE = "NNRT_CACHE_BYTES"
DEFAULT_BYTES = 4 << 30


def cache_directory() -> Path:
    """Return the directory of compiled models: `nnrt/models` in XDG_CACHE_HOME or, if that is not set, in ~/.cache.

    Raises InvalidPath if this user has no home.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # The XDG specification says to ignore relative paths.
        return (given if given.is_absolute() else Path.home() / ".cache") / "nnrt" / "models"
    except RuntimeError as error:
        raise InvalidPath("this user has no home directory; set HOME or XDG_CACHE_HOME") from error


def cache_bytes() -> int:
    """Return how many bytes the models in a cache may take: NNRT_CACHE_BYTES. Raise InvalidParameter for no number."""
    text = os.environ.get(BYTES_VARIABLE, "") or str(DEFAULT_BYTES)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidParameter(f"{BYTES_VARIABLE} is {text!r}; use a number of bytes")
    return int(text)


class ModelCache:
    """Entry of a model in the user's cache, from which a build restores it."""

    # `CacheWrite` writes it.
    is_written_later = True

    def __init__(self, store: ModelStore, path: Path, model: Model, options: Options) -> None:
        """Refer to a model in a store; the options are those of the build."""
        self.version = 0
        self.spent_s = 0.0
        self.model_name = b""
        self._store = store
        self._path = path
        self._model = model
        self._options = options

    def find(self, device: Device) -> CompiledModel | None:
        """Read the compiled model, if there is an undamaged one. The daemon checks large parts when they arrive."""
        entry = self._store.find(self._key(device))
        return None if entry is None else self._store.load(entry, in_files=True)

    def handle_refusal(self, device: Device, compiled: CompiledModel, why: NnrtError) -> None:
        """Remove the model from the cache, unless the daemon only forbids this client to load it."""
        if not isinstance(why, OperationForbidden):
            self._store.remove(self._key(device), str(why))

    def store(self, device: Device, compiled: CompiledModel, remaining_s: Callable[[], float]) -> None:
        """Write the compiled model; the store deletes the least recently used ones to make room."""
        self._store.keep(compiled, remaining_s)

    def place(self, device: Device) -> str:
        """Name the entry, for messages."""
        return f"cache {self._path}, model {self._key(device)[:SHOWN_KEY]}"

    def _key(self, device: Device) -> str:
        target = Target.of(device.info, device.name)
        return Recipe(target, self._model.digest, self._options.config(device)).key


def model_cache(
    cache: bool | str | os.PathLike[str], model: Model, options: Options, device: Device
) -> ModelCache | None:
    """Return the cache entry of a model, or None if the caller wants none or it would be useless.

    It is useless if the device exports no models, or if its daemon stores them itself, so that the client need not
    send them.
    """
    if cache is False or not device.capabilities.model_cache or device._session().keeps_models:
        return None
    try:
        path = cache_directory() if cache is True else Path(cache)
        store = ModelStore(path, cache_bytes(), place=f"cache directory {path}", quota=BYTES_VARIABLE)
    except InvalidPath as error:
        _log.warning("compiled models are not kept: %s", error)
        return None
    return ModelCache(store, path, model, options)


class CacheWrite(BackgroundWrite):
    """Write of a compiled model; the prepared model stays in use until it ends."""

    def __init__(self, result: BuildResult) -> None:
        self._result = result
        self._build = BuildTask()
        self._build.connect(result.prepared.session)
        result.prepared.retain()
        super().__init__()

    def close(self) -> None:
        """End the write: a model that is not written by now is not stored.

        This waits until the thread has ended, for `verdict_timeout_s` at most. A thread that takes longer, because the
        disk is slow, stores nothing either.
        """
        if self.is_of_this_process:
            self._build.end(OperationFailed("the session was closed"))
            self.ended.wait(self._build.settings.verdict_timeout_s)

    def _write(self) -> None:
        try:
            self._result.save(self._build)
        except (SaveCacheFailed, NnrtError) as error:
            is_missed = not (self._result.prepared.session.is_leaving or self._build.is_ended)
            _log.log(logging.WARNING if is_missed else logging.DEBUG, "%s", error)

    def _end(self) -> None:
        self._result.prepared.release()
        del self._result  # It refers to the model, with its weights.
        super()._end()
