"""Regions of shared memory, read and written in parts."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnrt_client.serving.shared_memory import SharedRegion
from nnrt_hdi.errors import OutOfMemory

SIZE = 1 << 16


@contextmanager
def files_up_to(size_bytes: int) -> Iterator[None]:
    """Let files of this process have no more bytes, as if the host had no memory for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_tensor_that_was_written_in_part_is_an_error() -> None:
    path = Path(f"/dev/shm/nnrt-test-{os.getpid()}")  # noqa: S108
    path.write_bytes(bytes(SIZE))
    try:
        region = SharedRegion("r", path.name, 0, SIZE)
        data = b"1" * SIZE
        with files_up_to(SIZE // 2), pytest.raises(OutOfMemory, match="can't be written"):
            region.write(0, data)
        region.write(0, data)
        assert region.read(0, SIZE) == data
    finally:
        path.unlink()
