"""The deadlines of runs in parts, which one thread keeps: parts in the client have nobody else who ends them."""

import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from nnrt_client.run.run import Run
from nnrt_hdi.errors import TimedOut


class Deadlines:
    """Gives runs up at their deadlines."""

    def __init__(self, give_up: Callable[[Run], object]) -> None:
        """Its thread begins with the first run. `give_up` ends a run that was given up."""
        self._give_up = give_up
        self._runs: set[Run] = set()
        # Wakes the thread; a plain condition could be left locked by Ctrl-C.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._next_s = math.inf
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        self._is_open = True

    def add(self, run: Run) -> None:
        """Give this run up at its deadline."""
        self._runs.add(run)
        with self._lock:
            if self._thread is None and self._is_open:
                self._thread = threading.Thread(target=self._keep, name="nnrt-deadlines", daemon=True)
                self._thread.start()
        if run.deadline < self._next_s:
            self._wake.put(None)

    def discard(self, run: Run) -> None:
        """Forget a run, which has ended."""
        self._runs.discard(run)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._is_open = False
        self._wake.put(None)

    def _keep(self) -> None:
        while self._is_open:
            now = time.monotonic()
            runs = list(self._runs)
            for run in runs:
                if run.deadline <= now:
                    self._runs.discard(run)
                    if run.give_up(TimedOut(f"the run took longer than {run.timeout_ms} ms")):
                        self._give_up(run)
            self._next_s = min((run.deadline for run in runs if run.deadline > now), default=math.inf)
            if any(run.deadline < self._next_s for run in list(self._runs)):
                continue  # It came just now, and may not have woken anybody.
            del runs
            try:
                self._wake.get(timeout=None if self._next_s == math.inf else max(self._next_s - time.monotonic(), 0))
            except Empty:
                continue
