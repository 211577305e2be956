"""Atomic writes of the files in a fleet's folder, by one process at a time."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnrt_hdi.errors import InvalidPath
from nnrt_hdi.files.atomic_write import atomic_write
from nnrt_hdi.files.directory_lock import writer_lock

_PUBLIC, _PRIVATE = 0o644, 0o600
_OWNER = "keys"
_LOCK_TIMEOUT_S = 10.0


@contextmanager
def only_writer_of(folder: Path) -> Iterator[None]:
    """Lock a folder for writing during the block, and remove what a crashed writer left.

    Makes the folder if it is missing. Raises InvalidPath if another process keeps the lock too long.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_TIMEOUT_S

    def remaining_s() -> float:
        if (remaining := deadline - time.monotonic()) > 0:
            return remaining
        raise InvalidPath(f"another process has had it locked for {_LOCK_TIMEOUT_S:g} s", place=str(folder))

    with writer_lock(folder, _OWNER, os.open(folder, os.O_RDONLY | os.O_DIRECTORY), remaining_s):
        yield


def write_new(path: Path, data: bytes, *, is_private: bool, replaces: bool = False) -> None:
    """Write a file atomically; makes its folder if that is missing.

    Raises InvalidPath if the file exists and `replaces` is false.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with atomic_write(path, _OWNER, _PRIVATE, os.replace if replaces else os.link) as file:
            os.fchmod(file.fileno(), _PRIVATE if is_private else _PUBLIC)
            file.write(data)
    except FileExistsError as error:
        raise InvalidPath("it is there already; move it away, or give --replace", place=str(path)) from error
