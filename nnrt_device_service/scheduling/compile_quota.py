"""Limit of the seconds that the daemon compiles for one identity."""

import threading
import time
from collections.abc import Callable

from nnrt_device_service.settings import LimitReached

_HOUR_S = 3600.0


class CompileQuota:
    """Number of compile seconds that each identity may spend; spent seconds come back evenly within an hour.

    A compilation counts when it has ended, as its duration is not known before. So one identity can exceed its limit by
    the compilations that it has under way.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Set a limit of `limit_s` seconds for each identity; 0 means no limit."""
        self._limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()
        # Maps an identity to the time when its last spent second comes back. Identities that owe nothing are absent.
        self._repaid_at: dict[str, float] = {}

    def require_room(self, identity: str) -> None:
        """Raise OutOfMemory if the identity has no compile seconds left."""
        if not self._limit_s:
            return
        with self._lock:
            owes_s = self._repaid_at.get(identity, 0.0) - self._clock()
        if owes_s >= _HOUR_S:
            raise LimitReached(
                f"{identity} has had the daemon compile for {owes_s / _HOUR_S * self._limit_s:.1f} s within an hour;"
                f" its limit (--identity-compile-s) is {self._limit_s:g} s. Try again in {owes_s - _HOUR_S + 1:.0f} s",
                "--identity-compile-s",
            )

    def spend(self, identity: str, seconds: float) -> None:
        """Count the seconds that a compilation for the identity took."""
        if not self._limit_s:
            return
        with self._lock:
            now = self._clock()
            self._repaid_at = {name: at for name, at in self._repaid_at.items() if at > now}
            owes_from = self._repaid_at.get(identity, now)
            self._repaid_at[identity] = owes_from + seconds * _HOUR_S / self._limit_s
