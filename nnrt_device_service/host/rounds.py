"""Periodic steps, none of which can block another one."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from nnrt_device_service.host.threads import start_thread

_log = logging.getLogger(__name__)

_Step = Callable[[], object]


class Rounds:
    """Runner of periodic steps, each in a thread of its own."""

    def __init__(self, interval_s: float, standstill_s: float, stopped: threading.Event) -> None:
        """Set the interval; the steps run until `stopped`.

        A step that begins `standstill_s` later than due shows that the process stood still.
        """
        self.interval_s = interval_s
        self._standstill_s = standstill_s
        self._stopped = stopped
        # Times at which each step began last, and at which the unfinished ones began.
        self._began_at: dict[str, float] = {}
        self._under_way: dict[str, float] = {}

    def take(self, name: str, step: _Step, after_standstill: _Step | None = None) -> None:
        """Start calling a step in each interval.

        Calls `after_standstill` instead, if given, when the process stood still. Raises OutOfMemory if no thread can be
        started.
        """
        self._began_at[name] = time.monotonic()
        start_thread(partial(self._turn, name, step, after_standstill or step), f"watch-{name}")

    def hanging(self, after_s: float) -> list[str]:
        """Return the names of steps that have been running for more than `after_s` seconds."""
        now = time.monotonic()
        return [name for name, began_at in list(self._under_way.items()) if now - began_at > after_s]

    def _turn(self, name: str, step: _Step, after_standstill: _Step) -> None:
        while not self._stopped.wait(self.interval_s):
            now = time.monotonic()
            # Measure from begin to begin, because the process may stand still within a step, too.
            stood_still = now - self._began_at[name] > self.interval_s + self._standstill_s
            self._began_at[name] = self._under_way[name] = now
            try:
                (after_standstill if stood_still else step)()
            except BaseException:  # SystemExit, too, must not end the thread: no other one takes this step.
                _log.exception("the step %r failed; it is taken again", name)
            del self._under_way[name]
