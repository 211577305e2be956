"""Callbacks of `run_async`. Each run causes exactly one, in a thread of the runtime."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from nnrt_client.run.result import RunResult
from nnrt_client.run.run import Run
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.latch import Changes
from nnrt_hdi.errors import NnrtError

# Whether this thread is inside a callback.
_here = threading.local()

# Calls the application's callback with the result and the error of a run, one of which is None.
Deliver = Callable[["RunResult[Any] | None", "NnrtError | None"], object]


class Callbacks(LockOwner):
    """Callbacks of an executor's runs. A callback must not wait for another one."""

    def __init__(self, call_back: Callable[..., object]) -> None:
        """Create it. `call_back` calls a function in a thread for callbacks."""
        self._call_back = call_back
        # Runs whose callbacks have not returned.
        self._expected: set[Run] = set()
        # Callbacks of ended runs that no thread has started yet.
        self._unbegun: set[Callable[[], None]] = set()
        super().__init__()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._changes = Changes()

    def _enter_child(self, reason: NnrtError) -> None:
        self._expected.clear()
        self._unbegun.clear()

    @property
    def runs(self) -> list[Run]:
        """Runs whose callbacks have not returned."""
        return list(self._expected)

    def expect(self, run: Run) -> None:
        """Add a run that is about to start: `settle` waits for its callback."""
        self._expected.add(run)

    def expect_no_more(self, run: Run) -> None:
        """Remove a run that did not start."""
        self._expected.discard(run)
        self._changes.announce()

    def start(self, deliver: Deliver, run: Run) -> None:
        """Start the callback of a run that has ended."""
        delivery = partial(self._deliver, deliver, run)
        with self._lock:
            self._unbegun.add(delivery)
        self._changes.announce()
        self._call_back(self._make, delivery)

    def settle(self) -> None:
        """Wait until all callbacks have returned. Return at once if the calling thread is in a callback.

        The calling thread also makes callbacks that no other thread has started, because all threads for callbacks may
        be waiting for the calling thread.
        """
        if getattr(_here, "is_callback", False):
            return
        while True:
            self._changes.wait_for(lambda: self._unbegun or not self._has_pending())
            with self._lock:
                delivery = self._unbegun.pop() if self._unbegun else None
            if delivery is not None:
                delivery()
            elif not self._has_pending():
                return

    def _has_pending(self) -> bool:
        """Return whether a callback is still to come. A run whose start was interrupted causes none."""
        return any(run.keeps_tensors or not run.ended.is_set for run in list(self._expected))

    def _make(self, delivery: Callable[[], None]) -> None:
        with self._lock:
            is_unbegun = delivery in self._unbegun
            self._unbegun.discard(delivery)
        if is_unbegun:  # Else `settle` calls it.
            delivery()

    def _deliver(self, deliver: Deliver, run: Run) -> None:
        """Call a callback, then release the run's tensors."""
        _here.is_callback = True
        try:
            run.stamps.wake()
            result, error = run.take()
            deliver(result, error)
            del result, error
        finally:
            _here.is_callback = False
            if run.tensors is not None:
                run.tensors.release()
                run.tensors = None
            self._expected.discard(run)
            self._changes.announce()
