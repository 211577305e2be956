"""Processes identified such that a reused process id is never mistaken for them."""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Index of the start time among the fields of /proc/PID/stat after the name in parentheses (the name may contain
# anything). proc(5) counts fields from 1.
_START_TIME_FIELD = 22 - 3


class ProcessIdentity(NamedTuple):
    """Unique identity of a process: its process id, its start time and the boot of the host."""

    pid: int
    # In clock ticks since the boot.
    start_ticks: int
    boot_id: str


class Process:
    """Process with an open pidfd, so that no other process ever gets its signals."""

    def __init__(self, identity: ProcessIdentity, descriptor: int, child: "subprocess.Popen[bytes] | None") -> None:
        """Take over the pidfd. Only `start` and `find` call this."""
        self.identity = identity
        self._descriptor = descriptor
        self._child = child

    @staticmethod
    def start(
        command: Sequence[str],
        environment: Mapping[str, str],
        log: IO[bytes] | int | None,
        prepare: Callable[[], None],
    ) -> "Process":
        """Start a command in a POSIX session of its own. The child calls `prepare` before it executes the command.

        Raises OSError or subprocess.SubprocessError.
        """
        child = subprocess.Popen(  # noqa: S603  # A list: no shell parses it.
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environment,
            start_new_session=True,
            preexec_fn=prepare,
        )
        return Process(_identity(child.pid), os.pidfd_open(child.pid), child)

    @staticmethod
    def find(identity: ProcessIdentity) -> "Process | None":
        """Return the process with this identity, or None if it has ended."""
        try:
            descriptor = os.pidfd_open(identity.pid)
        except OSError:
            return None
        with suppress(OSError, ValueError, IndexError):
            # Compare after opening the pidfd: while its process lives, no other process gets the id.
            if _identity(identity.pid) == identity:
                process = Process(identity, descriptor, None)
                if not process.is_over:
                    return process
        os.close(descriptor)
        return None

    @property
    def pid(self) -> int:
        return self.identity.pid

    def fileno(self) -> int:
        """Return the pidfd, which becomes readable when the process has ended."""
        return self._descriptor

    @property
    def is_over(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def uptime_s(self) -> float:
        ticks = self.identity.start_ticks / os.sysconf("SC_CLK_TCK")
        return max(_since_boot_s() - ticks, 0.0)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process. Does nothing if the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def exit_code(self) -> int | None:
        """Return the exit code of the ended process, negative for a signal; None if it is no child of this process."""
        return None if self._child is None else self._child.wait()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _identity(pid: int) -> ProcessIdentity:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ProcessIdentity(pid, int(fields[_START_TIME_FIELD]), _BOOT_ID.read_text().strip())


def _since_boot_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])
