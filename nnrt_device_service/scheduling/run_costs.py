"""Costs of runs, compared before they start with what the device can do."""

import logging
import math
from collections.abc import Callable

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import TimedOut

_log = logging.getLogger(__name__)

# Multiply-adds per second that every device does: a run that is in time at this speed needs no estimate.
_LEAST_SPEED = 1e9
# How many times faster than the measured product of matrices a run may be, such as a larger product.
_MARGIN = 1.5
# A run that takes more than this fraction of `--max-run-s` is long: short runs of others don't wait for it.
_LONG = 1 / 10


class RunCosts:
    """Check that refuses a run before it starts if it would surely take longer than `--max-run-s`.

    Some libraries don't stop within an operator, so a run that is started and then cancelled may keep the device.

    The estimate takes the fastest speed that the device has shown in a product of large matrices. The daemon measures
    it on behalf of the first run that may be too long, and again before each refusal, because the host may have been
    busy. It doesn't learn from runs of clients: a backend may skip work that a model claims to need (the same product
    twice), and a client could use that to make all runs look short.
    """

    def __init__(self, max_run_s: float, measure: Callable[[Cancellation], float] | None) -> None:
        """Make a check of runs on a device; `measure` returns its speed, or is None if its speed can't be measured."""
        self._max_run_s = max_run_s
        self._measure = measure
        self._speed = 0.0
        # Multiply-adds up to which no run need be checked.
        self.unchecked = max_run_s * _LEAST_SPEED if max_run_s and measure else math.inf
        # Nanoseconds that the runs of a model usually take at most if they aren't long.
        self.short_ns = max_run_s * _LONG * 1e9 if max_run_s else math.inf

    def require_in_time(self, multiply_adds: int, cancellation: Cancellation) -> bool:
        """Return whether a run with a slot, of more than `unchecked` multiply-adds, is long.

        Raises TimedOut if it would take too long, and what ends it while the daemon measures the speed.
        """
        if self._takes_s(multiply_adds) > self._max_run_s and self._measure is not None:
            try:
                with cancellation.compiling():
                    self._speed = max(self._speed, self._measure(cancellation))
            except Exception:
                cancellation.check()
                _log.warning("the device's speed can't be measured; a run starts that may be too long", exc_info=True)
                return True
        if self._takes_s(multiply_adds) > self._max_run_s:
            raise TimedOut(
                f"the run takes {multiply_adds / 1e9:.0f} billion multiply-adds, {multiply_adds / self._speed:.0f} s at"
                f" the {self._speed / 1e9:.1f} billion per second that this device does in large products; the daemon's"
                f" limit is {self._max_run_s:g} s: make it smaller, or raise --max-run-s"
            )
        return self._takes_s(multiply_adds) > self._max_run_s * _LONG

    def _takes_s(self, multiply_adds: int) -> float:
        """Return the least seconds that the run takes; infinite while the speed is unknown."""
        return multiply_adds / (self._speed * _MARGIN) if self._speed else math.inf
