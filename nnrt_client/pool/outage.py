"""Outage: the time from the death of a model's daemon until the model is reloaded."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from nnrt_client.pool.backoff import Backoff
from nnrt_hdi.errors import NnrtError, UnavailableDevice

_log = logging.getLogger(__name__)

LoadedT = TypeVar("LoadedT")


class Outage:
    """Limiter of attempts to reload a model, with growing pauses. It logs the begin and the end of an outage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = 0.0
        self._backoff = Backoff()
        self._why: NnrtError | None = None

    def end(self, load_again: Callable[[], LoadedT]) -> LoadedT:
        """Reload the model and return it.

        Raises:
            UnavailableDevice: The reload failed, or the next attempt isn't due yet. The message has the reason of the
                last failure.
        """
        self.require_due()
        try:
            loaded = load_again()
        except NnrtError as error:
            self._put_off(error)
            raise self._unavailable(error) from error
        if self._why is not None:
            _log.warning("the model is loaded again, after %.1f s", self._clock() - self._began)
            self._why = None
            self._backoff.record_success()
        return loaded

    def require_due(self) -> None:
        """Raise UnavailableDevice if the next attempt isn't due yet."""
        if self._why is not None and self._clock() < self._backoff.due:
            raise self._unavailable(self._why)

    def _put_off(self, error: NnrtError) -> None:
        now = self._clock()
        if self._why is None:
            self._began = now
            _log.warning("the daemon died, and the model can't be loaded again: %s; later runs try", error)
        self._why = error.copy()
        self._backoff.record_failure(now)

    def _unavailable(self, error: NnrtError) -> UnavailableDevice:
        return UnavailableDevice(
            f"its daemon died, and the model can't be loaded again: {error}; a run tries it again in"
            f" {max(self._backoff.due - self._clock(), 0):.1f} s"
        )
