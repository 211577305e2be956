"""Directories into which many processes write, one at a time."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nnrt_hdi.files.atomic_write import remove_leftovers

_POLL_S = 0.02


@contextmanager
def only_writer(directory: Path, owner: str, lock: int, remaining_s: Callable[[], float]) -> Iterator[None]:
    """Be the only one who writes files of this owner into a directory. What writers that died have left is gone then.

    `lock` is the descriptor of what all writers lock; it is closed at the end. A process that dies lets go of it.
    `remaining_s` raises when the wait is over. Raises OSError.
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
