"""How a daemon is: its state, which its supervisor writes down and others wait for, and why it is so."""

import asyncio
import signal
from collections.abc import Callable

from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_device_service.host.exit import ExitCode

_MEANINGS = {
    ExitCode.NOT_SERVING: "served no more calls",
    ExitCode.DAMAGED: "a file of its model store was cut short",
    ExitCode.STUCK: "its device was stuck",
}


class Condition:
    """What a daemon's record says, and what the daemon has said itself."""

    def __init__(self, record: Record, directory: StateDirectory, on_change: Callable[[], None]) -> None:
        self._record = record
        self._directory = directory
        self._on_change = on_change
        self._changed = asyncio.Event()
        # What the daemon said last, and why it was killed.
        self.said = ""
        self.killed_for = ""

    def change(self, state: State, why: str) -> None:
        """Note, and write down, what the daemon is doing now."""
        self._record.state, self._record.why = state, why
        self._directory.write(self._record)
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change()

    async def settled(self) -> State:
        """Wait until the daemon is ready, or isn't going to be soon; which of them."""
        return await self.until(State.READY, State.DRAINED, State.FAILED, State.BACKING_OFF)

    async def until(self, *states: State) -> State:
        """Wait until the daemon is in one of these states; in which one."""
        while self._record.state not in states:
            await self._changed.wait()
        return self._record.state

    def why_ended(self) -> str:
        """Say why the daemon has ended."""
        code = self._record.last_exit
        if self.killed_for:
            return f"it {self.killed_for} and was killed"
        if code is None:
            return self.said or "it ended"
        if code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        if code in _MEANINGS:
            return f"it ended with {code}: {_MEANINGS[ExitCode(code)]}"
        return self.said if code and self.said else f"it ended with {code}; see its log"
