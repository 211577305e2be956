"""Daemons of the backend `opaque`, and what its journal tells."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon_process import DaemonProcess
from opaque_backend import FAULT, JOURNAL
from waiting import until


class OpaqueDevice:
    """A daemon whose device has memory of its own."""

    def __init__(self, folder: Path, *flags: str, limit_bytes: int = 1 << 30) -> None:
        self.folder = folder
        self._fault = folder / FAULT
        self._marked = 0
        options = ("--option", f"folder={folder}", "--option", f"limit={limit_bytes}")
        self.daemon = DaemonProcess("--backend", "opaque", *options, *flags)

    @property
    def address(self) -> str:
        return self.daemon.address

    def mark(self) -> None:
        """Forget what the journal has so far."""
        self._marked += len(self.journal())

    def journal(self) -> list[tuple[str, int]]:
        """What has been done since `mark`, with its number."""
        lines = (self.folder / JOURNAL).read_text().splitlines()[self._marked :]
        return [(what, int(number)) for what, number in (line.rsplit(" ", 1) for line in lines)]

    def bytes_of(self, what: str) -> int:
        """Sum of the numbers of all that was done of that kind."""
        return sum(number for done, number in self.journal() if done == what)

    def copied(self) -> tuple[int, int]:
        """How often bytes were read from the device, and written to it."""
        counts = Counter(what for what, _ in self.journal())
        return counts["read"], counts["write"]

    def wait_for(self, what: str, count: int = 1) -> None:
        """Wait until it has been done so many times."""
        until(lambda: [done for done, _ in self.journal()].count(what) >= count, self.journal)

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Have the device fail at something while the block lasts."""
        self._fault.write_text(what)
        try:
            yield
        finally:
            self._fault.unlink()

    def kill(self) -> None:
        """End the daemon. Nobody has used memory that was freed."""
        self.daemon.kill()
        assert "freed memory was used" not in (self.folder / JOURNAL).read_text()
