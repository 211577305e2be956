"""The future of a run that is made of others: of parts of the model, or of attempts on several devices."""

from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Protocol, TypeVar

from nnrt_client.run.base_executor import WRITE_S
from nnrt_client.run.called_back import CalledBackFuture
from nnrt_client.run.run import _Cancelled
from nnrt_client.session.latch import Latch
from nnrt_hdi.errors import NnrtError, OperationFailed

ResultT = TypeVar("ResultT")


class ComposedRun(Protocol):
    """A run that starts others."""

    error: BaseException | None
    ended: Latch

    def give_up(self, reason: BaseException) -> bool:
        """End with this error, and stop what is under way. False where it was over already. Any thread."""


class ComposedFuture(CalledBackFuture[ResultT]):
    """The future of a run that is made of others.

    Who waits takes no lock of concurrent.futures, for the main thread may be interrupted at any line.
    """

    def _bind(self, run: ComposedRun, call_back: Callable[..., object]) -> None:
        """Be the future of a run that is about to begin; `call_back` has a thread for callbacks call something."""
        self._run = run
        self._settled = Latch()
        self._call_back_in(call_back, self._settled)
        self._value: ResultT | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """True once the run has ended, or has been cancelled."""
        return self._settled.is_set or self.cancelled()

    def cancelled(self) -> bool:
        """True once the run has been cancelled."""
        return isinstance(self._run.error, _Cancelled)

    def cancel(self) -> bool:
        """Give the run up, if it has not ended; true if that was in time. What is under way is stopped."""
        self._run.give_up(_Cancelled("the run was cancelled"))
        return self.cancelled()

    def result(self, timeout: float | None = None) -> ResultT:
        """Wait for the outputs, so many seconds at most. Raises what `run_sync` raises, CancelledError or
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
        return self._value  # type: ignore[return-value]  # It is there where no error is.

    def _result_or_give_up(self) -> ResultT:
        """Wait for the outputs. Who is interrupted gives the run up, and waits for its end."""
        try:
            return self.result()
        except BaseException:
            self.cancel()
            self._run.ended.wait(WRITE_S)
            raise
        finally:
            del self  # An error knows this frame.

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the run, so many seconds at most: the error, None for a run that succeeded."""
        if not self.cancelled() and not self._settled.wait(timeout):
            raise FutureTimeoutError
        if self.cancelled():
            raise CancelledError
        return self._error

    def _fail_in_child(self, error: NnrtError) -> None:
        """End after a fork, whoever held the lock of concurrent.futures before."""
        self._error = error
        self._settled.set()

    def _settle(self, value: ResultT | None, error: BaseException | None) -> None:
        """Take what came of the run, and tell concurrent.futures."""
        if isinstance(error, _Cancelled):
            self._settled.set()
            super().cancel()
            super().set_running_or_notify_cancel()
            self._tell()
            return
        if error is not None and not isinstance(error, NnrtError):
            error = OperationFailed(repr(error))
        self._value, self._error = value, error
        self._settled.set()
        if super().set_running_or_notify_cancel():
            if error is None:
                self.set_result(value)  # type: ignore[arg-type]  # As above.
            else:
                self.set_exception(error)
        self._tell()
