"""Files whose descriptors a client has sent, so that constants are read where they lie.

Nothing is believed of them: they are never mapped, for who cuts a file short would end the process, and only bytes that
the host has in memory are read, for a file system of the client's own could have this process wait for as long as it
likes.
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
from nnrt_hdi.shared_memory import has_few_left

_PLACE = "ShareBuffer"
# Of one session: one build reads one cache.
_MOST_FILES = 8
# A file that changed so shortly ago may change once more without another time of its last change.
_SETTLED_NS = 1_000_000_000
# Parts of files that are known to be what their digests say; the latest so many.
_MOST_KNOWN = 1024


class SharedFile:
    """A file that is open for reading, as long as somebody refers to this."""

    def __init__(self, fd: int, user_id: int) -> None:
        """Of the user whose process has sent the descriptor, which stays the caller's. Raises InvalidParameter for
        what is no file that can be read, OutOfMemory."""
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        if (
            flags & os.O_ACCMODE == os.O_WRONLY
            or flags & (os.O_PATH | os.O_DIRECT)
            or not _answers_at_once(fd)  # Before its status is asked for, which a file system of the client's may hold.
            or not stat.S_ISREG(os.fstat(fd).st_mode)
        ):
            raise InvalidParameter("the descriptor is not of a regular file that is open for reading", place=_PLACE)
        try:
            self._fd = os.dup(fd)
        except OSError as error:
            raise OutOfMemory(f"the file could not be kept: {error.strerror}", place=_PLACE) from error
        weakref.finalize(self, os.close, self._fd).atexit = False
        self._user_id = user_id
        # The state in which it was written back last.
        self._settled: Hashable = None
        if has_few_left(self._fd):
            raise OutOfMemory("the daemon has few descriptors left; raise its limit of open files", place=_PLACE)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, memory: memoryview, start: int) -> None:
        """Fill memory with the bytes from `start` on.

        Raises InvalidFile where there are fewer, Unsupported where they would have to be waited for.
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

    def settle(self, state: Hashable) -> None:
        """Have all changes after this state be told by `state`: dirty pages may change through mappings without a word.

        Raises Unsupported.
        """
        if state == self._settled:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise Unsupported(f"the client's file can't be written back: {error.strerror}; send the bytes") from error
        self._settled = state

    def state(self) -> Hashable:
        """Another value after each change of the file, and for each other file and user; None where that is not sure:
        where others than its user may write to it, or it has just been changed."""
        status = os.fstat(self._fd)
        is_own = status.st_uid == self._user_id and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not is_own or status.st_ctime_ns > time.time_ns() - _SETTLED_NS:
            return None
        return status.st_uid, Fingerprint.of(status)


def _answers_at_once(fd: int) -> bool:
    """Whether the host says at once what it has of a file in memory; of FUSE's or a network's it can't."""
    try:
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes of a file that are to be read into a constant."""

    file: SharedFile
    start: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


class FilePool:
    """The files of one session, by the numbers that its client chooses."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._files: dict[int, SharedFile] = {}
        self._is_open = True

    def adopt(self, fd: int, buffer_id: int, user_id: int) -> int:
        """Keep a file that a descriptor of the caller's leads to; one whose number is known stays as it is.

        Raises InvalidParameter, OutOfMemory, UnavailableDevice after `close`.
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
        """So many bytes of a file. Raises UnknownHandle or InvalidParameter."""
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
        """Forget all files. There can be no more of them."""
        with self._lock:
            self._is_open = False
        for buffer_id in list(self._files):
            self.release(buffer_id)


class KnownParts:
    """Parts of files in a state in which they have been digested, by any session of their user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, part: Hashable) -> bool:
        return part in self._known

    def add(self, part: Hashable) -> None:
        """Take note of a part: where it lies, its size, and its digest, which is right."""
        with self._lock:
            self._known[part] = None
            self._known.move_to_end(part)
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
