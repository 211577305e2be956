"""What holds runs of the backend `gated` up."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from waiting import until


class Gate:
    """What runs of the backend `gated` wait for, unless it stands open."""

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
        """Let later runs through."""
        self._put(self._open_file)

    def shut(self) -> None:
        self._put(self._pipe)

    def let_through(self) -> None:
        """Let the next ones through that wait, or one that is about to."""
        self._pipe.write_bytes(b"")

    def release(self, are_through: Callable[[], object]) -> None:
        """Let all through, now and later, and wait until that is so."""
        self.open()

        def are_released() -> object:
            with suppress(OSError):  # Nobody waits there.
                os.close(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))
            return are_through()

        until(are_released)
