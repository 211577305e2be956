"""Mappings of files, whose memory the process can give back: a page that is read again comes from the file."""

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nnrt_hdi.errors import InvalidFile

# Bytes of a mapped file that are digested at a time.
_PIECE_BYTES = 8 << 20


class MappedFile(mmap.mmap):
    """Shared mapping of a file. Pages of another kind of mapping would lose their bytes when they are given back."""


def drop_pages(buffers: Iterable[Any]) -> None:
    """Give back the memory of those buffers that are in mapped files."""
    for data in buffers:
        if (mapping := mapped_file_of(data)) is not None:
            array = np.asarray(data)
            if array.nbytes and array.flags.forc:
                start = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
                begin = start - start % mmap.PAGESIZE
                mapping.madvise(mmap.MADV_DONTNEED, begin, start + array.nbytes - begin)


def mapped_file_of(data: Any) -> MappedFile | None:
    """Return the mapped file that a buffer is a part of, or None."""
    while data is not None and not isinstance(data, MappedFile):
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


def sha256_of(data: memoryview) -> bytes:
    """Return the SHA-256 of flat bytes. Those of a mapped file take no more memory than before. Raise as `reading`."""
    if mapped_file_of(data) is None:
        return hashlib.sha256(data).digest()
    digest = hashlib.sha256()
    for start in range(0, data.nbytes, _PIECE_BYTES):
        piece = data[start : start + _PIECE_BYTES]
        with reading(piece):
            digest.update(piece)
    return digest.digest()
