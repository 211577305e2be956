"""How long to wait before a daemon that has ended is started again."""

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
