"""Bounds of what a run may do to the device."""

import time
from collections.abc import Iterable

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import TimedOut


class RunWatch:
    """Looks now and then at the runs on the device: ends those that last too long, and finds one that doesn't end."""

    def __init__(self, max_run_s: float, stuck_s: float) -> None:
        """Either may be 0, for no bound."""
        self._max_run_s = max_run_s
        self._stuck_s = stuck_s

    def look(self, running: Iterable[Cancellation]) -> str:
        """End the runs whose time is over; why the device counts as stuck, if it does."""
        now_ns = time.perf_counter_ns()
        for cancellation in running:
            on_device_s = (now_ns - (cancellation.began_ns or now_ns)) / 1e9
            if self._stuck_s and cancellation.overdue_s > self._stuck_s:
                return (
                    f"a run that was to stop {cancellation.overdue_s:.1f} s ago is still on the device, for"
                    f" {on_device_s:.1f} s by now"
                )
            if self._max_run_s and on_device_s > self._max_run_s:
                cancellation.cancel(
                    TimedOut(
                        f"the run was on the device for {self._max_run_s:g} s, the daemon's limit; make it smaller, or"
                        " raise --max-run-s"
                    )
                )
        return ""
