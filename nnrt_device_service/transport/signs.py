"""Periodic steps of the daemon's watch that don't concern the device: signs of life, and return of idle memory."""

import logging
import time
from collections.abc import Callable

from nnrt_device_service.host.allocator import give_back_freed_memory
from nnrt_device_service.host.rounds import Rounds

_log = logging.getLogger(__name__)

# Seconds after which a step counts as hanging if no supervisor sets a time.
_HANGING_S = 15.0
# Seconds without a client after which free memory goes back to the host; the threads of calls have ended by then.
_GIVE_BACK_S = 35.0


class SignsOfLife:
    """Sender of signs of life to the supervisor, as long as no step of the daemon's watch hangs.

    The supervisor replaces a daemon that sends no signs.
    """

    def __init__(self, rounds: Rounds, every_s: float | None, notify: Callable[[], None]) -> None:
        """Call `notify` about every `every_s` seconds; None means never, as there is no supervisor.

        Steps that hang are logged in any case.
        """
        self._rounds = rounds
        self._every_s = every_s
        self._notify = notify
        self._notified_at = time.monotonic()
        self._hanging: list[str] = []

    def check(self) -> None:
        hanging = self._rounds.hanging(self._every_s or _HANGING_S)
        if hanging and hanging != self._hanging:
            _log.critical("a step of the watch hangs (%s): the daemon sends no signs of life", ", ".join(hanging))
        self._hanging, now = hanging, time.monotonic()
        if not hanging and self._every_s and now - self._notified_at >= self._every_s - self._rounds.interval_s / 2:
            self._notified_at = now
            self._notify()


class IdleMemory:
    """Step that returns free memory to the host, after changes of models and `_GIVE_BACK_S` after the last session."""

    def __init__(self) -> None:
        self._idle_since: float | None = None
        self._changes = 0

    def check(self, sessions: int, now: float, changes: int) -> None:
        """Compare the numbers of sessions, and of models made, exported and closed so far, with those before."""
        if changes != self._changes:
            self._changes = changes
            give_back_freed_memory(collects_garbage=False)
        if sessions:
            self._idle_since = now
        elif self._idle_since is not None and now - self._idle_since > _GIVE_BACK_S:
            self._idle_since = None
            give_back_freed_memory()
