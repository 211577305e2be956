"""Exponential backoff between the end of a daemon and its next start."""

import asyncio
import math

FIRST_S, MOST_S = 0.1, 30.0
# The wait halves for every HALVED_S seconds during which the daemon was ready.
HALVED_S = 5.0
_MOST_DOUBLINGS = math.log2(MOST_S / FIRST_S)


class Backoff:
    """Wait that doubles with each restart and halves again while the daemon is ready.

    A daemon that ends as soon as it is ready is restarted less and less often. A daemon that serves for a while and is
    killed is restarted soon.
    """

    def __init__(self) -> None:
        self._doublings = 0.0
        # Consecutive ends of the daemon before it was ready.
        self._failures = 0

    def wait_s(self, ready_s: float) -> float:
        """Return the seconds to wait before the next start of a daemon that was ready for `ready_s` seconds."""
        self._failures = 0 if ready_s else self._failures + 1
        doublings = max(self._doublings - ready_s / HALVED_S, 0.0)
        self._doublings = min(doublings + 1, _MOST_DOUBLINGS)
        return FIRST_S * 2**doublings

    @property
    def least_wait_s(self) -> float:
        """Seconds to wait when no device serves: 0 unless the daemon ended before it was ready."""
        return FIRST_S * 2 ** min(self._failures - 1, _MOST_DOUBLINGS) if self._failures else 0.0


class Pause:
    """Pause between the end of a daemon and its next start."""

    def __init__(self) -> None:
        self._backoff = Backoff()
        self._is_over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        # Earliest time, of the event loop's clock, at which `hasten` lets the pause end.
        self.may_end_at = 0.0

    def begin(self, ready_s: float) -> float:
        """Begin the pause of a daemon that was ready for `ready_s` seconds; return the pause's length in seconds."""
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
        """End the pause at `may_end_at` because no other device serves; return whether that is sooner than before."""
        if self._timer is None or self._timer.when() <= self.may_end_at:
            return False
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self.may_end_at, self._is_over.set)
        return True

    def end(self) -> None:
        """End the pause now. Idempotent."""
        self._is_over.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
