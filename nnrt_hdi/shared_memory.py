"""Shared memory: a mapped file that neither process can take away from the other."""

import errno
import fcntl
import mmap
import operator
import os
import resource
import stat
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from typing_extensions import Self

from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.limits import MAX_BUFFER_BYTES
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.tensor import Array

_NO_MEMORY = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EAGAIN)
# Fraction of the process's descriptors that shared memory may use.
_SHARABLE = 0.75


class _Closer(weakref.ref["SharedMemory"]):
    """Weak reference to a SharedMemory that closes its descriptor when it is freed.

    It runs no Python code: Python could call a signal handler there, and would drop the exception that it raises.
    """

    # Does nothing: each instance has its own function, which is removed when it is called.
    close: Callable[[], object] = dict


# By descriptor, until its number is used again.
_closers: dict[int, _Closer] = {}


class SharedMemory:
    """Bytes [offset, size) of a file, mapped for reading and writing, with a descriptor of the file.

    Whoever maps the same file sees the same bytes. `close` closes the descriptor; the mapping lives until the last view
    is freed.
    """

    def __init__(self, fd: int, size_bytes: int, offset: int = 0) -> None:
        """Map a file. Take over the descriptor, even if this raises OSError or ValueError."""
        self.fd = fd
        self.size_bytes = size_bytes
        self.offset = offset
        self._is_sealed: bool | None = None
        closer = self._closer = _closers[fd] = _Closer(self, operator.methodcaller("close"))
        closer.close = partial(os.close, fd)
        # A mapping starts at a page, a region anywhere.
        skipped = offset % mmap.ALLOCATIONGRANULARITY
        try:
            mapping = mmap.mmap(fd, size_bytes - offset + skipped, offset=offset - skipped)
        except BaseException:
            self.close()
            raise
        self._view: memoryview | None = memoryview(mapping)[skipped:]

    @classmethod
    def allocate(cls, size_bytes: int, name: str = "nnrt-tensor") -> Self:
        """Allocate memory full of zeros. Tools of the host show `name`.

        Raises:
            InvalidParameter: The size is below 1.
            OutOfMemory: The size is above 1 GiB, or there is no memory.
        """
        size_bytes = checked_size(size_bytes)
        try:
            return cls(_new_file(size_bytes, name), size_bytes)
        except OSError as error:
            if raised_by_handler(error):
                raise
            raise OutOfMemory(f"{size_bytes} bytes could not be had: {error}") from error

    @classmethod
    def of_descriptor(cls, fd: int, size_bytes: int, offset: int = 0) -> Self:
        """Map the file of a descriptor that the caller still owns.

        Raises:
            InvalidParameter: The file can't be mapped for writing up to `size_bytes`, or the region is empty.
        """
        size_bytes = checked_size(size_bytes)
        fd, offset = _integer(fd, "the descriptor"), _integer(offset, "the offset")
        if not 0 <= offset < size_bytes:
            raise InvalidParameter(f"the offset is {offset} of {size_bytes} bytes; use 0..{size_bytes - 1}")
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_size < size_bytes:
                raise InvalidParameter(f"descriptor {fd} has {found.st_size} bytes, not {size_bytes}")
            return cls(os.dup(fd), size_bytes, offset)
        except (OSError, ValueError, OverflowError) as error:
            if raised_by_handler(error):
                raise
            if isinstance(error, OSError) and error.errno in _NO_MEMORY:
                raise OutOfMemory(f"descriptor {fd} could not be mapped: {error}") from error
            raise InvalidParameter(f"descriptor {fd} can't be mapped for writing: {error}") from error

    @property
    def is_sealed(self) -> bool:
        """True if the memory is sealed against shrinking, so that a daemon maps it."""
        if self._is_sealed is None:
            self._is_sealed = _unshrinkable(self.fd) is not None
        return self._is_sealed

    @property
    def view(self) -> memoryview:
        """Writable view of the bytes. Raises InvalidParameter after `close`."""
        view = self._view
        if view is None:
            raise InvalidParameter("the memory has been given back")
        return view

    @property
    def room_bytes(self) -> int:
        """Bytes of the region."""
        return len(self.view)

    def array(self, dtype: np.dtype[np.generic], shape: Sequence[int]) -> Array:
        """Return the first bytes as an array. Raise InvalidParameter if there are too few."""
        try:
            array: Array = np.ndarray(shape, dtype, self.view)
        except (TypeError, ValueError) as error:
            if raised_by_handler(error):
                raise
            raise InvalidParameter(f"{len(self.view)} bytes can't hold {dtype}{list(shape)}") from error
        return array

    def close(self) -> None:
        """Free the memory. Idempotent."""
        self._view = None
        if (close := self._closer.__dict__.pop("close", None)) is not None:
            close()


def checked_size(size_bytes: int) -> int:
    """Return a valid size. Raise InvalidParameter below 1, OutOfMemory above 1 GiB."""
    size_bytes = _integer(size_bytes, "the size")
    if size_bytes < 1:
        raise InvalidParameter(f"the size is {size_bytes}; use 1..{MAX_BUFFER_BYTES} bytes")
    if size_bytes > MAX_BUFFER_BYTES:
        raise OutOfMemory(f"the size is {size_bytes}; use 1..{MAX_BUFFER_BYTES} bytes")
    return size_bytes


# ---- memory that a peer may write, or has allocated


def allocated(size_bytes: int, name: str) -> tuple[int, memoryview]:
    """Allocate memory full of zeros whose size nobody can change.

    Returns:
        A descriptor for other processes, which the caller closes, and a view.

    Raises:
        OutOfMemory: There is no memory.
    """
    try:
        fd = _new_file(size_bytes, name, may_grow=False)
    except OSError as error:
        raise OutOfMemory(f"{size_bytes} bytes could not be had: {error.strerror}") from error
    try:
        return fd, mapped(fd, size_bytes)
    except BaseException:
        os.close(fd)
        raise


def mapped(fd: int, size_bytes: int) -> memoryview:
    """Map the first bytes of a memfd that a peer sent; read-only if the memfd is sealed against writing.

    Access behind the end of a mapped file ends the process with SIGBUS, so the file must be sealed against shrinking.
    The descriptor stays the caller's.

    Raises:
        InvalidParameter: It is no memfd sealed against shrinking.
        OutOfMemory: It can't be mapped.
    """
    found = _unshrinkable(fd)
    if found is None:
        raise InvalidParameter(
            "the descriptor is not of memory that is sure to stay; give one of memfd_create, of normal pages, sealed"
            " with F_SEAL_SHRINK"
        )
    if found.st_size < size_bytes:
        raise InvalidParameter(f"the memory has {found.st_size} bytes, not {size_bytes}; make it longer first")
    try:
        mapping_fd = os.dup(fd)  # The mapping keeps a duplicate, too.
    except OSError as error:
        raise OutOfMemory(f"{size_bytes} bytes could not be mapped: {error.strerror}") from error
    os.close(mapping_fd)
    if has_few_descriptors(mapping_fd):
        raise OutOfMemory("the daemon has few descriptors left; release buffers, or raise its limit of open files")
    try:
        return memoryview(_mapping(fd, size_bytes))
    except OSError as error:
        raise OutOfMemory(f"{size_bytes} bytes could not be mapped: {error.strerror}") from error


def has_few_descriptors(fd: int) -> bool:
    """Return whether the process has few file descriptors left, which it needs for calls and for files of models.

    `fd` is a new descriptor. Such a descriptor gets the lowest free number, so a high number means that few are left.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and fd >= limit * _SHARABLE


def _mapping(fd: int, size_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size_bytes)
    except PermissionError:  # Sealed against writing.
        return mmap.mmap(fd, size_bytes, prot=mmap.PROT_READ)


# ---- files


def _unshrinkable(fd: int) -> os.stat_result | None:
    """Return the status of a file that is sealed against shrinking, or None."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        found = os.fstat(fd)  # After reading the seals: before, it could still shrink.
    except (OSError, AttributeError) as error:  # A file without seals, or a host that has none.
        if raised_by_handler(error):
            raise
        return None
    # Files of huge pages can be sealed, too, but touching them ends a process if the host has no huge page left.
    stays = seals & fcntl.F_SEAL_SHRINK and stat.S_ISREG(found.st_mode) and found.st_blksize == mmap.PAGESIZE
    return found if stays else None


def _integer(number: int, what: str) -> int:
    try:
        return operator.index(number)
    except TypeError as error:
        raise InvalidParameter(f"{what} is {number!r}; give a whole number") from error


def _new_file(size_bytes: int, name: str, may_grow: bool = True) -> int:
    """Return the descriptor of a new file of zeros, in no directory."""
    is_sealable = hasattr(os, "memfd_create")
    if is_sealable:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size_bytes)
        if is_sealable:  # So that nobody can shrink it under a mapping.
            others = 0 if may_grow else fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | others)
    except BaseException:
        os.close(fd)
        raise
    return fd
