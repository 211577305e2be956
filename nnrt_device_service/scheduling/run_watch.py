"""Time limits of runs and compilations on the device."""

import time
from collections.abc import Iterable

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import TimedOut


class CompileWatch:
    """Watch that cancels compilations that take too long and finds those that don't end.

    A compilation that its client has cancelled may go on up to the limit. A library that compiles for minutes can't be
    stopped, and a client that cancels must not end the daemon.
    """

    def __init__(self, max_compile_s: float, stuck_s: float) -> None:
        """Cancel after `max_compile_s`, and count as stuck `stuck_s` after that; 0 means no limit."""
        self._max_compile_s = max_compile_s
        self._stuck_s = stuck_s

    def end_overdue(self, compiling: Iterable[Cancellation]) -> str:
        """Cancel compilations that take too long; return why the device counts as stuck, or an empty string."""
        found = (self.end_if_overdue(cancellation, cancellation.on_device_s) for cancellation in compiling)
        return next(filter(None, found), "")

    def end_if_overdue(self, cancellation: Cancellation, taken_s: float) -> str:
        """Cancel a compilation if `taken_s` is too long; return why the device counts as stuck, or an empty string."""
        overdue_s = taken_s - self._max_compile_s
        if not self._max_compile_s or overdue_s <= 0:
            return ""
        if self._stuck_s and overdue_s > self._stuck_s:
            return f"a compilation is not over {overdue_s:.1f} s after its time (--max-compile-s)"
        cancellation.cancel(
            TimedOut(
                f"the model has been compiled for {self._max_compile_s:g} s, the daemon's limit; make it smaller, or"
                " raise --max-compile-s"
            )
        )
        return ""


class RunWatch:
    """Watch that cancels runs that take too long and finds those that don't end.

    A run that is compiling counts as a compilation meanwhile. A stuck run with a process of its own ends with that.
    """

    def __init__(self, max_run_s: float, stuck_s: float, compile_watch: CompileWatch) -> None:
        """Cancel after `max_run_s`; count as stuck `stuck_s` after a cancellation or deadline. 0 means no limit."""
        self._max_run_s = max_run_s
        self._stuck_s = stuck_s
        self._compile_watch = compile_watch

    def end_overdue(self, running: Iterable[Cancellation], what: str = "a run") -> str:
        """Cancel runs that take too long; return why the device counts as stuck, or an empty string.

        The returned text calls a stuck one `what`.
        """
        found = (self._end_if_overdue(cancellation, what) for cancellation in running)
        return next(filter(None, found), "")

    def _end_if_overdue(self, cancellation: Cancellation, what: str) -> str:
        # Read once, and before the other times: the compilation may end meanwhile.
        since_ns = cancellation.compiling_since_ns
        if since_ns is not None:
            return self._compile_watch.end_if_overdue(cancellation, (time.perf_counter_ns() - since_ns) / 1e9)
        on_device_s, overdue_s = cancellation.on_device_s, cancellation.overdue_s
        if self._stuck_s and overdue_s > self._stuck_s:
            if overdue_s < 2 * self._stuck_s and (elsewhere := cancellation.elsewhere) is not None:
                elsewhere.kill()
                return ""
            return (
                f"{what} that was to stop {overdue_s:.1f} s ago is still on the device, for {on_device_s:.1f} s by now"
            )
        if self._max_run_s and on_device_s > self._max_run_s:
            cancellation.cancel(
                TimedOut(
                    f"the run was on the device for {self._max_run_s:g} s, the daemon's limit; make it smaller, or"
                    " raise --max-run-s"
                )
            )
        return ""
