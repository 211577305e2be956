"""Callbacks of `run_async`: exactly one per run, in a thread of the runtime."""

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

# Called with result and error of a run, one of them None.
Deliver = Callable[["RunResult[Any] | None", "NnrtError | None"], object]


class Callbacks(LockOwner):
    """Callbacks of an executor's runs. They may wait for anything except each other."""

    def __init__(self, call_back: Callable[..., object]) -> None:
        """Create it. `call_back` calls a function in a thread for callbacks."""
        self._call_back = call_back
        # Runs whose callbacks have not returned.
        self._expected: set[Run] = set()
        # Callbacks of ended runs that no thread has begun.
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

    def ended(self, deliver: Deliver, run: Run) -> None:
        """Start the callback of a run that has ended."""
        delivery = partial(self._deliver, deliver, run)
        with self._lock:
            self._unbegun.add(delivery)
        self._changes.announce()
        self._call_back(self._make, delivery)

    def settle(self) -> None:
        """Wait until all callbacks have returned; return at once within a callback.

        This thread calls those that no other thread has begun: all threads may be in callbacks that wait for this one.
        """
        if getattr(_here, "is_callback", False):
            return
        while True:
            self._changes.wait_for(lambda: self._unbegun or not self._awaited())
            with self._lock:
                delivery = self._unbegun.pop() if self._unbegun else None
            if delivery is not None:
                delivery()
            elif not self._awaited():
                return

    def _awaited(self) -> bool:
        """Return whether a callback is still to come. A run whose start was interrupted has none."""
        return any(run.keeps_tensors or not run.ended.is_set for run in list(self._expected))

    def _make(self, delivery: Callable[[], None]) -> None:
        with self._lock:
            is_unbegun = delivery in self._unbegun
            self._unbegun.discard(delivery)
        if is_unbegun:  # Else `settle` calls it.
            delivery()

    def _deliver(self, deliver: Deliver, run: Run) -> None:
        """Call a callback."""
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
