"""Memory that processes can share: the bytes of a mapped file."""

import errno
import fcntl
import mmap
import operator
import os
import stat
import tempfile
import weakref
from collections.abc import Sequence

import numpy as np
from typing_extensions import Self

from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.limits import MAX_BUFFER_BYTES
from nnrt_hdi.tensor import Array

_NO_MEMORY = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EAGAIN)


class Region:
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
        self._close_fd = weakref.finalize(self, os.close, fd)
        # A mapping begins at a page, a region anywhere.
        skipped = offset % mmap.ALLOCATIONGRANULARITY
        try:
            mapping = mmap.mmap(fd, size_bytes - offset + skipped, offset=offset - skipped)
        except BaseException:
            self._close_fd()
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
            raise OutOfMemory(f"{size_bytes} bytes could not be had: {error}") from error

    @classmethod
    def of_descriptor(cls, fd: int, size_bytes: int, offset: int = 0) -> Self:
        """What another descriptor leads to, which stays its owner's.

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
            if isinstance(error, OSError) and error.errno in _NO_MEMORY:
                raise OutOfMemory(f"descriptor {fd} could not be mapped: {error}") from error
            raise InvalidParameter(f"descriptor {fd} can't be mapped for writing: {error}") from error

    @property
    def is_sealed(self) -> bool:
        """Whether the memory is sure to stay, so that a daemon maps it, too."""
        if self._is_sealed is None:
            self._is_sealed = _is_sealed(self.fd)
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
        """How many bytes there are."""
        return len(self.view)

    def array(self, dtype: np.dtype[np.generic], shape: Sequence[int]) -> Array:
        """The first bytes as an array of theirs. Raises InvalidParameter where there are too few."""
        try:
            array: Array = np.ndarray(shape, dtype, self.view)
        except (TypeError, ValueError) as error:
            raise InvalidParameter(f"{len(self.view)} bytes can't hold {dtype}{list(shape)}") from error
        return array

    def close(self) -> None:
        """Give the memory back. Idempotent."""
        self._view = None
        self._close_fd()


def checked_size(size_bytes: int) -> int:
    """The size, if a region can have it. Raises InvalidParameter below 1, OutOfMemory beyond 1 GiB."""
    size_bytes = _whole(size_bytes, "the size")
    if size_bytes < 1:
        raise InvalidParameter(f"the size is {size_bytes}; use 1..{MAX_BUFFER_BYTES} bytes")
    if size_bytes > MAX_BUFFER_BYTES:
        raise OutOfMemory(f"the size is {size_bytes}; use 1..{MAX_BUFFER_BYTES} bytes")
    return size_bytes


def _is_sealed(fd: int) -> bool:
    try:
        is_of_usual_pages = os.fstat(fd).st_blksize == mmap.PAGESIZE  # The host may run out of huge ones.
        return is_of_usual_pages and bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except (OSError, AttributeError):  # Of a file that has no seals, or a host that knows none.
        return False


def _whole(number: int, what: str) -> int:
    try:
        return operator.index(number)
    except TypeError as error:
        raise InvalidParameter(f"{what} is {number!r}; give a whole number") from error


def _new_file(size_bytes: int, name: str) -> int:
    """Descriptor of a file without a name, of that many zeros."""
    is_sealable = hasattr(os, "memfd_create")
    if is_sealable:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size_bytes)
        if is_sealable:  # So that nobody can pull it from under a mapping.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    except BaseException:
        os.close(fd)
        raise
    return fd
