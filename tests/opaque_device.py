"""Daemon with the backend `opaque`, and its journal."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon_process import DaemonProcess
from opaque_backend import FAULT, JOURNAL
from waiting import until


class OpaqueDevice:
    """Daemon whose device has its own memory."""

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
        """Ignore the journal's entries so far."""
        self._marked += len(self.journal())

    def journal(self) -> list[tuple[str, int]]:
        """Return the operations since `mark`, each with its number of bytes."""
        lines = (self.folder / JOURNAL).read_text().splitlines()[self._marked :]
        return [(what, int(number)) for what, number in (line.rsplit(" ", 1) for line in lines)]

    def bytes_of(self, what: str) -> int:
        """Return the sum of the bytes of all operations of this kind."""
        return sum(number for done, number in self.journal() if done == what)

    def copied(self) -> tuple[int, int]:
        """Return the numbers of reads from the device and of writes to it."""
        counts = Counter(what for what, _ in self.journal())
        return counts["read"], counts["write"]

    def wait_for(self, what: str, count: int = 1) -> None:
        """Wait until the device has done an operation `count` times."""
        until(lambda: [done for done, _ in self.journal()].count(what) >= count, self.journal)

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Make an operation fail until the block ends."""
        self._fault.write_text(what)
        try:
            yield
        finally:
            self._fault.unlink()

    def kill(self) -> None:
        """Kill the daemon, and check that it has never used freed memory."""
        self.daemon.kill()
        assert "freed memory was used" not in (self.folder / JOURNAL).read_text()
