"""The daemon's own store: compiled models on disk, found by what they were compiled from. Knows no gRPC.

A directory, which any number of daemons may share, holds one file per model, called by its key. A file is complete or
not there, so that reading needs no lock; who makes room and writes locks the file by which a store is known. The time
at which a file was changed is that of its last use.
"""

import hashlib
import json
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from typing_extensions import Buffer

from nnrt_hdi.backend import DEFAULT_MAX_TENSOR_BYTES, ModelConfig
from nnrt_hdi.compiled import CompiledModel, Target
from nnrt_hdi.container import FORMAT, read, write
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import InvalidFile, InvalidPath, NnrtError
from nnrt_hdi.only_writer import only_writer

_log = logging.getLogger(__name__)

SUFFIX = ".nnrtmodel"
# As much of a key as logs and tables show.
SHOWN_KEY = 12
LOCK_TIMEOUT_S = 10.0
# How long a session lets another compile the same model before it does so itself.
TURN_TIMEOUT_S = 120.0

# By which a store is known, and which its writers lock.
MARKER = ".nnrt-store"

# The owner of the store's unfinished files.
_OWNER = "store"
_TURN_POLL_S = 0.5
_ENTRY = re.compile(f"([0-9a-f]{{64}}){re.escape(SUFFIX)}")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what a compiled model is. Equal recipes, and only they, have equal keys."""

    target: Target
    # Of the model as it was asked for, with constants by their digests, and of the rules by which it was checked.
    source_digest: bytes
    config: ModelConfig

    def __post_init__(self) -> None:
        # What has its effect when a model runs, and is given to Backend.restore.
        neutral = replace(self.config, priority=Priority.NONE, max_tensor_bytes=DEFAULT_MAX_TENSOR_BYTES)
        object.__setattr__(self, "config", neutral)

    @classmethod
    def of(cls, compiled: CompiledModel) -> "Recipe":
        return cls(compiled.target, compiled.source_digest, compiled.config)

    @property
    def key(self) -> str:
        """SHA-256 in hexadecimal digits."""
        decisive = {
            "format": FORMAT,
            "target": asdict(self.target),
            "source": self.source_digest.hex(),
            "float16": self.config.enable_float16,
            "mode": self.config.mode.name,
            "extensions": {name: value.hex() for name, value in self.config.extensions.items()},
        }
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the store, as it was found."""

    path: Path
    key: str
    size_bytes: int
    # Nanoseconds since 1970.
    last_use_ns: int

    @classmethod
    def at(cls, path: Path) -> "Entry | None":
        """The entry there; None if there is nothing, or something else. Links are not followed."""
        name = _ENTRY.fullmatch(path.name)
        try:
            status = path.lstat()
        except OSError:
            return None
        if not name or not stat.S_ISREG(status.st_mode):
            return None
        return cls(path, name[1], status.st_size, status.st_mtime_ns)

    def described(self) -> CompiledModel:
        """What it says of itself; its parts are not looked at. Raises OSError or InvalidFile."""
        return self._checked(CompiledModel.described(self.path))

    def model(self) -> CompiledModel:
        """The model. Raises OSError, and InvalidFile unless every byte is as written and under its own name."""
        return self._checked(CompiledModel.unpacked(read(self.path)))

    def damage(self) -> str:
        """What is wrong with it; empty if nothing is, or if it has been removed since."""
        try:
            self.model()
        except FileNotFoundError:
            return ""
        except MemoryError as error:
            return f"it is too large to be read: {error}"
        except (OSError, InvalidFile) as error:
            return str(error)
        return ""

    def remove(self) -> bool:
        """Whether it was still there. Raises OSError."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def _checked(self, compiled: CompiledModel) -> CompiledModel:
        if (key := Recipe.of(compiled).key) != self.key:
            raise InvalidFile(f"it is the model {key[:SHOWN_KEY]} under another name")
        return compiled


class StoreDirectory:
    """The files of a store."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make sure that it is there and a store, and that its owner and nobody else can write to it.

        Raises OSError or InvalidPath.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.path.stat()
        if status.st_uid != os.geteuid():
            raise InvalidPath(f"it belongs to user {status.st_uid}, not to {os.geteuid()}, who runs this")
        if status.st_mode & _OTHERS_MAY_WRITE:
            raise InvalidPath("others may write to it; use `chmod go-w`, or a directory that is not there yet")
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise InvalidPath("files in it can't be listed, made and removed")
        os.close(self._opened_marker(os.O_CREAT))

    def require_store(self) -> None:
        """Refuse a directory in which no daemon has made a store. Raises OSError or InvalidPath, and makes nothing."""
        try:
            is_store = stat.S_ISREG((self.path / MARKER).lstat().st_mode)
        except FileNotFoundError:
            self.path.stat()
            is_store = False
        if not is_store:
            raise InvalidPath(f"it is no model store, for it has no file {MARKER}; name one that a daemon has made")

    def entry(self, key: str) -> Entry | None:
        return Entry.at(self.path / f"{key}{SUFFIX}")

    def entries(self) -> list[Entry]:
        """All models, the least recently used first. Other files don't count. Raises OSError."""
        found = (Entry.at(path) for path in self.path.iterdir())
        return sorted((entry for entry in found if entry), key=lambda entry: (entry.last_use_ns, entry.key))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who makes room and writes. What a crash left is gone then.

        Raises TimeoutError, which is an OSError, where another holds the lock for long.
        """
        deadline = time.monotonic() + LOCK_TIMEOUT_S

        def remaining_s() -> float:
            if (remaining := deadline - time.monotonic()) > 0:
                return remaining
            raise TimeoutError(f"another process has held its lock for {LOCK_TIMEOUT_S:g} s")

        with only_writer(self.path, _OWNER, self._opened_marker(), remaining_s):
            yield

    def write(self, key: str, pieces: Sequence[Buffer]) -> None:
        """Write a model; it is used now. For who has it `locked`. Raises OSError."""
        path = self.path / f"{key}{SUFFIX}"
        write(path, pieces, owner=_OWNER, is_private=True)
        _touch(path)

    def _opened_marker(self, flags: int = 0) -> int:
        return os.open(self.path / MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o600)


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
        self._compiling: dict[str, threading.Event] = {}
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
        _touch(entry.path)
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
    def turn(self, key: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Compile a model in this block, so that others who want the same one find it here. They call `waiting` until
        then, for at most TURN_TIMEOUT_S."""
        deadline = time.monotonic() + TURN_TIMEOUT_S
        mine = threading.Event()
        while True:
            with self._lock:
                other = self._compiling.get(key)
                if other is None or time.monotonic() >= deadline:
                    self._compiling[key] = mine
                    break
            waiting()
            other.wait(_TURN_POLL_S)
        try:
            yield
        finally:
            with self._lock:
                if self._compiling.get(key) is mine:
                    del self._compiling[key]
            mine.set()

    def _make_room(self, size_bytes: int) -> None:
        entries = self._directory.entries()
        excess = sum(entry.size_bytes for entry in entries) + size_bytes - self._quota_bytes
        for entry in entries:
            if excess <= 0:
                return
            entry.remove()
            excess -= entry.size_bytes
            _log.info("evicted model %s, %d bytes, from the model store", entry.key[:SHOWN_KEY], entry.size_bytes)


def _touch(path: Path) -> None:
    """The file is used now. (The file system's own clock ticks every few milliseconds.)"""
    now = time.time_ns()
    with suppress(OSError):
        os.utime(path, ns=(now, now))
