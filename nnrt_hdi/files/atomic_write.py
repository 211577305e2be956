"""Atomic writing: a file is written under a temporary name, then renamed."""

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
    path: Path, owner: str, mode: int, put: Callable[[Path, Path], None] = os.replace, *, is_synced: bool = True
) -> Iterator[BinaryIO]:
    """Let the block write a temporary file, sync it, and rename it to `path`.

    Args:
        path: The path of the finished file.
        owner: Part of the temporary file's name, by which `remove_leftovers` finds what a crash left.
        mode: Permissions, reduced by the umask.
        put: `os.replace`; or `os.link`, which raises FileExistsError if there is a file already.
        is_synced: False for a file that may be lost or damaged when the host crashes.

    Yields:
        The open file.

    Raises:
        OSError: The file can't be written. Nothing is left.
    """
    # Not derived from the name, which may have the greatest possible length.
    beside = path.with_name(temporary_name(owner, secrets.token_hex(16)))
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            if is_synced:
                sync(file)
        put(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def sync(file: BinaryIO) -> None:
    """Sync a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def temporary_name(owner: str, unique: str) -> str:
    """Return the name of an owner's unfinished file."""
    return f".nnrt-{owner}-{unique}.tmp"


def remove_leftovers(directory: Path, owner: str) -> None:
    """Remove unfinished files of an owner. The caller must know that nobody is writing one."""
    for left in directory.glob(temporary_name(owner, "*")):
        with suppress(OSError):  # Writing works even if this can't be removed.
            left.unlink()
            _log.info("removed %s, which a crash left behind", left)
