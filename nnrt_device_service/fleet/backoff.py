"""How long to wait before a daemon that has ended is started again."""

import asyncio
import math

FIRST_S, MOST_S = 0.1, 30.0
# For every so many seconds that it was ready the wait halves.
HALVED_S = 5.0
_MOST_DOUBLINGS = math.log2(MOST_S / FIRST_S)


class Backoff:
    """A wait that doubles each time, and halves again while the daemon is ready.

    So a daemon that ends as soon as it is ready is started ever more rarely, and one that serves, though it is often
    killed, is back soon.
    """

    def __init__(self) -> None:
        self._doublings = 0.0
        # How often in a row the daemon ended before it was ready.
        self._failures = 0

    def wait_s(self, ready_s: float) -> float:
        """The seconds to wait now, after the daemon was ready for so many."""
        self._failures = 0 if ready_s else self._failures + 1
        doublings = max(self._doublings - ready_s / HALVED_S, 0.0)
        self._doublings = min(doublings + 1, _MOST_DOUBLINGS)
        return FIRST_S * 2**doublings

    @property
    def least_wait_s(self) -> float:
        """The seconds to wait where no device serves: none, unless the daemon ended before it was ready."""
        return FIRST_S * 2 ** min(self._failures - 1, _MOST_DOUBLINGS) if self._failures else 0.0


class Pause:
    """The time between the end of a daemon and its next start."""

    def __init__(self) -> None:
        self._backoff = Backoff()
        self._is_over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        # The earliest time for its end.
        self.may_end_at = 0.0

    def begin(self, ready_s: float) -> float:
        """Begin after the daemon was ready for so many seconds. Returns how long the pause is."""
        loop, wait_s = asyncio.get_running_loop(), self._backoff.wait_s(ready_s)
        self.may_end_at = loop.time() + self._backoff.least_wait_s
        self._is_over.clear()
        self._timer = loop.call_later(wait_s, self._is_over.set)
        return wait_s

    async def wait(self) -> None:
        """Wait until the pause is over."""
        try:
            await self._is_over.wait()
        finally:
            self.end()

    def hasten(self) -> bool:
        """End at the earliest time for it, for no other device serves. Returns whether that is sooner."""
        if self._timer is None or self._timer.when() <= self.may_end_at:
            return False
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self.may_end_at, self._is_over.set)
        return True

    def end(self) -> None:
        """End now. Idempotent."""
        self._is_over.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
