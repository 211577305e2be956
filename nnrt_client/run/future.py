"""The future of a run, wherever the run is made."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from nnrt_client.run.failures import nnrt_error_of, without_frames
from nnrt_client.run.result import RunResult
from nnrt_client.run.stamps import Stamps
from nnrt_client.session.latch import Latch
from nnrt_hdi.errors import NnrtError, OperationFailed
from nnrt_hdi.signals import raised_by_handler

_log = logging.getLogger(__name__)

# Whoever is interrupted in a run waits so long for its end: its outputs may be being written.
WRITE_S = 10.0

ResultT = TypeVar("ResultT")
Callback = Callable[[Future[Any]], object]
Convert = Callable[[RunResult[Any]], Any]
# Ends a run for a reason, and tells if that was in time.
GiveUp = Callable[[NnrtError], bool]


class RunFuture(Future[ResultT]):
    """The future of a run. Made by `submit`.

    A signal handler may come at any line of who waits or adds a callback: that takes no lock of concurrent.futures.
    Only who ends the run, and `concurrent.futures.wait`, take it. Callbacks are called in threads for them.
    """

    # Those of the run; None where it is made of others.
    _stamps: Stamps | None = None

    def _bind(self, give_up: GiveUp, call_back: Callable[..., object], convert: Convert | None = None) -> None:
        """Be the future of a run that is about to begin. Its result is what `convert` makes of the run's; `call_back`
        has a thread for callbacks call something."""
        self._give_up = give_up
        self._call_back = call_back
        self._convert = convert
        self._settled = Latch()
        self._is_cancelled = False
        self._result: Any = None
        # What has been made of it, first of all by whoever was the first.
        self._values: list[Any] = []
        self._error: BaseException | None = None
        self._callbacks: list[Callback] = []
        self._callbacks_lock = threading.RLock()

    # ---- for who waits

    def done(self) -> bool:
        """True once the run has ended, or has been cancelled."""
        return self._settled.is_set or self._is_cancelled

    def running(self) -> bool:
        """False: a run can be cancelled until it has ended."""
        return False

    def cancelled(self) -> bool:
        """True once the run has been cancelled."""
        return self._is_cancelled

    def cancel(self) -> bool:
        """Give the run up, if it has not ended; true if that was in time. The daemon stops the run."""
        if not self.done() and self._give_up(Cancelled("the run was cancelled")):
            self._is_cancelled = True
        return self._is_cancelled

    def result(self, timeout: float | None = None) -> ResultT:
        """Wait for the outputs, so many seconds at most. Raises what `Executor.run_sync` raises, CancelledError, or
        TimeoutError."""
        was_over = self._settled.is_set
        error = self.exception(timeout)
        if self._stamps is not None and not was_over:
            self._stamps.wake()
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # The error knows this frame.
        return self._values[0]  # type: ignore[no-any-return]  # It is there where no error is.

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the run, so many seconds at most: the error, None for a run that succeeded. Raises
        CancelledError or TimeoutError."""
        if not self._is_cancelled and not self._settled.wait(timeout):
            raise FutureTimeoutError
        if self._is_cancelled:
            raise CancelledError
        self._convert_once()
        return self._error

    def add_done_callback(self, fn: Callable[[Future[ResultT]], object]) -> None:
        """Call this with the future when the run has ended, in a thread for callbacks; at once where it has."""
        with self._callbacks_lock:
            if not self._settled.is_set:
                self._callbacks.append(fn)
                return
        self._call_all((fn,))

    # ---- for who ends the run

    def _settle(self, result: RunResult[Any] | None, error: NnrtError | None) -> None:
        """Take what came of the run, wake who waits, and have the callbacks called. Whoever was left without memory on
        the way does it once more: what has been done isn't done again."""
        if not self._settled.is_set:
            if result is not None:
                self._stamps = result._stamps
            self._is_cancelled = self._is_cancelled or isinstance(error, Cancelled)
            self._result, self._error = result, error
            self._give_up = _too_late
            self._settled.set()
        self._convert_once()
        if not super().done():
            if self._is_cancelled:
                super().cancel()
                super().set_running_or_notify_cancel()
            elif self._error is not None:
                super().set_exception(self._error)
            else:
                super().set_result(self._values[0])
        with self._callbacks_lock:
            callbacks, self._callbacks = self._callbacks, []
        if callbacks:
            self._call_back(self._go_on, callbacks)

    def _convert_once(self) -> None:
        """Make of the run's result what is wanted of it, in the thread that is the first to ask: others that wait are
        not kept waiting by it."""
        if self._error is not None or self._values:
            return
        try:
            self._values.append(self._result if self._convert is None else self._convert(self._result))
        except Exception as failure:
            if raised_by_handler(failure):
                raise
            error = without_frames(nnrt_error_of(failure, "the outputs could not be converted"))
            self._error = self._error or error

    def _go_on(self, callbacks: Sequence[Callback]) -> None:
        """Call those who wait in no thread."""
        if self._stamps is not None:
            self._stamps.wake()
        self._call_all(callbacks)

    def _call_all(self, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                _log.exception("a callback of %r failed", self)

    def _fail_in_child(self, error: NnrtError) -> None:
        """End after a fork, whoever held a lock before. Callbacks are the parent's."""
        self._error = error
        self._settled.set()


def _too_late(_: NnrtError) -> bool:
    """The run has ended."""
    return False


class Cancelled(OperationFailed, code=OperationFailed.code, status=OperationFailed.grpc_status):
    """The run's future was cancelled."""
