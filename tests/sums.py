"""Durations that a backend measures itself, for tests to compare with the daemon's."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np


class Sums:
    """Seconds and numbers of runs and of compilations, in a file that several processes map."""

    RUNS, COMPILATIONS = 0, 1

    def __init__(self, file: Path) -> None:
        if not file.exists():
            np.zeros((2, 2)).tofile(file)
        self._sums = np.memmap(file, np.float64, "r+", shape=(2, 2))
        self._lock = threading.Lock()

    def seconds(self, what: int) -> float:
        return float(self._sums[what, 0])

    def count(self, what: int) -> int:
        return int(self._sums[what, 1])

    @contextmanager
    def of(self, what: int) -> Iterator[None]:
        """Add the duration of the block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._sums[what] += time.perf_counter() - began, 1
