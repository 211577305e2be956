"""The user's compiled models, which `load` keeps and finds again: a model store on the client's side."""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from nnrt_client.build.build_result import BuildResult
from nnrt_client.build.build_task import BuildTask
from nnrt_client.build.options import Options
from nnrt_client.model.model import Model
from nnrt_client.session.device import Device
from nnrt_client.session.latch import Latch
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
from nnrt_hdi.signals import raised_by_handler

_log = logging.getLogger(__name__)

BYTES_VARIABLE = "NNRT_CACHE_BYTES"
DEFAULT_BYTES = 4 << 30


def cache_directory() -> Path:
    """Give the directory of compiled models: `nnrt/models` in XDG_CACHE_HOME, which is ~/.cache if it is not set."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (given if given.is_absolute() else Path.home() / ".cache") / "nnrt" / "models"


def cache_bytes() -> int:
    """Give the bytes that the models in a cache may take: NNRT_CACHE_BYTES. Raises InvalidParameter."""
    text = os.environ.get(BYTES_VARIABLE, "") or str(DEFAULT_BYTES)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidParameter(f"{BYTES_VARIABLE} is {text!r}; use a number of bytes")
    return int(text)


# What is being written. A set, for it changes in single steps.
_under_way: "set[Saving]" = set()


class ModelCache:
    """A model's place in the cache, from which a build restores it; as `CacheDirectory` is for applications."""

    # See `Saving`.
    is_written_later = True

    def __init__(self, store: ModelStore, path: Path, model: Model, options: Options) -> None:
        """The options are those of the build."""
        self.version = 0
        self.spent_s = 0.0
        self.model_name = b""
        self._store = store
        self._path = path
        self._model = model
        self._options = options

    def find(self, device: Device) -> CompiledModel | None:
        """Read the compiled model, if it is there and sound. The daemon checks the large parts when they arrive."""
        entry = self._store.find(self._key(device))
        return None if entry is None else self._store.load(entry, in_files=True)

    def handle_refusal(self, device: Device, compiled: CompiledModel, why: NnrtError) -> None:
        """Remove what a device doesn't take, unless it takes it from others."""
        if not isinstance(why, OperationForbidden):
            self._store.remove(self._key(device), str(why))

    def store(self, device: Device, compiled: CompiledModel, remaining_s: Callable[[], float]) -> None:
        """Write the compiled model; the least recently used ones make room for it."""
        self._store.keep(compiled, remaining_s)

    def place(self, device: Device) -> str:
        """Name the place, for messages."""
        return f"cache {self._path}, model {self._key(device)[:SHOWN_KEY]}"

    def _key(self, device: Device) -> str:
        target = Target.of(device.info, device.name)
        return Recipe(target, self._model.digest, self._options.config(device)).key


def model_cache(
    cache: bool | str | os.PathLike[str], model: Model, options: Options, device: Device
) -> ModelCache | None:
    """Give the place of a model where the caller wants one and it is of use: the device exports models, and its daemon
    doesn't keep them itself, so that nothing would have to be sent."""
    if cache is False or not device.capabilities.model_cache or device._session().keeps_models:
        return None
    path = cache_directory() if cache is True else Path(cache)
    try:
        store = ModelStore(path, cache_bytes(), place=f"cache directory {path}", quota=BYTES_VARIABLE)
    except InvalidPath as error:
        _log.warning("compiled models are not kept: %s", error)
        return None
    return ModelCache(store, path, model, options)


def wait_until_cached(timeout_s: float | None = None) -> bool:
    """Wait until what `load` has had compiled is in the cache, or was not kept; true if that is so in time.

    A session that is closed before goes without: for programs that load a model, run it once, and end.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    for saving in [saving for saving in list(_under_way) if saving.is_of_this_process]:
        saving.ended.wait(None if until is None else max(until - time.monotonic(), 0.0))
    return not any(saving.is_of_this_process for saving in list(_under_way))


class Saving:
    """Writes a compiled model to the cache while its session runs it already."""

    def __init__(self, result: BuildResult) -> None:
        """Keeps the model in use until it is written, or `close` was interrupted."""
        self._result = result
        self._build = BuildTask()
        self._build.connect(result.prepared.session)
        self.ended = Latch()
        self._process = os.getpid()
        _under_way.add(self)
        result.prepared.retain()
        # If the process ends before, the file isn't there.
        try:
            threading.Thread(target=self._save, name="nnrt-cache", daemon=True).start()
        except RuntimeError as error:  # The process has no thread left.
            if raised_by_handler(error):
                raise
            _log.debug("the compiled model is not kept: %s", error)
            self._end()

    @property
    def is_of_this_process(self) -> bool:
        """False in a forked child, where nobody writes it."""
        return os.getpid() == self._process

    def close(self) -> None:
        """End the writing. What is not written by now is not kept. Only the wait for a disk that takes longer than
        `verdict_timeout_s` for 16 MiB outlives this, and what it writes is not kept either."""
        if self.is_of_this_process:
            self._build.end(OperationFailed("the session was closed"))
            self.ended.wait(self._build.settings.verdict_timeout_s)

    def _save(self) -> None:
        try:
            self._result.save(self._build)
        except (SaveCacheFailed, NnrtError) as error:
            is_missed = not (self._result.prepared.session.is_leaving or self._build.is_ended)
            _log.log(logging.WARNING if is_missed else logging.DEBUG, "%s", error)
        except Exception:
            _log.exception("the compiled model was not kept")
        finally:
            self._end()

    def _end(self) -> None:
        self._result.prepared.release()
        del self._result  # It knows the model, with its weights.
        _under_way.discard(self)
        self.ended.set()
