"""State of a daemon and its reason, which the supervisor records and other tasks wait for."""

import asyncio
import signal
from collections.abc import Callable

from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_device_service.host.exit import ExitCode

_MEANINGS = {
    ExitCode.LOST: "its device was lost",
    ExitCode.NOT_SERVING: "served no more calls",
    ExitCode.DAMAGED: "a file of its model store was cut short",
    ExitCode.STUCK: "its device was stuck",
}


class Condition:
    """State of one daemon in its record, and the last status text that the daemon sent."""

    def __init__(self, record: Record, directory: StateDirectory, on_change: Callable[[], None]) -> None:
        self._record = record
        self._directory = directory
        self._on_change = on_change
        self._changed = asyncio.Event()
        # Last STATUS that the daemon sent (empty while it is ready), and why the supervisor killed it.
        self.status = ""
        self.killed_for = ""

    def change(self, state: State, why: str) -> None:
        """Set the daemon's state and its reason, write the record and wake the tasks that wait for a state."""
        self._record.state, self._record.why = state, why
        self._directory.write(self._record)
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change()

    async def await_settled(self) -> State:
        """Wait until the daemon is ready, drained, failed or backing off; return that state."""
        return await self.await_state(State.READY, State.DRAINED, State.FAILED, State.BACKING_OFF)

    async def await_state(self, *states: State) -> State:
        """Wait until the daemon is in one of `states`; return that state."""
        while self._record.state not in states:
            await self._changed.wait()
        return self._record.state

    def why_ended(self) -> str:
        """Return why the daemon ended, as a sentence for the log and `nnrt-device ps`."""
        code = self._record.last_exit
        if self.killed_for:
            return f"it {self.killed_for} and was killed"
        if code is None:
            return self.status or "it ended"
        if code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        if code in _MEANINGS:
            return f"it ended with {code}: {_MEANINGS[ExitCode(code)]}"
        return self.status if code and self.status else f"it ended with {code}; see its log"
