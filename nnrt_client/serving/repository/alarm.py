"""Alarm: wakes a task now, or at a time."""

import asyncio
from contextlib import suppress


class Alarm:
    """Alarm of one task, which waits for it again and again. Only the server's loop uses it."""

    def __init__(self) -> None:
        self._is_set = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """Wake the task."""
        self._is_set.set()

    def set_in(self, seconds: float) -> None:
        """Wake the task after some seconds at the latest."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if self._timer is not None and loop.time() < self._timer.when() <= when:
            return
        self.close()
        self._timer = loop.call_at(when, self.set)

    async def wait(self, timeout_s: float) -> None:
        """Wait for the alarm, but no longer than that."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_set.wait(), timeout_s)
        self._is_set.clear()

    def close(self) -> None:
        """Forget the time that was set."""
        if self._timer is not None:
            self._timer.cancel()
