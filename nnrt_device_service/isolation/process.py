"""Process of a model, as the daemon has it."""

import select
import signal
import socket
import threading
import time
from contextlib import suppress
from itertools import count
from typing import Any

from nnrt_device_service.isolation.channel import Channel, Progress, socket_pair
from nnrt_device_service.isolation.messages import LOAD
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.forking import SEPARATOR, ForkServer

# Milliseconds until the server has reported how a process ended.
_REPORT_MS = 5000
_MOST_STATUS_BYTES = 16
_ENDINGS = {-number: number.name for number in signal.Signals}


class ModelProcess(Closable):
    """Process that a server has forked for a model, with a channel for each run that is under way.

    `close` ends the process.
    """

    def __init__(self, server: ForkServer, memory: int, budget: MemoryBudget) -> None:
        """Start a process for what `memory` describes. Raises OutOfMemory if the host has nothing left for it."""
        self._control, theirs = socket_pair()
        try:
            with theirs:
                self._end = server.request([memory, theirs.fileno()])
        except BaseException as error:
            self._control.close()
            if not isinstance(error, OSError):
                raise
            raise OutOfMemory(f"the daemon's host has nothing left for a process ({error.strerror})") from error
        self.server = server
        # Its part of the memory of channels, of which others get what lies in channels that no run has.
        self._budget = MemoryBudget(budget.limit_bytes, budget)
        self._budget.on_shortage(self._close_channel)
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._channels: set[Channel] = set()
        # Those that no run has. No lock: every small run takes one.
        self._free: list[Channel] = []
        self._had_several = False
        self._status: int | None = None
        self.began_at = time.monotonic()
        self.is_ready = False
        # Why the daemon has ended the process, or empty.
        self.ended_for = ""

    def load(self, crashes: int, progress: Progress) -> Any:
        """Make the model, and return what the process says of it. Raises what `Channel.ask` raises."""
        channel = self.take()
        try:
            answer, _ = channel.ask(LOAD, crashes, progress)
            self.is_ready = True
        finally:
            self.put(channel)
        return answer

    @property
    def busy(self) -> int:
        """Number of calls under way."""
        return len(self._channels) - len(self._free)

    def take(self) -> Channel:
        """Return a channel that no other run has. Raises what `Channel` raises."""
        try:
            return self._free.pop()
        except IndexError:
            channel = Channel(next(self._numbers), self._control, self._budget, self.end_stuck)
            self._channels.add(channel)
            return channel

    def put(self, channel: Channel) -> None:
        """Take a channel back after its call. If that is still under way, end the process."""
        if not channel.is_idle:
            self.end()
        if channel.is_kept and self.is_ready:
            self._free.append(channel)
            if self.is_ready:  # Else `close` may have missed it.
                return
        self._channels.discard(channel)
        channel.close()

    def _close_channel(self) -> bool:
        """Close the channel that was used first of those that no run has; return False if there is none."""
        try:
            channel = self._free.pop(0)
        except IndexError:
            return False
        self._channels.discard(channel)
        channel.close()
        return True

    def note_end(self) -> int | None:
        """Note that a call found that the process has ended, or must end; return its exit status, if it is known."""
        with self._lock:
            if self.is_ready:
                self.is_ready = False
                self._had_several = self.busy > 1  # Also the one that calls this.
        for _ in range(2):
            status = self._reported_status()
            if self._status is None:  # Else another call was told.
                self._status = status
            if self._status is not None:
                break
            self.end()
        return self._status

    def is_at_fault(self, status: int | None) -> bool:
        """Return whether the run that was under way has caused the end: it was alone, and nobody killed the process."""
        return not (self._had_several or self.ended_for or status in (None, -signal.SIGKILL))

    def end(self, why: str = "") -> None:
        """Ask the server to kill the process. Any thread may call this; it doesn't wait."""
        self.ended_for = self.ended_for or why
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)

    def end_stuck(self) -> None:
        """Ask the server to kill the process, because a run in it doesn't end."""
        self.end("a run did not stop within --stuck-s")

    def _reported_status(self) -> int | None:
        poll = select.poll()
        with suppress(OSError, ValueError):
            poll.register(self._end, select.POLLIN)
            if poll.poll(_REPORT_MS):
                return int(self._end.recv(_MOST_STATUS_BYTES, socket.MSG_PEEK).removeprefix(SEPARATOR))
        return None

    def close(self) -> None:
        """End the process, and give its memory back. Idempotent."""
        self.end()
        self.is_ready = False
        self._budget.close()
        self._control.close()
        self._end.close()


def ending(status: int | None) -> str:
    """Return how a process has ended, for messages: the name of a signal, or the exit status."""
    return "how is unknown" if status is None else _ENDINGS.get(status, f"exit status {status}")
