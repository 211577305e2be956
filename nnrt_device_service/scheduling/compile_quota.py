"""The seconds of compiling that one identity may take."""

import threading
import time
from collections.abc import Callable

from nnrt_device_service.settings import LimitReached

_HOUR_S = 3600.0


class CompileQuota:
    """So many seconds for each identity, which come back evenly within an hour.

    What is under way counts when it has ended, for nobody knows before how long it takes: one identity passes the limit
    by what is compiled at a time.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`limit_s` may be 0, for no limit."""
        self._limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()
        # Of identities, when the last of what they have spent comes back. Those who have spent nothing are not here.
        self._whole_again: dict[str, float] = {}

    def require_room(self, identity: str) -> None:
        """Raises OutOfMemory for an identity that has nothing left."""
        if not self._limit_s:
            return
        with self._lock:
            owes_s = self._whole_again.get(identity, 0.0) - self._clock()
        if owes_s >= _HOUR_S:
            raise LimitReached(
                f"{identity} has had the daemon compile for {owes_s / _HOUR_S * self._limit_s:.1f} s within an hour;"
                f" its limit (--identity-compile-s) is {self._limit_s:g} s. Try again in {owes_s - _HOUR_S + 1:.0f} s",
                "--identity-compile-s",
            )

    def spend(self, identity: str, seconds: float) -> None:
        """Count what has been compiled for an identity."""
        if not self._limit_s:
            return
        with self._lock:
            now = self._clock()
            self._whole_again = {name: at for name, at in self._whole_again.items() if at > now}
            owes_from = self._whole_again.get(identity, now)
            self._whole_again[identity] = owes_from + seconds * _HOUR_S / self._limit_s
