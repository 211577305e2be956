"""Gate that blocks runs of the backend `gated`."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from waiting import until


class Gate:
    """Gate at which runs of the backend `gated` wait while it is shut.

    The gate's path is a hard link: to a regular file while the gate is open, to a FIFO while it is shut.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self._pipe, self._numbers = folder / "gate", folder / "pipe", count()
        os.mkfifo(self._pipe)
        self._open_file = folder / "open"
        self._open_file.touch()
        self.open()

    def _put(self, what: Path) -> None:
        link = what.with_name(f"link{next(self._numbers)}")
        link.hardlink_to(what)
        link.replace(self.path)

    def open(self) -> None:
        """Let later runs pass."""
        self._put(self._open_file)

    def shut(self) -> None:
        self._put(self._pipe)

    def let_through(self) -> None:
        """Let the waiting runs pass, or the next run if none waits yet."""
        self._pipe.write_bytes(b"")

    def release(self, are_through: Callable[[], object]) -> None:
        """Open the gate, let the waiting runs pass, and wait until `are_through` is true."""
        self.open()

        def are_released() -> object:
            with suppress(OSError):  # No run waits.
                os.close(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))
            return are_through()

        until(are_released)
