"""Backoff: growing pauses between failing attempts."""

import random

# Pauses: first and longest one in seconds, growth factor, and random fraction, which spreads the clients of a daemon.
_FIRST_S, _MOST_S, _GROWTH, _CHANCE = 0.05, 2.0, 1.6, 0.2


class Backoff:
    """Time of the next attempt (`due`): the first one is due at once, later ones after growing pauses."""

    def __init__(self) -> None:
        self.due = 0.0
        self._wait_s = 0.0

    def record_failure(self, now: float) -> None:
        """Record a failed attempt: the next one is due after a pause."""
        self._wait_s = min(self._wait_s * _GROWTH, _MOST_S) or _FIRST_S
        self.due = now + self._wait_s * random.uniform(1 - _CHANCE, 1 + _CHANCE)  # noqa: S311  (no secret)

    def record_success(self) -> None:
        """Record a successful attempt: the next one is due at once."""
        self.due = self._wait_s = 0.0
