"""Compiled models in a directory of the application: one file per device, complete or absent.

    <directory>/<id of the device, 16 hex digits>/model.nnrtcache
    <directory>/<id of the device, 16 hex digits>/model-<digest of the model's name>.nnrtcache

The second path is for a model with a name. A name may be any text, so the path has only its digest.
"""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nnrt_client.session.device import Device
from nnrt_hdi.errors import InvalidFile, InvalidParameter, InvalidPath, NnrtError
from nnrt_hdi.files import container
from nnrt_hdi.files.compiled import MAX_VERSION, CompiledModel, Target
from nnrt_hdi.files.directory_lock import writer_lock
from nnrt_hdi.files.fingerprint import Fingerprint

FILE_NAME = "model.nnrtcache"

# Owner of unfinished files.
_OWNER = "cache"
# Hex digits of a digest that tell names apart.
_NAME_DIGITS = 16

# In NNRt the largest version stands for none.
NO_VERSION = MAX_VERSION


class Cache(Protocol):
    """Cache from which a build reads its compiled model, or to which it writes it."""

    # The application's version of its model.
    version: int
    # Distinguishes models that share a cache.
    model_name: bytes
    # Seconds that reading and checking files has taken so far.
    spent_s: float

    @property
    def is_written_later(self) -> bool:
        """True if the caller writes the cache after the build; False if the build writes it."""

    def find(self, device: Device) -> CompiledModel | None:
        """Read the compiled model for a device; return None if the build must compile one."""

    def handle_refusal(self, device: Device, compiled: CompiledModel, why: NnrtError) -> None:
        """React to a device that refused the model found here. Raise InvalidFile if the build may not replace it."""

    def store(self, device: Device, compiled: CompiledModel, remaining_s: Callable[[], float]) -> None:
        """Write the compiled model of a device; raise OSError and what `remaining_s` raises."""

    def place(self, device: Device) -> str:
        """Name the cache of a device, for messages."""


@dataclass(slots=True)
class CacheDirectory:
    """Directory for caches, and the version that the application gives its model."""

    path: Path
    version: int
    # Distinguishes models that share the directory.
    model_name: bytes = b""
    # Seconds that reading and checking files has taken.
    spent_s: float = field(default=0.0, init=False)
    # Model that was read last and its file's fingerprint. The next read takes the model if the file is unchanged.
    _kept: tuple[Fingerprint, CompiledModel] | None = field(default=None, init=False, repr=False)

    def require_accessible(self) -> None:
        """Raise InvalidPath unless the directory exists and can be read."""
        place = f"cache directory {self.path}"
        try:
            is_there = self.path.is_dir()
        except OSError as error:
            raise InvalidPath(f"it can't be found: {error.strerror}; take another one", place=place) from error
        if not is_there:
            raise InvalidPath("there is no such directory; make it first", place=place)
        if not os.access(self.path, os.R_OK | os.X_OK):
            raise InvalidPath("it can't be read; allow it, or take another one", place=place)

    def find(self, device: Device) -> CompiledModel | None:
        """Read the cache of a device; return None if there is none, or only one of an earlier version.

        The next call returns the same model if the file has not changed. This doesn't check large parts: the daemon
        checks those that it receives. Raises InvalidPath if the directory can't be read, InvalidFile for a cache
        that is damaged, unreadable or made for another device, InvalidParameter for a cache of a later version.
        """
        self.require_accessible()
        try:
            compiled = self._read(device)
        except InvalidFile as error:
            raise error.at(self.place(device)) from error
        if compiled is not None and compiled.version > self.version:
            raise InvalidParameter(
                f"it has version {compiled.version}, and {self.version} was given; give at least that of the cache",
                place=self.place(device),
            )
        if compiled is None or compiled.version < self.version:
            self._kept = None
            return None
        return compiled

    @property
    def is_written_later(self) -> bool:
        """False: the cache exists when `build` returns, as applications expect."""
        return False

    def handle_refusal(self, device: Device, compiled: CompiledModel, why: NnrtError) -> None:
        """Raise InvalidFile if the cache is damaged; else leave it, and the build replaces it."""
        if isinstance(why, InvalidFile):
            require_whole(compiled, self.place(device))

    def store(self, device: Device, compiled: CompiledModel, remaining_s: Callable[[], float]) -> None:
        """Write the cache of a device, and replace an earlier one. Raise OSError and what `remaining_s` raises."""
        file = self.file(device)
        file.parent.mkdir(exist_ok=True)
        lock = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        with writer_lock(file.parent, _OWNER, lock, remaining_s):
            container.write(file, compiled.packed(), owner=_OWNER, is_private=True)

    def file(self, device: Device) -> Path:
        """Return the path of the cache of a device."""
        name = FILE_NAME
        if self.model_name:
            name = name.replace(".", f"-{hashlib.sha256(self.model_name).hexdigest()[:_NAME_DIGITS]}.")
        return self.path / f"{device.id:016x}" / name

    def place(self, device: Device) -> str:
        """Name the cache of a device, for messages."""
        return f"cache {self.file(device)}"

    def _read(self, device: Device) -> CompiledModel | None:
        file = self.file(device)
        kept, self._kept = self._kept, None
        try:
            state = Fingerprint.of(file.stat())
            if kept and kept[0] == state:
                compiled = kept[1]
            else:
                began = time.monotonic()
                compiled = CompiledModel.in_file(file)
                self.spent_s += time.monotonic() - began
                self._kept = state, compiled
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidFile(f"it can't be read: {error.strerror}") from error
        require_compiled_for(device, compiled)
        return compiled


def require_compiled_for(device: Device, compiled: CompiledModel) -> None:
    """Raise InvalidFile for a model that was compiled for another device, or by another version of its backend."""
    target = Target.of(device.info, device.name)
    if compiled.target != target:
        raise InvalidFile(
            f"it was made for {compiled.target.device}, {compiled.target.describe_kind()}; the device is"
            f" {target.device}, {target.describe_kind()}; delete it and build again"
        )


def require_whole(compiled: CompiledModel, place: str) -> None:
    """Read all parts of a compiled model, and raise InvalidFile if one is damaged."""
    try:
        compiled.require_whole()
    except InvalidFile as error:
        raise error.at(place) from error
