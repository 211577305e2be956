"""Bounds of what runs and compilations may do to the device."""

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

    def look(self, running: Iterable[Cancellation], what: str = "a run") -> str:
        """End the runs whose time is over, or `what` else it is; why the device counts as stuck, if it does."""
        for cancellation in running:
            on_device_s = _since_began_s(cancellation)
            if self._stuck_s and cancellation.overdue_s > self._stuck_s:
                return (
                    f"{what} that was to stop {cancellation.overdue_s:.1f} s ago is still on the device, for"
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


class CompileWatch:
    """Looks at what is being compiled in the same way.

    What its client has given up may go on up to the bound: a library that compiles for minutes can't be asked to stop,
    and somebody who changes his mind must not end the daemon.
    """

    def __init__(self, max_compile_s: float, stuck_s: float) -> None:
        """Either may be 0, for no bound."""
        self._max_compile_s = max_compile_s
        self._stuck_s = stuck_s

    def look(self, compiling: Iterable[Cancellation]) -> str:
        """End what takes too long; why the device counts as stuck, if it does."""
        if not self._max_compile_s:
            return ""
        for cancellation in compiling:
            overdue_s = _since_began_s(cancellation) - self._max_compile_s
            if self._stuck_s and overdue_s > self._stuck_s:
                return f"a compilation is not over {overdue_s:.1f} s after its time (--max-compile-s)"
            if overdue_s > 0:
                cancellation.cancel(
                    TimedOut(
                        f"the model has been compiled for {self._max_compile_s:g} s, the daemon's limit; make it"
                        " smaller, or raise --max-compile-s"
                    )
                )
        return ""


def _since_began_s(cancellation: Cancellation) -> float:
    now_ns = time.perf_counter_ns()
    return (now_ns - (cancellation.began_ns or now_ns)) / 1e9
