"""Mappings of files, whose memory the process can give back: a page that is read again comes from the file."""

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from nnrt_hdi.errors import InvalidFile

MappingT = TypeVar("MappingT", bound=mmap.mmap)
# Bytes of a mapped file that are digested at a time.
_PIECE_BYTES = 8 << 20


class MappedFile(mmap.mmap):
    """Shared mapping of a file. Pages of another kind of mapping would lose their bytes when they are given back."""


def drop_pages(buffers: Iterable[Any]) -> None:
    """Return the memory of buffers in mapped files to the host. Other buffers keep theirs."""
    for data in buffers:
        if (mapping := mapped_file_of(data)) is not None:
            array = np.asarray(data)
            if array.nbytes and array.flags.forc:
                start = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
                begin = start - start % mmap.PAGESIZE
                mapping.madvise(mmap.MADV_DONTNEED, begin, start + array.nbytes - begin)


def mapped_file_of(data: Any) -> MappedFile | None:
    """Return the mapped file that a buffer is a part of, or None."""
    return mapping_of(data, MappedFile)


def mapping_of(data: Any, kind: type[MappingT]) -> MappingT | None:
    """Return the mapping of this kind that a buffer is a part of, or None."""
    while data is not None and not isinstance(data, kind):
        data = data.obj if isinstance(data, memoryview) else getattr(data, "base", None)
    return data


@contextmanager
def reading(data: memoryview) -> Iterator[None]:
    """Let the block read bytes, and give back their memory afterwards if they are in a mapped file.

    Raises:
        InvalidFile: Somebody has shortened the file. To read on would end this process.
    """
    mapping = mapped_file_of(data)
    if mapping is not None and mapping.size() < len(mapping):
        raise InvalidFile("the file was shortened while it was read")
    try:
        yield
    finally:
        drop_pages([data])


def sha256_of(*pieces: memoryview) -> bytes:
    """Return the SHA-256 of flat pieces together. Those of mapped files take no more memory than before.

    Raises what `reading` raises.
    """
    digest = hashlib.sha256()
    for data in pieces:
        step = max(data.nbytes, 1) if mapped_file_of(data) is None else _PIECE_BYTES
        for start in range(0, data.nbytes, step):
            piece = data[start : start + step]
            with reading(piece):
                digest.update(piece)
    return digest.digest()
