"""Steps that are taken again and again, of which none can stop another one."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from nnrt_device_service.host.threads import start_thread

_log = logging.getLogger(__name__)

_Step = Callable[[], object]


class Rounds:
    """Takes each step once in every interval, in a thread of its own, whatever becomes of the others."""

    def __init__(self, interval_s: float, standstill_s: float, stopped: threading.Event) -> None:
        """The process stood still where a round comes so much later than it should. There are rounds until
        `stopped`."""
        self.interval_s = interval_s
        self._standstill_s = standstill_s
        self._stopped = stopped
        # When each step was last begun, and when those were that have not ended.
        self._began_at: dict[str, float] = {}
        self._under_way: dict[str, float] = {}

    def take(self, name: str, step: _Step, after_standstill: _Step | None = None) -> None:
        """Take a step from now on, or another one in a round after a standstill. Raises OutOfMemory where no thread can
        be started."""
        self._began_at[name] = time.monotonic()
        start_thread(partial(self._turn, name, step, after_standstill or step), f"watch-{name}")

    def hanging(self, after_s: float) -> list[str]:
        """The steps that have been under way for so long."""
        now = time.monotonic()
        return [name for name, began_at in list(self._under_way.items()) if now - began_at > after_s]

    def _turn(self, name: str, step: _Step, after_standstill: _Step) -> None:
        while not self._stopped.wait(self.interval_s):
            now = time.monotonic()
            # From begin to begin: the process may stand still within a step, too.
            stood_still = now - self._began_at[name] > self.interval_s + self._standstill_s
            self._began_at[name] = self._under_way[name] = now
            try:
                (after_standstill if stood_still else step)()
            except BaseException:  # SystemExit, too, is no reason to end: nobody else does this.
                _log.exception("the step %r failed; it is taken again", name)
            del self._under_way[name]
