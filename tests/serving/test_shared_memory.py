"""Regions of shared memory, read and written in parts."""

import os
from pathlib import Path

import pytest
from largest_file import largest_file

from nnrt_client.serving.shared_memory import SharedRegion
from nnrt_hdi.errors import OutOfMemory

SIZE = 1 << 16


def test_a_tensor_that_was_written_in_part_is_an_error() -> None:
    path = Path(f"/dev/shm/nnrt-test-{os.getpid()}")  # noqa: S108
    path.write_bytes(bytes(SIZE))
    try:
        region = SharedRegion("r", path.name, 0, SIZE)
        data = b"1" * SIZE
        with largest_file(SIZE // 2), pytest.raises(OutOfMemory, match="can't be written"):
            region.write(0, data)
        region.write(0, data)
        assert region.read(0, SIZE) == data
    finally:
        path.unlink()
