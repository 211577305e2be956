"""Files of a fleet's folder, which are written whole or not at all, by one process at a time."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnrt_hdi.errors import InvalidPath
from nnrt_hdi.files.container import temporary_name
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
    unfinished = path.with_name(temporary_name(_OWNER, secrets.token_hex(8)))
    try:
        with open(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, _PRIVATE)) as file:
            os.fchmod(file.fileno(), _PRIVATE if is_private else _PUBLIC)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replaces:
            unfinished.replace(path)
        else:
            path.hardlink_to(unfinished)
    except FileExistsError as error:
        raise InvalidPath("it is there already; move it away, or give --replace", place=str(path)) from error
    finally:
        unfinished.unlink(missing_ok=True)
