"""Files of a fleet's folder, which are written whole or not at all, by one process at a time."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnrt_hdi.errors import InvalidPath
from nnrt_hdi.files.atomic_write import atomic_write
from nnrt_hdi.files.directory_lock import only_writer

_PUBLIC, _PRIVATE = 0o644, 0o600
_OWNER = "keys"
_LOCK_TIMEOUT_S = 10.0


@contextmanager
def only_writer_of(folder: Path) -> Iterator[None]:
    """Be the only process that writes to a folder, which is made if it is missing. What a crash left is gone then.

    Raises InvalidPath where another one is for long.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_TIMEOUT_S

    def remaining_s() -> float:
        if (remaining := deadline - time.monotonic()) > 0:
            return remaining
        raise InvalidPath(f"another process has had it locked for {_LOCK_TIMEOUT_S:g} s", place=str(folder))

    with only_writer(folder, _OWNER, os.open(folder, os.O_RDONLY | os.O_DIRECTORY), remaining_s):
        yield


def write_new(path: Path, data: bytes, *, is_private: bool, replaces: bool = False) -> None:
    """Write a file whole, in a folder that is made if it is missing. Raises InvalidPath for one that is there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with atomic_write(path, _OWNER, _PRIVATE, os.replace if replaces else os.link) as file:
            os.fchmod(file.fileno(), _PRIVATE if is_private else _PUBLIC)
            file.write(data)
    except FileExistsError as error:
        raise InvalidPath("it is there already; move it away, or give --replace", place=str(path)) from error
