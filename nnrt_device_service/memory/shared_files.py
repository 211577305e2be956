"""Files whose descriptors a client has sent, so that the daemon reads constants from them.

The daemon doesn't trust these files. It never maps them, because a client that truncates a mapped file would crash the
process. It reads only bytes that the host has in memory, because a file system of the client's own could block forever.
"""

import fcntl
import os
import stat
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.errors import InvalidFile, InvalidParameter, OutOfMemory, UnavailableDevice, UnknownHandle, Unsupported
from nnrt_hdi.files.fingerprint import Fingerprint
from nnrt_hdi.limits import FIRST_CLIENT_BUFFER_ID
from nnrt_hdi.shared_memory import has_few_descriptors

_PLACE = "ShareBuffer"
# Per session. One build reads one cache file.
_MOST_FILES = 8
# A file that changed so recently may change again without a new ctime.
_SETTLED_NS = 1_000_000_000
# Number of latest parts of files whose digests are known to be right.
_MOST_KNOWN = 1024


class SharedFile:
    """File of a client, open for reading as long as this object exists."""

    def __init__(self, fd: int, user_id: int) -> None:
        """Duplicate the descriptor, which a process of the user has sent; the caller closes the original.

        Raises InvalidParameter if it is no regular file that can be read without waiting, and OutOfMemory if the
        process has too few descriptors left.
        """
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        if (
            flags & os.O_ACCMODE == os.O_WRONLY
            or flags & (os.O_PATH | os.O_DIRECT)
            or not _reads_without_waiting(fd)  # Before fstat, for which a client's own file system could block.
            or not stat.S_ISREG(os.fstat(fd).st_mode)
        ):
            raise InvalidParameter("the descriptor is not of a regular file that is open for reading", place=_PLACE)
        try:
            self._fd = os.dup(fd)
        except OSError as error:
            raise OutOfMemory(f"the file could not be kept: {error.strerror}", place=_PLACE) from error
        weakref.finalize(self, os.close, self._fd).atexit = False
        self._user_id = user_id
        # State of the file when `write_back` last wrote it back.
        self._written_back: Hashable = None
        if has_few_descriptors(self._fd):
            raise OutOfMemory("the daemon has few descriptors left; raise its limit of open files", place=_PLACE)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, memory: memoryview, start: int) -> None:
        """Fill `memory` with the file's bytes from `start` on.

        Raises InvalidFile if the file ends too early, and Unsupported if the read would have to wait.
        """
        try:
            while memory.nbytes:
                count = os.preadv(self._fd, [memory], start, os.RWF_NOWAIT)
                if not count:
                    raise InvalidFile("the client's file ends within a constant; it was cut off")
                memory, start = memory[count:], start + count
        except (OSError, OverflowError) as error:
            raise Unsupported(
                f"the client's file can't be read without waiting for it: {error}; send the bytes"
            ) from error

    def write_back(self, state: Hashable) -> None:
        """Write the file's dirty pages to storage, so that `state` changes with every later write.

        (Writes through a mapping to pages that are already dirty don't change the file's times.) Raises Unsupported if
        the file can't be written back.
        """
        if state == self._written_back:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise Unsupported(f"the client's file can't be written back: {error.strerror}; send the bytes") from error
        self._written_back = state

    def state(self) -> Hashable:
        """Return a value that differs after each change of the file, and between files and users.

        Returns None if that is not certain: if other users may write to the file, or if it has just changed.
        """
        status = os.fstat(self._fd)
        is_own = status.st_uid == self._user_id and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not is_own or status.st_ctime_ns > time.time_ns() - _SETTLED_NS:
            return None
        return status.st_uid, Fingerprint.of(status)


def _reads_without_waiting(fd: int) -> bool:
    """Return whether the host supports reading a file without waiting; FUSE and network file systems don't."""
    try:
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Part of a file that is to be read into a constant."""

    file: SharedFile
    start: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


class FilePool:
    """Files of one session, by the buffer ids that its client chooses."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._files: dict[int, SharedFile] = {}
        self._is_open = True

    def adopt(self, fd: int, buffer_id: int, user_id: int) -> int:
        """Keep the file of a descriptor under an id, unless the id is in use already; the caller closes the descriptor.

        Raises InvalidParameter, OutOfMemory, and UnavailableDevice after `close`.
        """
        if buffer_id < FIRST_CLIENT_BUFFER_ID:
            raise InvalidParameter(f"buffer_id is {buffer_id}; use {FIRST_CLIENT_BUFFER_ID} and above", place=_PLACE)
        if buffer_id in self._files:
            return buffer_id
        file = SharedFile(fd, user_id)
        self._budget.reserve(0)
        try:
            self._keep(buffer_id, file)
        except BaseException:
            self._budget.release(0)
            raise
        return buffer_id

    def _keep(self, buffer_id: int, file: SharedFile) -> None:
        with self._lock:
            if not self._is_open:
                raise UnavailableDevice("the session has ended")
            if len(self._files) >= _MOST_FILES:
                raise OutOfMemory(f"this session shares {_MOST_FILES} files, the most; release one", place=_PLACE)
            if buffer_id in self._files:
                raise InvalidParameter(f"another call shares buffer {buffer_id} at the same time", place=_PLACE)
            self._files[buffer_id] = file

    def region(self, buffer_id: int, start: int, size_bytes: int) -> FileRegion:
        """Return a part of a file; raise UnknownHandle, or InvalidParameter if it passes the end."""
        if (file := self._files.get(buffer_id)) is None:
            raise UnknownHandle(f"this session has no buffer {buffer_id}")
        if start + size_bytes > file.size_bytes:
            raise InvalidParameter(
                f"{size_bytes} bytes at {start} pass the end; it has {file.size_bytes}", place=f"buffer {buffer_id}"
            )
        return FileRegion(file, start, size_bytes)

    def __contains__(self, buffer_id: int) -> bool:
        return buffer_id in self._files

    def release(self, buffer_id: int) -> None:
        """Forget a file, if it exists."""
        with self._lock:
            is_there = self._files.pop(buffer_id, None) is not None
        if is_there:
            self._budget.release(0)

    def close(self) -> None:
        """Forget all files and accept no more."""
        with self._lock:
            self._is_open = False
        for buffer_id in list(self._files):
            self.release(buffer_id)


class KnownParts:
    """Parts of files, each in a certain state, whose digests a session has checked. Sessions of one user share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, part: Hashable) -> bool:
        return part in self._known

    def add(self, part: Hashable) -> None:
        """Note a part whose digest is right: its origin, its size, and its digest."""
        with self._lock:
            self._known[part] = None
            self._known.move_to_end(part)
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
