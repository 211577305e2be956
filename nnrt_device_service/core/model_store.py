"""The daemon's own store of compiled models: which are looked up, kept and evicted."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nnrt_device_service.core.store_directory import SHOWN_KEY, Recipe, StoreDirectory, touch
from nnrt_hdi.errors import InvalidFile, InvalidPath, NnrtError
from nnrt_hdi.files.compiled import CompiledModel

_log = logging.getLogger(__name__)

# How long a session lets another compile the same model before it does so itself.
COMPILATION_WAIT_S = 120.0
_POLL_S = 0.5


@dataclass(eq=False, slots=True)
class _Compilation:
    """A compilation under way, until its model is in the store."""

    is_over: threading.Event = field(default_factory=threading.Event)
    # The model is ready, and only its file isn't yet.
    is_being_written: bool = False


class ModelStore:
    """The compiled models of all sessions, and of all daemons that share the directory.

    Nothing that happens to its files is an error to who asks: a model that can't be read is not there, one that can't
    be written is not kept, and the log says so.
    """

    def __init__(self, path: Path, quota_bytes: int) -> None:
        """Raises InvalidPath for a directory that can't be used."""
        self._directory = StoreDirectory(path.absolute())
        self._quota_bytes = quota_bytes
        self._lock = threading.Lock()
        self._under_way: dict[str, _Compilation] = {}
        try:
            self._directory.make()
            with self._directory.locked():
                self._make_room(0)
        except TimeoutError as error:  # Another daemon is at work; the next to write makes room.
            _log.warning("the model store is not tidied up: %s", error)
        except (OSError, InvalidPath) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidPath(
                f"it can't be the model store: {why}; name a directory that this user may make or write to",
                place=f"--store-dir {str(path)!r}",
            ) from error

    def size_of(self, key: str) -> int | None:
        """Bytes of the file of a model, None if it is not there."""
        entry = self._directory.entry(key)
        return entry.size_bytes if entry else None

    def load(self, key: str) -> CompiledModel | None:
        """The model, of which this is a use. One that is not as it was written is removed."""
        entry = self._directory.entry(key)
        if entry is None:
            return None
        try:
            compiled = entry.model()
        except FileNotFoundError:  # Evicted just now.
            return None
        except (OSError, InvalidFile) as error:
            self.remove(key, str(error))
            return None
        touch(entry.path)
        return compiled

    def keep(self, compiled: CompiledModel) -> None:
        """Write a model to the disk; the least recently used ones make room for it."""
        key = Recipe.of(compiled).key
        try:
            pieces = compiled.packed()
        except NnrtError as error:
            _log.warning("model %s is not stored: %s", key[:SHOWN_KEY], error)
            return
        size_bytes = sum(memoryview(piece).nbytes for piece in pieces)
        if size_bytes > self._quota_bytes:
            _log.warning(
                "model %s is not stored: it has %d bytes, --store-bytes is %d",
                key[:SHOWN_KEY],
                size_bytes,
                self._quota_bytes,
            )
            return
        try:
            self._directory.make()  # Somebody may have removed it.
            with self._directory.locked():
                self._make_room(size_bytes)
                self._directory.write(key, pieces)
        except (OSError, InvalidPath) as error:
            _log.warning("model %s is not stored: %s", key[:SHOWN_KEY], error)
        else:
            _log.info("stored model %s, %d bytes", key[:SHOWN_KEY], size_bytes)

    def remove(self, key: str, why: str) -> None:
        """Take away a model that can't be used."""
        _log.warning("the stored model %s is removed and will be compiled again: %s", key[:SHOWN_KEY], why)
        entry = self._directory.entry(key)
        try:
            if entry:
                entry.remove()
        except OSError as error:
            _log.warning("the stored model %s can't be removed: %s", key[:SHOWN_KEY], error)

    @contextmanager
    def compiling(self, key: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Compile a model in this block and write it, so that others who want the same one find it here. They call
        `waiting` until then, for at most COMPILATION_WAIT_S. Any thread may leave the block."""
        deadline = time.monotonic() + COMPILATION_WAIT_S
        mine = _Compilation()
        while True:
            with self._lock:
                other = self._under_way.get(key)
                if other is None or time.monotonic() >= deadline:
                    self._under_way[key] = mine
                    break
            waiting()
            other.is_over.wait(_POLL_S)
        try:
            yield
        finally:
            with self._lock:
                if self._under_way.get(key) is mine:
                    del self._under_way[key]
            mine.is_over.set()

    def begin_writing(self, key: str) -> None:
        """Say that the model compiled in the block of `compiling` is ready, and is going to be written."""
        with self._lock:
            if compilation := self._under_way.get(key):
                compilation.is_being_written = True

    def await_writing(self, key: str, waiting: Callable[[], None]) -> None:
        """Wait until a model that is ready is in the store, and call `waiting` meanwhile; for at most
        COMPILATION_WAIT_S."""
        deadline = time.monotonic() + COMPILATION_WAIT_S
        while time.monotonic() < deadline:
            with self._lock:
                other = self._under_way.get(key)
            if other is None or not other.is_being_written:
                return
            waiting()
            other.is_over.wait(_POLL_S)

    def _make_room(self, size_bytes: int) -> None:
        entries = self._directory.entries()
        excess = sum(entry.size_bytes for entry in entries) + size_bytes - self._quota_bytes
        for entry in entries:
            if excess <= 0:
                return
            entry.remove()
            excess -= entry.size_bytes
            _log.info("evicted model %s, %d bytes, from the model store", entry.key[:SHOWN_KEY], entry.size_bytes)
