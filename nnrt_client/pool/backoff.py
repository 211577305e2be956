"""Backoff: pauses between failing attempts grow."""

import random

# Seconds between two attempts: first, longest, growth, and the random part, which spreads the clients of a daemon.
_FIRST_S, _MOST_S, _GROWTH, _CHANCE = 0.05, 2.0, 1.6, 0.2


class Backoff:
    """When the next attempt is due: the first at once, later ones after growing pauses."""

    def __init__(self) -> None:
        self.due = 0.0
        self._wait_s = 0.0

    def failed(self, now: float) -> None:
        """Record that an attempt failed."""
        self._wait_s = min(self._wait_s * _GROWTH, _MOST_S) or _FIRST_S
        self.due = now + self._wait_s * random.uniform(1 - _CHANCE, 1 + _CHANCE)  # noqa: S311  (no secret)

    def succeeded(self) -> None:
        """Record that an attempt succeeded: the next one is due at once."""
        self.due = self._wait_s = 0.0
