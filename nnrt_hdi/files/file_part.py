"""Parts that stay in their file until somebody needs the bytes."""

import errno
import os
import stat
import weakref
from pathlib import Path

import numpy as np

from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.part import Part

# In Welcome.features: the daemon reads constants from files, given by descriptor on its local socket.
FEATURE = "files"
# A file that is in memory at these steps is probably in memory as a whole.
_STEP_BYTES = 1 << 20


class OpenFile:
    """File that stays open as long as this object is referred to."""

    def __init__(self, path: Path, flags: int = 0) -> None:
        """Open a file. Raise OSError if it can't be opened or is no regular file."""
        # Opening a pipe that nobody writes to would wait.
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind, number = (
                (IsADirectoryError, errno.EISDIR) if stat.S_ISDIR(status.st_mode) else (OSError, errno.EINVAL)
            )
            raise kind(number, "it is no regular file", str(path))
        self.size_bytes = status.st_size

    def is_in_memory(self, start: int) -> bool:
        """Return whether the host probably has the byte at `start` in memory; False if unknown, or if there is none."""
        try:
            return os.preadv(self.descriptor, [bytearray(1)], start, os.RWF_NOWAIT) == 1
        except (OSError, AttributeError):  # The file system or host can only wait.
            return False

    def fill(self, memory: memoryview, start: int) -> int:
        """Fill memory with the bytes from `start` on, and return how many there were. Raise OSError."""
        filled = 0
        while filled < memory.nbytes and (count := os.preadv(self.descriptor, [memory[filled:]], start + filled)):
            filled += count
        return filled


class UnreadPart(Part):
    """Part that is read, by `fill`, when somebody needs the bytes."""

    __slots__ = ()

    @property
    def data(self) -> memoryview:
        """All bytes, read now. Raises InvalidFile if they aren't there any more."""
        return self.piece(0, self.size_bytes)

    def piece(self, start: int, size: int) -> memoryview:
        memory = np.empty(max(min(size, self.size_bytes - start), 0), np.uint8).data
        self.fill(memory, start)
        return memory.toreadonly()


class FilePart(UnreadPart):
    """Part of a file, read when needed.

    It is never mapped: shortening a mapped file would end this process.
    """

    __slots__ = ("_size_bytes", "file", "start")

    file: OpenFile
    start: int
    _size_bytes: int

    def __init__(self, file: OpenFile, start: int, size_bytes: int, sha256: bytes) -> None:
        for name, value in (("file", file), ("start", start), ("_size_bytes", size_bytes), ("sha256", sha256)):
            object.__setattr__(self, name, value)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def is_in_memory(self, start: int) -> bool:
        """Return whether the bytes from `start` on can probably be read without waiting for a disk."""
        return all(self.file.is_in_memory(self.start + at) for at in range(start, self._size_bytes, _STEP_BYTES))

    def fill(self, memory: memoryview, start: int) -> None:
        try:
            count = self.file.fill(memory, self.start + start)
        except OSError as error:
            raise InvalidFile(f"it can't be read: {error.strerror}") from error
        if count < memory.nbytes:
            raise InvalidFile("it ends within a part; it was cut off")
