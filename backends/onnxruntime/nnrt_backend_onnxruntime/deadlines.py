"""Cancels runs whose time is over: ONNX Runtime ends one only when told."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Deadlines:
    """One thread for all runs that have a deadline, as long as there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, remaining_s: float, end: Callable[[], None]) -> int:
        """Call `end` in so many seconds, unless the ticket that this returns is removed before."""
        with self._changed:
            ticket = next(self._numbers)
            heapq.heappush(self._waiting, (time.monotonic() + remaining_s, ticket, end))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="nnrt-onnxruntime-deadlines", daemon=True)
                self._thread.start()
            elif self._waiting[0][1] == ticket:
                self._changed.notify()
            return ticket

    def remove(self, ticket: int) -> None:
        """Forget a run that has ended."""
        with self._changed:
            self._waiting = [entry for entry in self._waiting if entry[1] != ticket]
            heapq.heapify(self._waiting)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread:
            thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._is_closed:
                if not self._waiting:
                    self._changed.wait()
                elif (left := self._waiting[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left)
                else:
                    _, _, end = heapq.heappop(self._waiting)
                    end()
