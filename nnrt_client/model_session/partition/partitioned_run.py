"""One run of a model that is cut into parts."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any, Protocol, TypeVar

from nnrt_client.model_session.partition.device_part import OnPartDone
from nnrt_client.run.run import _Cancelled
from nnrt_client.session.latch import Latch
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_hdi.errors import NnrtError, OperationFailed

ResultT = TypeVar("ResultT")


class PartCall(Protocol):
    """One run of a part."""

    # Whether it writes to tensors of the application.
    is_writing: bool

    def start(self, done: OnPartDone) -> None:
        """Start it."""

    def stop(self) -> None:
        """Give it up; `done` is called all the same. Any thread."""

    def settle(self) -> None:
        """Nobody reads any more what it gave."""


class ReadyPart(Protocol):
    """A part, ready to run."""

    inputs: list[str]
    outputs: list[str]

    def call(
        self,
        values: Mapping[str, Any],
        sizes: Mapping[str, int],
        timeout_ms: int | None,
        targets: Mapping[str, RunTensor[Any]],
    ) -> PartCall:
        """Prepare a run on these values; `sizes` are those of named dimensions, `targets` what it may write to."""


class PartitionedRun:
    """A run from its start to its end. A part starts in the thread in which the last of its inputs came to be known.

    It has ended when nothing writes to tensors of the application any more, whichever way it ends.
    """

    def __init__(
        self,
        parts: Sequence[ReadyPart],
        values: dict[str, Any],
        sizes: Mapping[str, int],
        timeout_ms: int | None,
        targets: Mapping[str, RunTensor[Any]],
        on_ended: Callable[["PartitionedRun"], object],
    ) -> None:
        """`targets` are what parts may write to while it goes on; `on_ended` is called once, when it has ended."""
        self.values = values
        self.error: BaseException | None = None
        self.ended = Latch()
        self._sizes = sizes
        self.timeout_ms = timeout_ms
        self.deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._targets = targets
        self._on_ended = on_ended
        # Held by who looks what may start, or ends the run: never while anything is started or called.
        self._lock = threading.RLock()
        self._waiting = {at: set(part.inputs) - values.keys() for at, part in enumerate(parts)}
        self._parts = parts
        self._left = len(parts)
        self._calls: list[PartCall] = []
        self._writing: set[PartCall] = set()
        self._is_over = False
        self._is_told = False

    def start(self) -> None:
        """Start the parts that wait for nothing."""
        if not self._parts:
            self._end(None)
        self._start_ready()

    def give_up(self, reason: BaseException) -> bool:
        """End with this error, and stop what is under way. False where it was over already. Any thread."""
        return self._end(reason)

    def _start_ready(self) -> None:
        while True:
            with self._lock:
                ready = [at for at, missing in self._waiting.items() if not missing]
                if self._is_over or not ready:
                    return
                part = self._parts[ready[0]]
                del self._waiting[ready[0]]
                remaining_ms = None
                if self.timeout_ms is not None:
                    remaining_ms = max(math.ceil((self.deadline - time.monotonic()) * 1000), 1)
                call = part.call(self.values, self._sizes, remaining_ms, self._targets)
                self._calls.append(call)
                if call.is_writing:
                    self._writing.add(call)
            try:
                call.start(partial(self._part_ended, call))
            except BaseException as error:
                self._writing.discard(call)
                self._end(error)
                if not isinstance(error, Exception):
                    raise

    def _part_ended(self, call: PartCall, outputs: Mapping[str, Any] | None, error: BaseException | None) -> None:
        with self._lock:
            self._writing.discard(call)
            if outputs is not None:
                self.values.update(outputs)
                for missing in self._waiting.values():
                    missing.difference_update(outputs)
                self._left -= 1
        if outputs is None or not self._left:
            self._end(error)
        else:
            self._start_ready()
        self._tell()

    def _end(self, error: BaseException | None) -> bool:
        with self._lock:
            if self._is_over:
                return False
            self._is_over = True
            self.error = error
            calls, self._calls = self._calls, []
        for call in calls:
            if error is None:
                call.settle()
            else:
                call.stop()
        self._tell()
        return True

    def _tell(self) -> None:
        """Say that it has ended, if it has."""
        with self._lock:
            if self._is_told or not self._is_over or self._writing:
                return
            self._is_told = True
        try:
            self._on_ended(self)
        finally:
            self.values = {}
            self.ended.set()


class PartitionedFuture(Future[ResultT]):
    """The future of a run in parts. Made by `PartitionedExecutor.submit`."""

    def _bind(self, run: PartitionedRun) -> None:
        self._run = run

    def done(self) -> bool:
        """True once the run has ended, or has been cancelled."""
        return self._run.ended.is_set or self.cancelled()

    def cancelled(self) -> bool:
        """True once the run has been cancelled."""
        return isinstance(self._run.error, _Cancelled)

    def cancel(self) -> bool:
        """Give the run up, if it has not ended; true if that was in time. The parts under way are stopped."""
        self._run.give_up(_Cancelled("the run was cancelled"))
        return self.cancelled()

    def result(self, timeout: float | None = None) -> ResultT:
        """Wait for the outputs, so many seconds at most. Raises what `run_sync` raises, CancelledError or
        TimeoutError."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the run, so many seconds at most: the error, None for a run that succeeded."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout_s: float | None) -> None:
        if self.cancelled():
            raise CancelledError
        if not self._run.ended.wait(timeout_s):
            raise FutureTimeoutError
        if self.cancelled():
            raise CancelledError

    def _settle(self, value: ResultT | None, error: BaseException | None) -> None:
        """Take what came of the run."""
        if isinstance(error, _Cancelled):
            super().cancel()
            super().set_running_or_notify_cancel()
        elif super().set_running_or_notify_cancel():
            if error is None:
                self.set_result(value)  # type: ignore[arg-type]  # One of the two is given.
            else:
                self.set_exception(error if isinstance(error, NnrtError) else OperationFailed(repr(error)))
