"""Memory that processes share: the bytes of a mapped file, which neither of them can pull from under the other."""

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
# Of the process's descriptors, the part that memory may take.
_SHARABLE = 0.75


class _Closer(weakref.ref["SharedMemory"]):
    """Closes the descriptor of memory that goes. Python drops what a signal handler raises in a function that is called
    when an object goes, so what is called then is no Python code."""

    # Does nothing: what each has of its own is taken out when it is called.
    close: Callable[[], object] = dict


# By their descriptors, until these are used again.
_closers: dict[int, _Closer] = {}


class SharedMemory:
    """The bytes [offset, size) of a file, mapped for reading and writing, and a descriptor of the file.

    Who maps the same file sees the same bytes. Views stay good after `close`: it closes the descriptor; the mapping,
    which has one of its own, goes with the last view.
    """

    def __init__(self, fd: int, size_bytes: int, offset: int = 0) -> None:
        """Takes over the descriptor, also where it raises: OSError or ValueError for what can't be mapped."""
        self.fd = fd
        self.size_bytes = size_bytes
        self.offset = offset
        self._is_sealed: bool | None = None
        closer = self._closer = _closers[fd] = _Closer(self, operator.methodcaller("close"))
        closer.close = partial(os.close, fd)
        # A mapping begins at a page, a region anywhere.
        skipped = offset % mmap.ALLOCATIONGRANULARITY
        try:
            mapping = mmap.mmap(fd, size_bytes - offset + skipped, offset=offset - skipped)
        except BaseException:
            self.close()
            raise
        self._view: memoryview | None = memoryview(mapping)[skipped:]

    @classmethod
    def allocate(cls, size_bytes: int, name: str = "nnrt-tensor") -> Self:
        """New memory, all zero, whose file shows that name to those who look.

        Raises InvalidParameter for a size below 1, OutOfMemory for one beyond 1 GiB.
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
        """Map what another descriptor leads to, which stays its owner's.

        Raises InvalidParameter unless it can be mapped for writing, as far as `size_bytes`, and the region is not
        empty.
        """
        size_bytes = checked_size(size_bytes)
        fd, offset = _whole(fd, "the descriptor"), _whole(offset, "the offset")
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
        """True if the memory is sure to stay, so that a daemon maps it, too."""
        if self._is_sealed is None:
            self._is_sealed = _lasting(self.fd) is not None
        return self._is_sealed

    @property
    def view(self) -> memoryview:
        """The bytes, writable. Raises InvalidParameter after `close`."""
        view = self._view
        if view is None:
            raise InvalidParameter("the memory has been given back")
        return view

    @property
    def room_bytes(self) -> int:
        """Number of bytes that there are."""
        return len(self.view)

    def array(self, dtype: np.dtype[np.generic], shape: Sequence[int]) -> Array:
        """The first bytes as an array of theirs. Raises InvalidParameter where there are too few."""
        try:
            array: Array = np.ndarray(shape, dtype, self.view)
        except (TypeError, ValueError) as error:
            if raised_by_handler(error):
                raise
            raise InvalidParameter(f"{len(self.view)} bytes can't hold {dtype}{list(shape)}") from error
        return array

    def close(self) -> None:
        """Give the memory back. Idempotent."""
        self._view = None
        if (close := self._closer.__dict__.pop("close", None)) is not None:
            close()


def checked_size(size_bytes: int) -> int:
    """The size, if a region can have it. Raises InvalidParameter below 1, OutOfMemory beyond 1 GiB."""
    size_bytes = _whole(size_bytes, "the size")
    if size_bytes < 1:
        raise InvalidParameter(f"the size is {size_bytes}; use 1..{MAX_BUFFER_BYTES} bytes")
    if size_bytes > MAX_BUFFER_BYTES:
        raise OutOfMemory(f"the size is {size_bytes}; use 1..{MAX_BUFFER_BYTES} bytes")
    return size_bytes


# ---- memory that a peer may write, or has made


def allocated(size_bytes: int, name: str) -> tuple[int, memoryview]:
    """New memory, all zero, of which nobody can change the size, and a descriptor of it to be given to others and
    closed. Raises OutOfMemory."""
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
    """The first bytes of a memfd that a peer has sent; read-only where it is sealed against writing. The descriptor
    stays the caller's.

    Whoever touches a mapping behind the end of its file is ended with SIGBUS, so the file must be unable to shrink.
    Raises InvalidParameter for any other descriptor, OutOfMemory where it can't be mapped.
    """
    found = _lasting(fd)
    if found is None:
        raise InvalidParameter(
            "the descriptor is not of memory that is sure to stay; give one of memfd_create, of normal pages, sealed"
            " with F_SEAL_SHRINK"
        )
    if found.st_size < size_bytes:
        raise InvalidParameter(f"the memory has {found.st_size} bytes, not {size_bytes}; make it longer first")
    try:
        mapping_fd = os.dup(fd)  # As the mapping is about to: it keeps one of its own.
    except OSError as error:
        raise OutOfMemory(f"{size_bytes} bytes could not be mapped: {error.strerror}") from error
    os.close(mapping_fd)
    if has_few_left(mapping_fd):
        raise OutOfMemory("the daemon has few descriptors left; release buffers, or raise its limit of open files")
    try:
        return memoryview(_mapping(fd, size_bytes))
    except OSError as error:
        raise OutOfMemory(f"{size_bytes} bytes could not be mapped: {error.strerror}") from error


def has_few_left(fd: int) -> bool:
    """Tell whether the process has few descriptors left besides this new one, which is the lowest that was free.

    They are for what can't do without: calls, and the files of models.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and fd >= limit * _SHARABLE


def _mapping(fd: int, size_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size_bytes)
    except PermissionError:  # Sealed against writing.
        return mmap.mmap(fd, size_bytes, prot=mmap.PROT_READ)


# ---- files


def _lasting(fd: int) -> os.stat_result | None:
    """Status of a file that can't be pulled from under its mappings; None for any other."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        found = os.fstat(fd)  # After the seals: before, it could still shrink.
    except (OSError, AttributeError) as error:  # Of a file that has no seals, or a host that knows none.
        if raised_by_handler(error):
            raise
        return None
    # Files of huge pages can be sealed too, but touching them ends a process when the host has no such page left.
    stays = seals & fcntl.F_SEAL_SHRINK and stat.S_ISREG(found.st_mode) and found.st_blksize == mmap.PAGESIZE
    return found if stays else None


def _whole(number: int, what: str) -> int:
    try:
        return operator.index(number)
    except TypeError as error:
        raise InvalidParameter(f"{what} is {number!r}; give a whole number") from error


def _new_file(size_bytes: int, name: str, may_grow: bool = True) -> int:
    """Descriptor of a file in no directory, of that many zeros."""
    is_sealable = hasattr(os, "memfd_create")
    if is_sealable:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size_bytes)
        if is_sealable:  # So that nobody can pull it from under a mapping.
            others = 0 if may_grow else fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | others)
    except BaseException:
        os.close(fd)
        raise
    return fd
