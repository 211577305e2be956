"""Files that are complete when they appear: written beside their places, and then moved there."""

import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_log = logging.getLogger(__name__)


@contextmanager
def atomic_write(
    path: Path, owner: str, mode: int, put: Callable[[Path, Path], None] = os.replace
) -> Iterator[BinaryIO]:
    """Let the block write a file, bring it to the disk, and put it in its place. Raises OSError, and leaves nothing.

    It is made with a mode, of which the umask takes its part. `os.link` instead of `os.replace` leaves an earlier file
    where it is, with FileExistsError. What a crash leaves behind is called after the owner: see `remove_leftovers`.
    """
    # Not made from the name, which may be as long as names can be.
    beside = path.with_name(temporary_name(owner, secrets.token_hex(16)))
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            sync(file)
        put(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def sync(file: BinaryIO) -> None:
    """Bring to the disk what has been written into a file."""
    file.flush()
    os.fsync(file.fileno())


def temporary_name(owner: str, unique: str) -> str:
    """The name of a file of an owner until it is complete."""
    return f".nnrt-{owner}-{unique}.tmp"


def remove_leftovers(directory: Path, owner: str) -> None:
    """Remove what writers that died have left of the owner's files. For who knows that nobody is writing one."""
    for left in directory.glob(temporary_name(owner, "*")):
        with suppress(OSError):  # Who can't remove it can write all the same.
            left.unlink()
            _log.info("removed %s, which a crash left behind", left)
