"""Lock of a directory into which many processes write, one at a time."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nnrt_hdi.files.atomic_write import remove_leftovers

_POLL_S = 0.02


@contextmanager
def writer_lock(directory: Path, owner: str, lock: int, remaining_s: Callable[[], float]) -> Iterator[None]:
    """Hold the lock for writing an owner's files into a directory, and remove what dead writers left.

    Args:
        directory: The directory.
        owner: The owner in the names of temporary files; see `atomic_write`.
        lock: Descriptor of the file that all writers lock; closed at the end. A process that dies releases the lock.
        remaining_s: Returns the seconds left to wait; raises when the wait is over.

    Yields:
        Nothing.

    Raises:
        OSError: The file can't be locked.
    """
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(min(remaining_s(), _POLL_S))
        remove_leftovers(directory, owner)
        yield
    finally:
        os.close(lock)
