"""Parts that stay in their file until somebody needs their bytes."""

import errno
import os
import stat
import weakref
from pathlib import Path

import numpy as np

from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.part import Part

# In Welcome.features: the daemon reads constants from files whose descriptors come on its local socket.
FEATURE = "files"
# A file that is in memory at such steps most probably is so as a whole.
_STEP_BYTES = 1 << 20


class OpenFile:
    """A file that is read, and open as long as somebody refers to this."""

    def __init__(self, path: Path, flags: int = 0) -> None:
        """Raises OSError, also for what is no regular file."""
        # A pipe that nobody writes to would be waited for.
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
        """Tell if the host most probably has the byte there in memory, and tells; there is none behind the end."""
        try:
            return os.preadv(self.descriptor, [bytearray(1)], start, os.RWF_NOWAIT) == 1
        except (OSError, AttributeError):  # Of a file system, or a host, that can only wait.
            return False

    def fill(self, memory: memoryview, start: int) -> int:
        """Read the bytes from `start` on into memory, as far as there are any; how many. Raises OSError."""
        filled = 0
        while filled < memory.nbytes and (count := os.preadv(self.descriptor, [memory[filled:]], start + filled)):
            filled += count
        return filled


class FilePart(Part):
    """A part of a file. It is read when it is needed, and never mapped: who cuts the file short meanwhile would end
    this process."""

    __slots__ = ("_size_bytes", "file", "start")

    file: OpenFile
    start: int
    _size_bytes: int

    def __init__(self, file: OpenFile, start: int, size_bytes: int, sha256: bytes) -> None:
        for name, value in (("file", file), ("start", start), ("_size_bytes", size_bytes), ("sha256", sha256)):
            object.__setattr__(self, name, value)

    @property
    def data(self) -> memoryview:
        """All its bytes, read now. Raises InvalidFile where they are not there any more."""
        return self.piece(0, self._size_bytes)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def is_in_memory(self, start: int) -> bool:
        """Tell if it most probably can be read from there on without waiting for a disk."""
        return all(self.file.is_in_memory(self.start + at) for at in range(start, self._size_bytes, _STEP_BYTES))

    def piece(self, start: int, size: int) -> memoryview:
        memory = np.empty(max(min(size, self._size_bytes - start), 0), np.uint8).data
        self.fill(memory, start)
        return memory.toreadonly()

    def fill(self, memory: memoryview, start: int) -> None:
        try:
            count = self.file.fill(memory, self.start + start)
        except OSError as error:
            raise InvalidFile(f"it can't be read: {error.strerror}") from error
        if count < memory.nbytes:
            raise InvalidFile("it ends within a part; it was cut off")
