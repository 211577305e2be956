"""Attempts that come ever more rarely while they fail."""

import random

# Seconds between two attempts: at first, at most, by how much they grow, and what part of them is chance, so that
# clients of the same daemon don't all come at once.
_FIRST_S, _MOST_S, _GROWTH, _CHANCE = 0.05, 2.0, 1.6, 0.2


class Backoff:
    """Says when the next attempt is due: the first at once, later ones after longer and longer pauses."""

    def __init__(self) -> None:
        self.due = 0.0
        self._wait_s = 0.0

    def failed(self, now: float) -> None:
        """An attempt has failed."""
        self._wait_s = min(self._wait_s * _GROWTH, _MOST_S) or _FIRST_S
        self.due = now + self._wait_s * random.uniform(1 - _CHANCE, 1 + _CHANCE)  # noqa: S311  (no secret)

    def succeeded(self) -> None:
        """An attempt has succeeded: the next one is due at once."""
        self.due = self._wait_s = 0.0
