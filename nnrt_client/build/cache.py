"""Compiled models in a directory of the application's: one file per device, complete or not there.

    <directory>/<id of the device, 16 hex digits>/model.nnrtcache
    <directory>/<id of the device, 16 hex digits>/model-<digest of the model's name>.nnrtcache

The second is for a model that was given a name. Names are foreign text, so they don't stand in the path.
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
from nnrt_hdi.files.directory_lock import only_writer
from nnrt_hdi.files.fingerprint import Fingerprint

FILE_NAME = "model.nnrtcache"

# The owner of unfinished files.
_OWNER = "cache"
# As much of a digest as tells names apart.
_NAME_DIGITS = 16

# In NNRt the largest version stands for none.
NO_VERSION = MAX_VERSION


class Cache(Protocol):
    """A place where a build finds its compiled model, or leaves it."""

    # What the application calls the version of its model.
    version: int
    # What models that share a place are told apart by.
    model_name: bytes
    # What reading and checking files has taken so far.
    spent_s: float

    @property
    def is_written_later(self) -> bool:
        """Whether who has it built sees to it that it is written, and not the build."""

    def found(self, device: Device) -> CompiledModel | None:
        """Read the compiled model to load for a device; None where one is to be made."""

    def refused(self, device: Device, compiled: CompiledModel, why: NnrtError) -> None:
        """Take note that the device doesn't load what was found. Raises InvalidFile where it is to stay as it is."""

    def store(self, device: Device, compiled: CompiledModel, remaining_s: Callable[[], float]) -> None:
        """Write the compiled model of a device. Raises OSError, and what `remaining_s` raises."""

    def place(self, device: Device) -> str:
        """Name the place for a device, for messages."""


@dataclass(slots=True)
class CacheDirectory:
    """A directory for caches, and the version that the application gives its model."""

    path: Path
    version: int
    # What models that share the directory are told apart by.
    model_name: bytes = b""
    # What reading and checking files has taken.
    spent_s: float = field(default=0.0, init=False)
    # What was found last and not fetched since, with the state that the file had.
    _kept: tuple[Fingerprint, CompiledModel] | None = field(default=None, init=False, repr=False)

    def require_accessible(self) -> None:
        """Raises InvalidPath unless it is a directory that can be read."""
        place = f"cache directory {self.path}"
        try:
            is_there = self.path.is_dir()
        except OSError as error:
            raise InvalidPath(f"it can't be found: {error.strerror}; take another one", place=place) from error
        if not is_there:
            raise InvalidPath("there is no such directory; make it first", place=place)
        if not os.access(self.path, os.R_OK | os.X_OK):
            raise InvalidPath("it can't be read; allow it, or take another one", place=place)

    def found(self, device: Device) -> CompiledModel | None:
        """Read the cache to load for a device; None where one is to be written.

        The directory keeps it for the next call, so that a file that has not been touched is read and checked once.
        The daemon that gets its large parts checks these. Raises InvalidPath for the directory, InvalidFile for a cache
        that is damaged, unreadable or made for another device, InvalidParameter for one of a later version.
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
        """Never: an application that has built with a cache has one."""
        return False

    def refused(self, device: Device, compiled: CompiledModel, why: NnrtError) -> None:
        """Do nothing: it is replaced by what is compiled instead. Raises InvalidFile for one that is damaged."""
        if isinstance(why, InvalidFile):
            require_whole(compiled, self.place(device))

    def store(self, device: Device, compiled: CompiledModel, remaining_s: Callable[[], float]) -> None:
        """Write the cache of a device in place of an earlier one. Raises OSError, and what `remaining_s` raises."""
        file = self.file(device)
        file.parent.mkdir(exist_ok=True)
        lock = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        with only_writer(file.parent, _OWNER, lock, remaining_s):
            container.write(file, compiled.packed(), owner=_OWNER, is_private=True)

    def file(self, device: Device) -> Path:
        """Path of the cache of a device."""
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
    """Refuse a model that was compiled for another device, or by another version of its backend, with InvalidFile."""
    target = Target.of(device.info, device.name)
    if compiled.target != target:
        raise InvalidFile(
            f"it was made for {compiled.target.device}, {compiled.target.describe_kind()}; the device is"
            f" {target.device}, {target.describe_kind()}; delete it and build again"
        )


def require_whole(compiled: CompiledModel, place: str) -> None:
    """Refuse what is not as it was written, with InvalidFile."""
    try:
        compiled.require_whole()
    except InvalidFile as error:
        raise error.at(place) from error
