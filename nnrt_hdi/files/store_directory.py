"""Directory of a model store: a file per compiled model, named after what it was compiled from.

    .nnrt-store             marks a store; writers lock it
    <key>.nnrtmodel         a compiled model: its manifest, and its small parts
    <SHA-256>.nnrtpart      a large part, such as weights, for all models that have it

Any number of processes may share it. A file is complete or missing, so reading needs no lock; writers and evictions
lock the first file. The modification time of a model's file is the time of its last use. A large part is removed with
the last model that has it.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from nnrt_hdi.backend import DEFAULT_MAX_TENSOR_BYTES, ModelConfig
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import InvalidFile, InvalidPath
from nnrt_hdi.files.compiled import CompiledModel, Target
from nnrt_hdi.files.container import FORMAT, LARGE_BYTES, read, read_beside, write
from nnrt_hdi.files.directory_lock import writer_lock
from nnrt_hdi.files.file_part import FilePart, OpenFile
from nnrt_hdi.files.whole_parts import WholeParts, required
from nnrt_hdi.part import Part

_log = logging.getLogger(__name__)

ReadT = TypeVar("ReadT")

SUFFIX = ".nnrtmodel"
PART_SUFFIX = ".nnrtpart"
# Characters of a key that logs and tables show.
SHOWN_KEY = 12
LOCK_TIMEOUT_S = 10.0

MARKER = ".nnrt-store"

# Owner in the names of unfinished files.
_OWNER = "store"
_ENTRY = re.compile(f"([0-9a-f]{{64}}){re.escape(SUFFIX)}")
_PART = re.compile(f"([0-9a-f]{{64}}){re.escape(PART_SUFFIX)}")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a compiled model. Only equal recipes have equal keys."""

    target: Target
    # Digest of the requested model, with digests of constants, and of the rules by which it was checked.
    source_digest: bytes
    config: ModelConfig

    def __post_init__(self) -> None:
        # Without settings that only affect runs, which Backend.restore gets.
        neutral = replace(
            self.config, priority=Priority.NONE, max_tensor_bytes=DEFAULT_MAX_TENSOR_BYTES, accepts_programs=False
        )
        object.__setattr__(self, "config", neutral)

    @classmethod
    def of(cls, compiled: CompiledModel) -> "Recipe":
        return cls(compiled.target, compiled.source_digest, compiled.config)

    @property
    def key(self) -> str:
        """SHA-256 of the recipe in hexadecimal."""
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
    """Entry of the store, as it was when the directory was read."""

    path: Path
    key: str
    # Bytes of its file, and of parts with files of their own, by digest.
    file_bytes: int
    parts: Mapping[bytes, int]
    # Nanoseconds since 1970.
    last_use_ns: int

    @classmethod
    def find(cls, path: Path) -> "Entry | None":
        """Return the entry at a path, or None if there is none. Links aren't followed."""
        name = _ENTRY.fullmatch(path.name)
        try:
            status = path.lstat()
        except OSError:
            return None
        if not name or not stat.S_ISREG(status.st_mode):
            return None
        try:
            parts = read_beside(path)
        except FileNotFoundError:  # Just evicted.
            return None
        except (OSError, InvalidFile):  # Loading will report it.
            parts = {}
        return cls(path, name[1], status.st_size, parts, status.st_mtime_ns)

    @property
    def size_bytes(self) -> int:
        """Bytes of the model, including parts that it shares with others."""
        return self.file_bytes + sum(self.parts.values())

    def without_parts(self) -> CompiledModel:
        """Return the model without its parts. Raise OSError or InvalidFile."""
        return self._checked(CompiledModel.without_parts(self.path))

    def model(self, whole: WholeParts | None = None) -> CompiledModel:
        """Return the model, with large parts read, or mapped by `whole`.

        Raises:
            OSError: A file can't be read.
            InvalidFile: A byte has changed, or the model has another name.
        """
        fetch = self._part if whole is None else partial(self._whole_part, whole)
        return self._checked(CompiledModel.unpacked(read(self.path), fetch))

    def model_in_files(self) -> CompiledModel:
        """Return the model, with large parts left in their files, unchecked; whoever receives them must check them.

        Raises:
            OSError: A file can't be read.
            InvalidFile: A byte of the rest has changed.
        """
        return self._checked(CompiledModel.unpacked(read(self.path), self._part_in_file))

    def damage(self) -> str:
        """Return what is wrong with the entry; empty if nothing is, or if it was removed."""
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
        """Delete the entry's file, but not its large parts, and return whether it was there. Raise OSError."""
        return _remove(self.path)

    def remove_damaged_parts(self) -> None:
        """Delete damaged parts. Raise OSError."""
        for sha256, size in self.parts.items():
            with suppress(FileNotFoundError):
                try:
                    self._part(size, sha256)
                except InvalidFile:
                    _remove(part_path(self.path.parent, sha256))

    def _part(self, size: int, sha256: bytes) -> Part:
        return required(Part.of(self._read_part(sha256, read)), size, sha256)

    def _whole_part(self, whole: WholeParts, size: int, sha256: bytes) -> Part:
        return self._read_part(sha256, lambda path: whole.part(path, size, sha256))

    def _part_in_file(self, size: int, sha256: bytes) -> Part:
        file = self._read_part(sha256, partial(OpenFile, flags=os.O_NOFOLLOW))
        if file.size_bytes != size:
            raise InvalidFile(f"its part {sha256.hex()[:SHOWN_KEY]} has {file.size_bytes} bytes; {size} were written")
        return FilePart(file, 0, size, sha256)

    def _read_part(self, sha256: bytes, reading: Callable[[Path], ReadT]) -> ReadT:
        try:
            return reading(part_path(self.path.parent, sha256))
        except FileNotFoundError as error:
            self.path.lstat()  # Raises the same if the model was just evicted.
            raise InvalidFile(f"its part {sha256.hex()[:SHOWN_KEY]} is not there") from error

    def _checked(self, compiled: CompiledModel) -> CompiledModel:
        if (key := Recipe.of(compiled).key) != self.key:
            raise InvalidFile(f"it is the model {key[:SHOWN_KEY]} under another name")
        return compiled


class StoreDirectory:
    """Files of a store."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make the store if it is missing; check that only its owner can write to it.

        Raises:
            OSError: It can't be made.
            InvalidPath: It can't be used.
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
        """Raise OSError or InvalidPath if the directory is no store; make nothing."""
        try:
            is_store = stat.S_ISREG((self.path / MARKER).lstat().st_mode)
        except FileNotFoundError:
            self.path.stat()
            is_store = False
        if not is_store:
            raise InvalidPath(f"it is no model store, for it has no file {MARKER}; name one that was made as such")

    def entry(self, key: str) -> Entry | None:
        return Entry.find(self.path / f"{key}{SUFFIX}")

    def entries(self) -> list[Entry]:
        """Return all entries, least recently used first. Raise OSError."""
        found = (Entry.find(path) for path in self.path.iterdir())
        return sorted((entry for entry in found if entry), key=lambda entry: (entry.last_use_ns, entry.key))

    @contextmanager
    def locked(self, check: Callable[[], object] = lambda: None, *, at_once: bool = False) -> Iterator[None]:
        """Hold the lock for evicting and writing, and remove what a crash left.

        Args:
            check: Called while waiting; an exception ends the wait.
            at_once: Raise TimeoutError instead of waiting.

        Yields:
            Nothing.

        Raises:
            TimeoutError: Another process holds the lock for too long, or with `at_once`, holds it.
        """
        deadline = time.monotonic() + (0 if at_once else LOCK_TIMEOUT_S)

        def remaining_s() -> float:
            check()
            if (remaining := deadline - time.monotonic()) > 0:
                return remaining
            raise TimeoutError(f"another process has held its lock for {LOCK_TIMEOUT_S:g} s")

        with writer_lock(self.path, _OWNER, self._opened_marker(), remaining_s):
            yield

    def write(self, key: str, compiled: CompiledModel, check: Callable[[], object] = lambda: None) -> None:
        """Write a model, which counts as a use. The caller holds the lock.

        Raises:
            OSError: It can't be written.
            InvalidParameter: It could not be read back.
            Exception: What `check` raises, which is called repeatedly.
        """
        beside = parts_beside(compiled)
        pieces = compiled.packed(beside)
        for part in compiled.parts:
            if part.sha256 in beside and not self.has_part(part.sha256, part.data.nbytes):
                beside_path = part_path(self.path, part.sha256)
                _clear(beside_path)
                write(beside_path, [part.data], owner=_OWNER, is_private=True, check=check)
        path = self.path / f"{key}{SUFFIX}"
        _clear(path)
        write(path, pieces, owner=_OWNER, is_private=True, check=check)
        touch(path)

    def has_part(self, sha256: bytes, size: int) -> bool:
        """Return whether a part has a file."""
        try:
            status = part_path(self.path, sha256).lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == size

    def remove_unused_parts(self) -> None:
        """Delete parts that no model has. The caller holds the lock. Raise OSError."""
        used = {sha256.hex() for entry in self.entries() for sha256 in entry.parts}
        for path in list(self.path.iterdir()):
            if (name := _PART.fullmatch(path.name)) and name[1] not in used:
                _remove(path)

    def _opened_marker(self, flags: int = 0) -> int:
        return os.open(self.path / MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o600)


def parts_beside(compiled: CompiledModel) -> dict[bytes, int]:
    """Return the sizes of parts that get files of their own, by digest."""
    return {part.sha256: part.data.nbytes for part in compiled.parts if part.data.nbytes >= LARGE_BYTES}


def part_path(directory: Path, sha256: bytes) -> Path:
    """Return the path of a large part."""
    return directory / f"{sha256.hex()}{PART_SUFFIX}"


def touch(path: Path) -> None:
    """Set the time of the last use to now, more precisely than the clock that the file system itself uses."""
    now = time.time_ns()
    with suppress(OSError):
        os.utime(path, ns=(now, now))


def _clear(path: Path) -> bool:
    """Remove a directory that has the name of a store's file, with its contents; return whether there was one.

    Raises OSError.
    """
    if path.is_symlink() or not path.is_dir():
        return False
    _log.warning("a directory is in the place of %s of the model store, and is removed", path.name)
    shutil.rmtree(path)
    return True


def _remove(path: Path) -> bool:
    if _clear(path):
        return True
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
