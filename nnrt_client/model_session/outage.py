"""The time from the death of a session's daemon until its model is loaded again."""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from nnrt_hdi.errors import NnrtError, UnavailableDevice

_log = logging.getLogger(__name__)

LoadedT = TypeVar("LoadedT")

# Seconds between two attempts: at first, at most, by how much they grow, and what part of them is chance, so that
# clients of the same daemon don't all come at once.
_FIRST_S, _MOST_S, _GROWTH, _CHANCE = 0.05, 2.0, 1.6, 0.2


class Outage:
    """Attempts to load a model again: the first at once, later ones ever more rarely. The log says when it begins, and
    when it is over."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = 0.0
        self._due = 0.0
        self._wait_s = 0.0
        self._why: NnrtError | None = None

    def end(self, load_again: Callable[[], LoadedT]) -> LoadedT:
        """Give the model, loaded again. Raises UnavailableDevice with why that fails, or with why it did the last time
        where the next attempt isn't due."""
        if self._why is not None and self._clock() < self._due:
            raise self._unavailable(self._why)
        try:
            loaded = load_again()
        except NnrtError as error:
            self._put_off(error)
            raise self._unavailable(error) from error
        if self._why is not None:
            _log.warning("the model is loaded again, after %.1f s", self._clock() - self._began)
            self._why = None
        return loaded

    def _put_off(self, error: NnrtError) -> None:
        now = self._clock()
        if self._why is None:
            self._began, self._wait_s = now, _FIRST_S
            _log.warning("the daemon died, and the model can't be loaded again: %s; later runs try", error)
        else:
            self._wait_s = min(self._wait_s * _GROWTH, _MOST_S)
        self._why = error.copy()
        self._due = now + self._wait_s * random.uniform(1 - _CHANCE, 1 + _CHANCE)  # noqa: S311  (no secret)

    def _unavailable(self, error: NnrtError) -> UnavailableDevice:
        return UnavailableDevice(
            f"its daemon died, and the model can't be loaded again: {error}; a run tries it again in"
            f" {max(self._due - self._clock(), 0):.1f} s"
        )
