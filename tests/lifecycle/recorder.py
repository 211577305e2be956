"""Record of executors' callbacks."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from nnrt_client import Executor, NnrtError

DEADLINE_S = 20.0

Outcome = tuple[list[Any] | None, NnrtError | None]


class Recorder:
    """Record of callbacks by user data, for any number of executors."""

    def __init__(self) -> None:
        self.done: defaultdict[Any, list[Outcome]] = defaultdict(list)
        self.died: defaultdict[Any, int] = defaultdict(int)
        self.last_at = 0.0
        self._changed = threading.Condition()

    def watch(self, executor: Executor, *, died: bool = True) -> Executor:
        """Set the callbacks of an executor; with `died=False` only on_run_done."""
        executor.set_on_run_done(self.on_run_done)
        if died:
            executor.set_on_service_died(self.on_service_died)
        return executor

    @property
    def count(self) -> int:
        """Number of callbacks so far."""
        return sum(map(len, self.done.values())) + sum(self.died.values())

    def wait(self, count: int) -> None:
        """Wait until there have been `count` callbacks in all."""
        self.wait_for(lambda: self.count >= count)

    def wait_for(self, wanted: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(wanted, DEADLINE_S), f"done: {dict(self.done)}, died: {dict(self.died)}"

    def error(self, user_data: Any) -> NnrtError:
        """Return the error of a run's only callback."""
        ((outputs, error),) = self.done[user_data]
        assert outputs is None
        assert error is not None
        return error

    def outputs(self, user_data: Any) -> list[Any]:
        """Return the outputs of a run's only callback."""
        ((outputs, error),) = self.done[user_data]
        assert error is None, repr(error)
        assert outputs is not None
        return outputs

    def on_run_done(self, user_data: Any, outputs: list[Any] | None, error: NnrtError | None) -> None:
        with self._changed:
            self.done[user_data].append((outputs, error))
            self._note()

    def on_service_died(self, user_data: Any) -> None:
        with self._changed:
            self.died[user_data] += 1
            self._note()

    def _note(self) -> None:
        self.last_at = time.monotonic()
        self._changed.notify_all()
