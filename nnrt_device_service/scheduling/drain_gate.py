"""Drain gate: new work passes it until the daemon drains."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nnrt_hdi.errors import UnavailableDevice


class DrainGate:
    """Gate that counts the work under way and closes when the daemon shuts down.

    Work leaves when it has ended and its reply has been handed to the transport, or can't be sent any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._inside = 0
        self.is_closed = False

    def require_open(self) -> None:
        """Raise UnavailableDevice if the gate is closed."""
        if self.is_closed:
            raise UnavailableDevice(
                "the daemon is shutting down and takes no new work; use another device, as a pool does"
            )

    def enter(self) -> None:
        """Count one more piece of work until `leave`; raise UnavailableDevice if the gate is closed."""
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
        """Count the block as work; raise UnavailableDevice if the gate is closed."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def close(self, timeout_s: float) -> bool:
        """Admit no more work and return whether all work left within `timeout_s`."""
        with self._lock:
            self.is_closed = True
            return self._empty.wait_for(lambda: not self._inside, timeout_s)
