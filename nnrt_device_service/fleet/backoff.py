"""How long to wait before a daemon that has ended is started again."""

FIRST_S, MOST_S = 0.1, 30.0
# Who was ready for so long starts anew.
STABLE_S = 60.0


class Backoff:
    """A wait that doubles each time."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def wait_s(self, ready_s: float) -> float:
        """The seconds to wait now, after the daemon was ready for so many."""
        if ready_s >= STABLE_S:
            self._next_s = FIRST_S
        wait_s, self._next_s = self._next_s, min(2 * self._next_s, MOST_S)
        return wait_s
