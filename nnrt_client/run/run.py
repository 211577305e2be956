"""One run, from the moment it is accepted to its end."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

from nnrt_client.run.called_back import CalledBackFuture
from nnrt_client.run.reply import Reply
from nnrt_client.run.result import RunResult
from nnrt_client.run.stamps import Stamps
from nnrt_client.session.broken_call import CutOff
from nnrt_client.session.latch import Latch
from nnrt_client.tensors.device_buffer import Elements
from nnrt_hdi.chunks import Assembly
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.signals import raised_by_handler, suppressed

if TYPE_CHECKING:
    from nnrt_client.run.run_tensors import RunTensors
    from nnrt_client.run.session_dispatcher import SessionDispatcher
    from nnrt_client.run.signature import Signature

_log = logging.getLogger(__name__)

# The timeout in a frame is a uint32. Who asks for more than these 49 days gets them.
_MAX_TIMEOUT_MS = 2**32 - 1

# Makes the outputs of a run of its reply. Raises what that says went wrong.
Unpack = Callable[[], "list[Elements]"]
ResultT = TypeVar("ResultT")
OnEnded = Callable[["Run"], object]


class Run:
    """A run from before it is accepted. It ends exactly once: with a RunResult, or with an error.

    `inputs` are arrays that fit the model, read where they are until the run has ended; `tensors` are those among its
    inputs and outputs.
    """

    __slots__ = (
        "_error",
        "_lock",
        "_making",
        "_result",
        "deadline",
        "ended",
        "future",
        "given_up",
        "id",
        "inputs",
        "keeps_tensors",
        "link",
        "on_ended",
        "packet",
        "priority",
        "registry",
        "signature",
        "stamps",
        "tensors",
        "timeout_ms",
        "unwanted",
    )

    # Of its RunDescription, besides what all of its kind have.
    fields: Mapping[str, Any] = {}

    def __init__(self, signature: "Signature", priority: Priority, registry: "set[Run]") -> None:
        """It is in the registry until it has ended."""
        self.stamps = Stamps(signature.clock)
        self.id = 0
        self.signature = signature
        self.inputs: Sequence[Elements] = ()
        self.tensors: RunTensors | None = None
        # Indexes of the outputs that nobody wants, which are not sent.
        self.unwanted: Sequence[int] = ()
        self.priority = priority
        # 0 without a limit.
        self.timeout_ms = 0
        self.deadline = math.inf
        # Whether they are for somebody else to let go of, after the run.
        self.keeps_tensors = False
        self.registry = registry
        self.ended = Latch()
        # The link that carries it, or did; or what fetches its reply.
        self.link: Any = None
        # The run as it travels, which reads its reply.
        self.packet: Any = None
        # Why it is to end, once nobody wants its outputs any more.
        self.given_up: NnrtError | None = None
        # Held by who ends it for a step, or while a piece of its outputs is copied, a MiB at most. A handler that comes
        # in the same thread meanwhile may close its executor.
        self._lock = threading.RLock()
        # Held by who makes its outputs, for as long as the network takes. Who ends the run doesn't wait for it.
        self._making = threading.Lock()
        # It takes what comes of the run.
        self.future: RunFuture[Any] | None = None
        # Called with the run when it has ended, in a thread that gets no signals.
        self.on_ended: OnEnded | None = None
        self._result: RunResult[Any] | None = None
        self._error: BaseException | None = None

    def limit(self, timeout_ms: int) -> None:
        """End it after so long, from now on."""
        self.timeout_ms = min(timeout_ms, _MAX_TIMEOUT_MS)
        self.deadline = time.monotonic() + self.timeout_ms / 1000

    def bound(self, seconds: float) -> None:
        """End it after so long, from now on, of which the daemon isn't told."""
        self.deadline = time.monotonic() + seconds

    @property
    def carrying(self) -> Any:
        """The link on which its reply is to come, or what fetches it; None where neither is."""
        link = self.link
        return link if link is not None and link.carries(self) else None

    @property
    def size_bytes(self) -> int:
        """Length of the inputs."""
        return sum(given.nbytes for given in self.inputs)

    @property
    def remaining_ms(self) -> int:
        """Milliseconds that are left of its time, for the daemon; 0 without a limit."""
        return max(int((self.deadline - time.monotonic()) * 1000), 1) if self.timeout_ms else 0

    def tell(self, on_ended: OnEnded, future: "RunFuture[Any] | None" = None, *, keeps_tensors: bool = False) -> bool:
        """Call this when the run ends; false where it has ended before it began, for its executor was closed."""
        with self._lock:
            if not self.ended.is_set:
                self.on_ended, self.future, self.keeps_tensors = on_ended, future, keeps_tensors
                return True
        return False

    def finish(self, unpack: Unpack, reply: Reply) -> None:
        """End with the outputs of the reply, which is here, unless the run has been given up. One that fails meanwhile
        ends at once, unless its outputs are being written into tensors.

        Raises CutOff, and has not ended, where the connection breaks before all of the reply is there, and what a
        signal handler raises.
        """
        try:
            with self._making:
                with self._lock:
                    is_wanted, stamps, tensors = self._is_wanted, self.stamps, self.tensors
                if is_wanted:
                    outputs, stamps.told = unpack(), reply.times
                    with self._lock:
                        if self._is_wanted:
                            if tensors is None or tensors.outputs is None:
                                result = RunResult(outputs)
                            else:
                                result = tensors.result(outputs)
                            result._stamps, stamps.unpacked_ns = stamps, perf_counter_ns()
                            self._result = result
        except CutOff:
            if self.given_up is not None or self._error is not None:
                self._end()
            raise  # The reply may be had in another way.
        except Exception as error:
            if raised_by_handler(error):
                raise
            self.fail(told(error, "the reply could not be read"))
        else:
            self._end()

    def write(self, piece: memoryview | bytes, assembly: Assembly) -> None:
        """Write a piece of the outputs, or throw it and the rest away if nobody wants them: nothing is written into a
        tensor after `give_up` has returned in another thread. Raises as `Assembly.take`."""
        with self._lock:
            if not self._is_wanted:
                assembly.throw_away()
            assembly.take(piece)

    @property
    def _is_wanted(self) -> bool:
        return not (self.ended.is_set or self.given_up or self._error)

    def fail(self, error: NnrtError) -> None:
        """End with an error, or with why the run was given up before, unless it has ended."""
        with self._lock:
            if not self.ended.is_set and self._result is None and self._error is None:
                # A copy of one that the run keeps: an error that is raised has the frames that it goes through.
                self._error = _without_frames(error) if self.given_up is None else self.given_up.copy()
            is_written = self.tensors is not None and self.tensors.outputs is not None
        if not (is_written and self._making.locked()):  # Else who writes them ends it.
            self._end()

    def give_up(self, reason: NnrtError) -> bool:
        """Have it end with this reason, for nobody wants its outputs any more. True if it has not ended yet."""
        with self._lock:
            if self.ended.is_set or self._result is not None or self._error is not None:
                return False
            self.given_up = self.given_up or reason
        return True

    def take(self) -> "tuple[RunResult[Any] | None, BaseException | None]":
        """Hand result and error of a run that has ended, one of them None, to the only one who asks. The run, which its
        link may keep for a while, forgets them."""
        result, error, self._result, self._error = self._result, self._error, None, None
        return result, error

    def fail_in_child(self, error: NnrtError) -> None:
        """End after a fork, whoever held the lock before. What it would call is the parent's."""
        self._lock, self._making = threading.RLock(), threading.Lock()
        self.on_ended = None
        self.fail(error)

    def _end(self) -> None:
        """Let go of what the run held, and wake the threads that wait for it. Once."""
        self.registry.discard(self)
        with self._lock:
            if self.ended.is_set:
                self._let_go()
                return
            if self._error is None and self._result is None:
                self._error = OperationFailed("the run was given up") if self.given_up is None else self.given_up.copy()
            on_ended, self.on_ended = self.on_ended, None
            if (future := self.future) is not None:
                self.future, future._outcome = None, self.take()
            try:
                if self.tensors is not None and not self.keeps_tensors:
                    self.tensors.release()
                    self.tensors = None
            finally:
                self.ended.set()
                self._let_go()
        if on_ended is not None:
            on_ended(self)

    def _let_go(self) -> None:
        """Forget what a run that has ended was made of, unless its reply is still being read: who reads it does so."""
        if not self._making.locked():
            self.inputs, self.packet = (), None


def told(error: BaseException, otherwise: str) -> NnrtError:
    """Give an error of ours as it is. Of anything else make one that tells of it, and of what could not be done."""
    if isinstance(error, NnrtError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory(f"{otherwise}: this host has no memory left")
    _log.error("%s", otherwise, exc_info=error)
    return OperationFailed(f"{otherwise}: {error!r}")


def _without_frames(error: BaseException) -> BaseException:
    """Rid an error, and those it comes from, of the frames they went through, which hold what the run held."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__
    return error


class RunFuture(CalledBackFuture[ResultT]):
    """The future of a run, on which the main thread can wait while signals come. Made by `Executor.submit`.

    Only who ends the run, and `concurrent.futures.wait`, take the lock of concurrent.futures.
    """

    def _bind(
        self, run: Run, dispatcher: "SessionDispatcher", convert: "Callable[[RunResult[Any]], ResultT] | None"
    ) -> bool:
        """Be the future of a run that is about to begin; false where it has ended before. The result is what `convert`
        makes of the run's."""
        self._run = run
        self._outcome: tuple[RunResult[Any] | None, BaseException | None] = None, None
        self._stamps = run.stamps
        self._dispatcher = dispatcher
        self._convert = convert
        self._converted: list[Any] = []
        self._call_back_in(dispatcher.call_back, run.ended)
        return run.tell(self._settle, self)

    def _settle(self, run: Run) -> None:
        """Tell concurrent.futures that the run has ended, and have the callbacks called."""
        _, error = self._outcome
        value: Any = None
        if error is None:
            try:
                value = self._value()
            except Exception as failure:
                error = _without_frames(failure)
        if isinstance(error, _Cancelled):
            super().cancel()
            super().set_running_or_notify_cancel()
        elif error is not None:
            super().set_exception(error)
        else:
            super().set_result(value)
        del error, _, value
        self._tell()

    def done(self) -> bool:
        """True once the run has ended, or has been cancelled."""
        return self._run.ended.is_set or self.cancelled()

    def running(self) -> bool:
        """False: a run can be cancelled until it has ended."""
        return False

    def cancelled(self) -> bool:
        """True once the run has been cancelled."""
        return isinstance(self._run.given_up, _Cancelled)

    def cancel(self) -> bool:
        """Give the run up, if it has not ended; true if that was in time. The daemon stops the run."""
        if self._run.give_up(_Cancelled("the run was cancelled")):
            self._dispatcher.give_up(self._run)
        return self.cancelled()

    def result(self, timeout: float | None = None) -> ResultT:
        """Wait for the outputs, so many seconds at most. Raises what `Executor.run_sync` raises, CancelledError, or
        TimeoutError."""
        was_over = self._run.ended.is_set
        self._wait(timeout)
        if not was_over:
            self._run.stamps.wake()
        try:
            return self._value()  # type: ignore[no-any-return]  # `convert` makes it.
        finally:
            del self  # An error knows this frame.

    def _value(self) -> Any:
        """Give the outputs as they are wanted, whoever is the first to ask. Raises why there are none."""
        result, error = self._outcome
        try:
            if result is not None and self._convert is not None and not self._converted:
                try:
                    self._converted.append(self._convert(result))
                except Exception as failure:
                    if raised_by_handler(failure):
                        raise
                    error = told(failure, "the outputs could not be converted")
                    self._outcome = None, error
            if error is not None:
                raise error
            return self._converted[0] if self._converted else result
        finally:
            del result, error, self  # As above.

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the run, so many seconds at most: the error, None for a run that succeeded. Raises
        CancelledError or TimeoutError."""
        self._wait(timeout)
        if self._outcome[1] is None:
            with suppressed(NnrtError):
                self._value()
        return self._outcome[1]

    def _wait(self, timeout_s: float | None) -> None:
        if self.cancelled():
            raise CancelledError
        if not self._run.ended.wait(timeout_s):
            raise FutureTimeoutError
        if self.cancelled():
            raise CancelledError


class _Cancelled(OperationFailed, code=OperationFailed.code, status=OperationFailed.grpc_status):
    """The run's future was cancelled."""
