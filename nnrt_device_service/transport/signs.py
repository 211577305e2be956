"""What a daemon looks after besides its device: its signs of life, and memory that nobody uses."""

import logging
import time
from collections.abc import Callable

from nnrt_device_service.host.allocator import give_back_freed_memory
from nnrt_device_service.host.rounds import Rounds

_log = logging.getLogger(__name__)

# Seconds after which a step counts as hanging, without a supervisor.
_HANGING_S = 15.0
# After so long without a client, when the threads of calls have ended as well, free memory goes back to the host.
_GIVE_BACK_S = 35.0


class SignsOfLife:
    """Tells the supervisor that the daemon lives as long as all steps of its watch do, so that it replaces a daemon of
    which one hangs."""

    def __init__(self, rounds: Rounds, every_s: float | None, tell: Callable[[], None]) -> None:
        """Where nobody wants signs, what hangs is logged all the same."""
        self._rounds = rounds
        self._every_s = every_s
        self._tell = tell
        self._told_at = time.monotonic()
        self._hanging: list[str] = []

    def look(self) -> None:
        hanging = self._rounds.hanging(self._every_s or _HANGING_S)
        if hanging and hanging != self._hanging:
            _log.critical("a step of the watch hangs (%s): the daemon gives no sign of life", ", ".join(hanging))
        self._hanging, now = hanging, time.monotonic()
        if not hanging and self._every_s and now - self._told_at >= self._every_s - self._rounds.interval_s / 2:
            self._told_at = now
            self._tell()


class IdleMemory:
    """Gives free memory back to the host, once, when there has been no client for a while."""

    def __init__(self) -> None:
        self._idle_since: float | None = None

    def look(self, sessions: int, now: float) -> None:
        if sessions:
            self._idle_since = now
        elif self._idle_since is not None and now - self._idle_since > _GIVE_BACK_S:
            self._idle_since = None
            give_back_freed_memory()
