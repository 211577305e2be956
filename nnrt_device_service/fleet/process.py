"""Processes that are never taken for others, whatever becomes of their numbers."""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Fields of /proc/PID/stat after the name in parentheses, which may hold anything; proc(5) counts from 1.
_START_TIME_FIELD = 22 - 3


class ProcessIdentity(NamedTuple):
    """What only one process ever has: its number, when it began, and in which boot of the host."""

    pid: int
    # In ticks of the clock since the boot.
    start_ticks: int
    boot_id: str


class Process:
    """A process, held by a descriptor so that no other one ever gets its signals."""

    def __init__(self, identity: ProcessIdentity, descriptor: int, child: "subprocess.Popen[bytes] | None") -> None:
        """Made by `start` and `find`."""
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
        """Start it in a session of its own. `prepare` is called in it, before the command is executed.

        Raises OSError or subprocess.SubprocessError.
        """
        child = subprocess.Popen(  # noqa: S603  # A list, which no shell reads.
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
        """That process, if it still lives."""
        try:
            descriptor = os.pidfd_open(identity.pid)
        except OSError:
            return None
        with suppress(OSError, ValueError, IndexError):
            # Only now: as long as the descriptor's process lives, nobody else has the number.
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
        """A descriptor that becomes readable when the process has ended."""
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
        """Does nothing to a process that has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def exit_code(self) -> int | None:
        """The code of a process that has ended, negative for a signal; None where only another one may know."""
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
