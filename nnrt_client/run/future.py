"""Future of a run."""

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

# Seconds that an interrupted thread waits for the end of its run, because outputs may be being written.
WRITE_S = 10.0

ResultT = TypeVar("ResultT")
Callback = Callable[[Future[Any]], object]
Convert = Callable[[RunResult[Any]], Any]
# Cancels a run for a reason; returns whether that was in time.
GiveUp = Callable[[NnrtError], bool]


class RunFuture(Future[ResultT]):
    """Future of a run; `submit` creates it.

    Threads that wait or add a callback don't take the lock of concurrent.futures, because a signal handler may
    interrupt them at any line. Only the thread that ends the run and `concurrent.futures.wait` take it. The runtime's
    threads for callbacks call the callbacks.
    """

    # Time stamps of the run; None for a run that consists of other runs.
    _stamps: Stamps | None = None

    def _bind(self, give_up: GiveUp, call_back: Callable[..., object], convert: Convert | None = None) -> None:
        """Connect the future with a run that is about to start.

        Args:
            give_up: Cancels the run.
            call_back: Calls a function in a thread for callbacks.
            convert: Turns the run's result into the future's.
        """
        self._give_up = give_up
        self._call_back = call_back
        self._convert = convert
        self._settled = Latch()
        self._is_cancelled = False
        self._result: Any = None
        # The converted result, once a thread has asked for it.
        self._values: list[Any] = []
        self._error: BaseException | None = None
        self._callbacks: list[Callback] = []
        self._callbacks_lock = threading.RLock()

    # ---- for threads that wait

    def done(self) -> bool:
        """Return whether the run has ended or was cancelled."""
        return self._settled.is_set or self._is_cancelled

    def running(self) -> bool:
        """Return False, because a run can be cancelled until it has ended."""
        return False

    def cancelled(self) -> bool:
        """Return whether the run was cancelled."""
        return self._is_cancelled

    def cancel(self) -> bool:
        """Cancel the run, and ask the daemon to stop it. Return False if it had ended before."""
        if not self.done() and self._give_up(Cancelled("the run was cancelled")):
            self._is_cancelled = True
        return self._is_cancelled

    def result(self, timeout: float | None = None) -> ResultT:
        """Wait for the outputs.

        Args:
            timeout: Seconds to wait at most; None: as long as the run takes.

        Returns:
            The outputs, as `Executor.run_sync` returns them.

        Raises:
            CancelledError: The run was cancelled.
            TimeoutError: The run had not ended in time.
            NnrtError: The run failed; as `Executor.run_sync`.
        """
        was_over = self._settled.is_set
        error = self.exception(timeout)
        if self._stamps is not None and not was_over:
            self._stamps.wake()
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # The error refers to this frame.
        return self._values[0]  # type: ignore[no-any-return]  # There is a value if there is no error.

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the run.

        Args:
            timeout: Seconds to wait at most; None: as long as the run takes.

        Returns:
            The error of the run, or None if it succeeded.

        Raises:
            CancelledError: The run was cancelled.
            TimeoutError: The run had not ended in time.
        """
        if not self._is_cancelled and not self._settled.wait(timeout):
            raise FutureTimeoutError
        if self._is_cancelled:
            raise CancelledError
        self._convert_once()
        return self._error

    def add_done_callback(self, fn: Callable[[Future[ResultT]], object]) -> None:
        """Call `fn` with the future when the run has ended, in a thread for callbacks."""
        with self._callbacks_lock:
            if not self._settled.is_set:
                self._callbacks.append(fn)
                return
        self._call_all((fn,))

    # ---- for the thread that ends the run

    def _settle(self, result: RunResult[Any] | None, error: NnrtError | None) -> None:
        """Store the run's result or error, wake waiting threads, and start the callbacks.

        A caller that runs out of memory may call this again: it skips the steps that were done.
        """
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
            self._call_back(self._run_callbacks, callbacks)

    def _convert_once(self) -> None:
        """Convert the run's result, unless another thread has done it."""
        if self._error is not None or self._values:
            return
        try:
            self._values.append(self._result if self._convert is None else self._convert(self._result))
        except Exception as failure:
            if raised_by_handler(failure):
                raise
            error = without_frames(nnrt_error_of(failure, "the outputs could not be converted"))
            self._error = self._error or error

    def _run_callbacks(self, callbacks: Sequence[Callback]) -> None:
        """Call the callbacks, in a thread for callbacks."""
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
        """Settle the future in a forked child, without a lock. Callbacks are the parent's: the child calls none."""
        self._error = error
        self._settled.set()


def _too_late(_: NnrtError) -> bool:
    """Return False, because a run that has ended can't be cancelled."""
    return False


class Cancelled(OperationFailed, code=OperationFailed.code, status=OperationFailed.grpc_status):
    """Error of a run whose future was cancelled."""
