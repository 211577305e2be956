"""Memory that another process writes too, mapped so that nothing this one does with it can end it. Linux only."""

import fcntl
import mmap
import os
import resource
import stat

from nnrt_hdi.errors import InvalidParameter, OutOfMemory

_NAME = "nnrt-buffer"
# Of the process's descriptors, the part that memory may take.
_SHARABLE = 0.75


def has_few_left(fd: int) -> bool:
    """Whether the process has few descriptors left besides this new one, which is the lowest that was free.

    They are for what can't do without: calls, and the files of models.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and fd >= limit * _SHARABLE


def mapped(fd: int, length: int) -> memoryview:
    """The first bytes of a memfd; read-only where it is sealed against writing. The descriptor stays the caller's.

    Whoever touches a mapping behind the end of its file is ended with SIGBUS, so the file must be unable to shrink.
    Raises InvalidParameter for any other descriptor, OutOfMemory where it can't be mapped.
    """
    try:
        mapping_fd = os.dup(fd)  # As the mapping is about to: it keeps one of its own.
    except OSError as error:
        raise OutOfMemory(f"{length} bytes could not be mapped: {error.strerror}") from error
    os.close(mapping_fd)
    if has_few_left(mapping_fd):
        raise OutOfMemory("the daemon has few descriptors left; release buffers, or raise its limit of open files")
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    found = os.fstat(fd)  # After the seals: before, it could still shrink.
    # Files of huge pages can be sealed too, but touching them ends a process when the host has no such page left.
    if not stat.S_ISREG(found.st_mode) or not seals & fcntl.F_SEAL_SHRINK or found.st_blksize != mmap.PAGESIZE:
        raise InvalidParameter(
            "the descriptor is not of memory that is sure to stay; give one of memfd_create, of normal pages, sealed"
            " with F_SEAL_SHRINK"
        )
    if found.st_size < length:
        raise InvalidParameter(f"the memory has {found.st_size} bytes, not {length}; make it longer first")
    try:
        return memoryview(_mapping(fd, length))
    except OSError as error:
        raise OutOfMemory(f"{length} bytes could not be mapped: {error.strerror}") from error


def allocated(length: int) -> tuple[int, memoryview]:
    """New memory, all zero, and a descriptor of it to be given to others and closed. Raises OutOfMemory."""
    try:
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise OutOfMemory(f"{length} bytes could not be had: {error.strerror}") from error
    try:
        os.ftruncate(fd, length)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fd, mapped(fd, length)
    except BaseException:
        os.close(fd)
        raise


def _mapping(fd: int, length: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, length)
    except PermissionError:  # Sealed against writing.
        return mmap.mmap(fd, length, prot=mmap.PROT_READ)
