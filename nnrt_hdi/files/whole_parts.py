"""Large parts in files of their own, which are read through once and mapped as long as nothing changes."""

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
from nnrt_hdi.files.fingerprint import Fingerprint, digest_of
from nnrt_hdi.mapped_files import MappedFile
from nnrt_hdi.part import Part

# A file that changed this recently may change again without a new modification time.
_SETTLED_NS = 1_000_000_000


class WholeParts:
    """Mapper of files in one directory; it remembers which files it has checked, in which state."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._may_map: bool | None = None
        self._states: dict[bytes, Fingerprint] = {}
        self._lock = threading.Lock()
        # Paths and sizes of the mappings in use.
        self._mapped: WeakKeyDictionary[mmap.mmap, tuple[Path, int]] = WeakKeyDictionary()

    def damage(self) -> str:
        """Return a mapped file whose size has changed; empty if none."""
        with self._lock:
            mapped = list(self._mapped.items())
        for memory, (path, size) in mapped:
            if (found := memory.size()) != size:
                return f"{str(path)!r} has {found} bytes, and had {size} when it was mapped"
        return ""

    def part(self, path: Path, size: int, sha256: bytes) -> Part:
        """Return the part in a file: mapped; or read, if other hosts have the file system, too.

        Raises:
            OSError: The file can't be read.
            InvalidFile: A byte differs from what was written, now or when the file last changed.
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
        memory = MappedFile(descriptor, size, access=mmap.ACCESS_READ)
        with self._lock:
            self._mapped[memory] = path, size
        return memoryview(memory)


def required(part: Part, size: int, sha256: bytes) -> Part:
    """Return the part if it has this size and digest. Raise InvalidFile."""
    if part.sha256 != sha256 or part.data.nbytes != size:
        raise InvalidFile(f"its part {sha256.hex()[:12]} is not what was written; the file is damaged")
    return part


def _require_whole(descriptor: int, size: int, sha256: bytes) -> None:
    """Read a whole file, and raise InvalidFile unless it has this size and digest. Raise OSError."""
    if digest_of(descriptor) != (size, sha256):
        raise InvalidFile(f"its part {sha256.hex()[:12]} is not what was written; the file is damaged")


def _state(descriptor: int) -> Fingerprint:
    """Return the fingerprint of a regular file. Raise InvalidFile for anything else."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidFile("its part is no regular file")
    return Fingerprint.of(status)
