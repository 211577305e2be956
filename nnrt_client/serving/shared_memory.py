"""System shared memory that clients on the same host register, and that requests read from and write to.

Nobody maps it: a client that truncated a region would kill whoever reads it there. `pread` only returns less.
"""

import os
import re
import stat
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Buffer

from nnrt_client.serving.errors import AlreadyRegistered
from nnrt_hdi.errors import InvalidParameter, InvalidPath, OutOfMemory, Unsupported
from nnrt_hdi.tensor import flat_bytes

# Where Linux has what shm_open names.
_FOLDER = Path("/dev/shm")  # noqa: S108
_KEY = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9._-]{0,250}")
_MOST_REGIONS = 1024


class SharedRegion:
    """Region that a client registered under a name. It stays open while anything refers to it."""

    __slots__ = ("__weakref__", "_descriptor", "key", "name", "offset", "size_bytes")

    def __init__(self, name: str, key: str, offset: int, size_bytes: int) -> None:
        """Open it. Raises InvalidParameter, InvalidPath or OutOfMemory."""
        self.name = name
        self.key = key
        self.offset = offset
        self.size_bytes = size_bytes
        self._descriptor = _open(key.lstrip("/"), offset + size_bytes, f"shared memory {name!r}")
        weakref.finalize(self, os.close, self._descriptor)

    def is_same(self, other: "SharedRegion") -> bool:
        """Return whether both are the same part of the same memory."""
        mine, others = os.fstat(self._descriptor), os.fstat(other._descriptor)
        return os.path.samestat(mine, others) and (self.offset, self.size_bytes) == (other.offset, other.size_bytes)

    def read(self, offset: int, size_bytes: int) -> Buffer:
        """Return bytes of the region. Raises InvalidParameter if the client has truncated it."""
        data, at = bytearray(size_bytes), 0
        # In several pieces, because Linux reads and writes less than 2 GiB at a time.
        while at < size_bytes:
            count = os.preadv(self._descriptor, [memoryview(data)[at:]], self.offset + offset + at)
            if not count:
                raise InvalidParameter("its memory has been truncated", place=f"shared memory {self.name!r}")
            at += count
        return data

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes to the region. Raises OutOfMemory if the host has no memory for them."""
        view, at = flat_bytes(data), 0
        try:
            while at < len(view):
                at += os.pwrite(self._descriptor, view[at:], self.offset + offset + at)
        except OSError as error:
            raise OutOfMemory(f"it can't be written: {error.strerror}", place=f"shared memory {self.name!r}") from error


@dataclass(frozen=True, slots=True)
class Region:
    """Part of a registered region, for one tensor."""

    of: SharedRegion
    offset: int
    size_bytes: int

    def read(self) -> Buffer:
        """Return its bytes."""
        return self.of.read(self.offset, self.size_bytes)

    def write(self, data: Buffer, place: str) -> int:
        """Write a tensor to it, and return the number of bytes. Raises InvalidParameter if it is too small."""
        size = memoryview(data).nbytes
        if size > self.size_bytes:
            raise InvalidParameter(
                f"it has {size} bytes; its part of shared memory {self.of.name!r} has {self.size_bytes}", place=place
            )
        self.of.write(self.offset, data)
        return size


class SharedMemory:
    """Registered regions by name, for any number of threads. A request that uses a region keeps it."""

    def __init__(self, *, is_offered: bool) -> None:
        """Create it. Unless it `is_offered`, nobody may register: remote clients would reach memory of this host."""
        self.is_offered = is_offered
        self._regions: dict[str, SharedRegion] = {}
        self._lock = threading.Lock()

    def register(self, name: str, key: str, offset: int, size_bytes: int) -> None:
        """Open a region. Registering the same again does nothing.

        Raises:
            Unsupported: The server offers no shared memory.
            AlreadyRegistered: The name is that of another region.
            InvalidParameter: The key, offset or size is wrong.
            InvalidPath: There is no such memory.
            OutOfMemory: There are too many regions.
        """
        place = f"shared memory {name!r}"
        if not self.is_offered:
            raise Unsupported("the server offers no shared memory; start it with --shared-memory", place=place)
        if not name or not _KEY.fullmatch(key):
            raise InvalidParameter(f"the key is {key!r}; use the name of a region, as for shm_open", place=place)
        if offset < 0 or size_bytes <= 0 or offset + size_bytes >= 1 << 63:
            raise InvalidParameter(
                f"the offset is {offset} and the size {size_bytes}; use 0 or more, and 1 or more", place=place
            )
        region = SharedRegion(name, key, offset, size_bytes)
        with self._lock:
            known = self._regions.get(name)
            if known is None and len(self._regions) >= _MOST_REGIONS:
                raise OutOfMemory(f"{_MOST_REGIONS} regions are registered; unregister some", place=place)
            if known is not None and not known.is_same(region):
                raise AlreadyRegistered(f"it is {known.key!r} at {known.offset}; unregister it first", place=place)
            self._regions.setdefault(name, region)

    def unregister(self, name: str) -> None:
        """Forget a region; an empty name stands for all. A name that isn't registered does nothing."""
        with self._lock:
            if name:
                self._regions.pop(name, None)
            else:
                self._regions.clear()

    def regions(self, name: str = "") -> Mapping[str, SharedRegion]:
        """Return all regions, or the one with the name. Raises InvalidPath for an unknown name."""
        with self._lock:
            return {name: self._find(name)} if name else dict(self._regions)

    def part(self, name: str, offset: int, size_bytes: int, place: str) -> Region:
        """Return a part of a region for a tensor.

        Raises:
            InvalidPath: The name is unknown.
            InvalidParameter: The part is not within the region.
        """
        with self._lock:
            region = self._find(name)
        if offset < 0 or size_bytes < 0 or offset + size_bytes > region.size_bytes:
            raise InvalidParameter(
                f"it lies at {offset} to {offset + size_bytes} of shared memory {name!r}, which has"
                f" {region.size_bytes} bytes",
                place=place,
            )
        return Region(region, offset, size_bytes)

    def _find(self, name: str) -> SharedRegion:
        try:
            return self._regions[name]
        except KeyError:
            raise InvalidPath(f"no shared memory is registered as {name!r}; there is {list(self._regions)}") from None


def _open(key: str, least_bytes: int, place: str) -> int:
    try:
        descriptor = os.open(_FOLDER / key, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidPath(f"shared memory {key!r} can't be opened: {error.strerror}", place=place) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size < least_bytes:
        os.close(descriptor)
        raise InvalidParameter(f"{key!r} has {found.st_size} bytes; the region ends at {least_bytes}", place=place)
    return descriptor
