"""Large parts in files of their own that are read through once, and used where they lie as long as nothing changes."""

import hashlib
import mmap
import os
import stat
import threading
import time
from pathlib import Path
from weakref import WeakKeyDictionary

from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.files.container import read
from nnrt_hdi.files.file_systems import is_of_this_host
from nnrt_hdi.files.fingerprint import Fingerprint
from nnrt_hdi.part import Part

# What is read at a time.
_PIECE_BYTES = 1 << 20
# A file that changed so shortly ago may change once more without another time of its last change.
_SETTLED_NS = 1_000_000_000


class WholeParts:
    """Maps the files of one directory, and remembers which of them it has read through, in which state."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._may_map: bool | None = None
        self._states: dict[bytes, Fingerprint] = {}
        self._lock = threading.Lock()
        # Where those lie that are in use, and their sizes.
        self._mapped: WeakKeyDictionary[mmap.mmap, tuple[Path, int]] = WeakKeyDictionary()

    def damage(self) -> str:
        """Name a mapped file whose size has changed; return '' if none has."""
        with self._lock:
            mapped = list(self._mapped.items())
        for memory, (path, size) in mapped:
            if (found := memory.size()) != size:
                return f"{str(path)!r} has {found} bytes, and had {size} when it was mapped"
        return ""

    def part(self, path: Path, size: int, sha256: bytes) -> Part:
        """The part in a file: mapped, or read where the directory is of a file system that other hosts have too.

        Raises OSError, and InvalidFile unless every byte is as written, now or when the file was last changed.
        """
        if self._may_map is None:
            self._may_map = is_of_this_host(self._directory)
        if not self._may_map:
            return required(Part.of(read(path)), size, sha256)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            state = _state(descriptor)
            if self._states.get(sha256) != state:
                self._states.pop(sha256, None)
                began_ns = time.time_ns()
                _require_whole(descriptor, size, sha256)
                if _state(descriptor) == state and state.changed_ns < began_ns - _SETTLED_NS:
                    self._states[sha256] = state
            return Part(self._map(path, descriptor, size), sha256)
        finally:
            os.close(descriptor)

    def _map(self, path: Path, descriptor: int, size: int) -> memoryview:
        if not size:
            raise InvalidFile("its part is empty")
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        with self._lock:
            self._mapped[memory] = path, size
        return memoryview(memory)


def required(part: Part, size: int, sha256: bytes) -> Part:
    """The part, if it is the one of this size and digest. Raises InvalidFile."""
    if part.sha256 != sha256 or part.data.nbytes != size:
        raise InvalidFile(f"its part {sha256.hex()[:12]} is not what was written; the file is damaged")
    return part


def _require_whole(descriptor: int, size: int, sha256: bytes) -> None:
    """Read a file through. What can't be read is an OSError here, and would end the process when it is mapped."""
    digest, piece, at = hashlib.sha256(), bytearray(_PIECE_BYTES), 0
    while count := os.preadv(descriptor, [piece], at):
        digest.update(memoryview(piece)[:count])
        at += count
    if at != size or digest.digest() != sha256:
        raise InvalidFile(f"its part {sha256.hex()[:12]} is not what was written; the file is damaged")


def _state(descriptor: int) -> Fingerprint:
    """Take the fingerprint of a file. Raises InvalidFile for what is no regular one."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidFile("its part is no regular file")
    return Fingerprint.of(status)
