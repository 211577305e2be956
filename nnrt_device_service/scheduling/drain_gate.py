"""The gate that new work passes, until the daemon drains."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nnrt_hdi.errors import UnavailableDevice


class DrainGate:
    """Counts the work under way, and closes when the daemon shuts down.

    Work is inside until it has ended and gRPC has handed its reply to the transport, or knows that it never will.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._inside = 0
        self.is_closed = False

    def require_open(self) -> None:
        """Raises UnavailableDevice once the gate is closed."""
        if self.is_closed:
            raise UnavailableDevice("the daemon is shutting down and takes no new work")

    def enter(self) -> None:
        """Be counted until `leave`. Raises UnavailableDevice once the gate is closed."""
        with self._lock:
            if self.is_closed:
                self.require_open()
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self.is_closed and not self._inside:
                self._empty.notify_all()

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Be counted while the block lasts. Raises UnavailableDevice once the gate is closed."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def close(self, timeout_s: float) -> bool:
        """Let nobody in any more and wait until all are out; whether they were in time."""
        with self._lock:
            self.is_closed = True
            return self._empty.wait_for(lambda: not self._inside, timeout_s)
