"""State of one run, from its creation until it has ended."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from time import perf_counter_ns
from typing import Any

import numpy as np

from nnrt_client.run.descriptions import Descriptions, RunInSequence
from nnrt_client.run.failures import nnrt_error_of, without_frames
from nnrt_client.run.future import RunFuture
from nnrt_client.run.reply import Reply
from nnrt_client.run.result import RunResult
from nnrt_client.run.run_tensors import RunTensors
from nnrt_client.run.signature import Signature
from nnrt_client.run.stamps import Stamps
from nnrt_client.session.broken_call import CutOff
from nnrt_client.session.latch import Latch
from nnrt_client.tensors.device_buffer import Elements
from nnrt_hdi.chunks import Assembly
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.signals import raised_by_handler

# Longest timeout, 49 days, because the timeout in a frame is a uint32. Longer ones are cut to this.
_MAX_TIMEOUT_MS = 2**32 - 1

# Returns the outputs of a run's reply, or raises the error that the reply contains.
Unpack = Callable[[], "list[Elements]"]
OnEnded = Callable[["Run"], object]


class Run:
    """One run of a model. It ends exactly once: with a RunResult or with an error.

    `inputs` are arrays that fit the model; they must not change until the run has ended. `tensors` has the Tensors
    among its inputs and outputs. A run may consist of other runs (attempts of a pool, parts of a model): such a run has
    the application's inputs and outputs in `given`.
    """

    __slots__ = (
        "_error",
        "_is_wanted",
        "_lock",
        "_making",
        "_result",
        "deadline",
        "description",
        "descriptions",
        "ended",
        "future",
        "given",
        "given_up",
        "id",
        "inputs",
        "keeps_tensors",
        "link",
        "on_behalf_of",
        "on_ended",
        "packet",
        "priority",
        "registry",
        "sequence",
        "signature",
        "stamps",
        "tensors",
        "timeout_ms",
        "unwanted",
    )

    # Further fields of the RunDescription, for this run only.
    fields: Mapping[str, Any] = {}
    # Context (contextvars) in which to make the runs that this run consists of; None for any.
    context: Context | None = None

    def __init__(
        self,
        signature: Signature,
        registry: "set[Run]",
        descriptions: Descriptions | None = None,
        priority: Priority = Priority.NONE,
    ) -> None:
        """Create a run. Its end removes it from `registry`. Without `descriptions` it consists of other runs."""
        self.stamps = Stamps(signature.clock)
        self.id = 0
        self.signature = signature
        if descriptions is not None:
            self.descriptions = descriptions
        self.inputs: Sequence[Elements] = ()
        # Inputs and outputs as the application gave them, for a run that consists of other runs.
        self.given: tuple[Any, Any] | None = None
        self.tensors: RunTensors | None = None
        # Indexes of outputs that the daemon doesn't send.
        self.unwanted: Sequence[int] = ()
        # The sequence that the run is a part of, and how its outputs become values.
        self.sequence: RunInSequence | None = None
        # Name of the identity for which the daemon counts the run, in place of the session's.
        self.on_behalf_of: str | None = None
        self.priority = priority
        # 0: no limit.
        self.timeout_ms = 0
        self.deadline = math.inf
        # Whether the function `on_ended` releases `tensors`, not the run.
        self.keeps_tensors = False
        self.registry = registry
        self.ended = Latch()
        # The latest link of the run, or the AwaitedRun that fetches its reply, or the object that makes the runs of
        # which it consists.
        self.link: Any = None
        # The description of its kind, if the run may share a packet with others.
        self.description: Any = None
        # The packet that carries the run and reads its reply.
        self.packet: Any = None
        # The reason why it was cancelled.
        self.given_up: NnrtError | None = None
        # Whether it may still end with outputs.
        self._is_wanted = True
        # Guards each step of ending the run, and the copying of each piece of its outputs (1 MiB at most). Reentrant: a
        # signal handler in the same thread may close the executor meanwhile.
        self._lock = threading.RLock()
        # Locked by the thread that reads the outputs, as long as the network takes. Threads that end the run don't wait
        # for this lock.
        self._making = threading.Lock()
        # The future of a submitted run.
        self.future: RunFuture[Any] | None = None
        # Function to call with the run when it has ended, in a thread that gets no signals.
        self.on_ended: OnEnded | None = None
        self._result: RunResult[Any] | None = None
        self._error: NnrtError | None = None

    def limit(self, timeout_ms: int, began: float | None = None) -> None:
        """Set the timeout, counted from now or from `began`, a time of time.monotonic().

        Raises:
            InvalidParameter: `timeout_ms` is no whole number of 1 or more.
        """
        if isinstance(timeout_ms, bool) or not (isinstance(timeout_ms, int | np.integer) and timeout_ms >= 1):
            raise InvalidParameter(f"timeout_ms is {timeout_ms!r}; use a whole number of 1 or more")
        self.timeout_ms = min(timeout_ms, _MAX_TIMEOUT_MS)
        self.deadline = (time.monotonic() if began is None else began) + self.timeout_ms / 1000

    @property
    def carrying(self) -> Any:
        """Link on which the reply will come, or the AwaitedRun that fetches it, or None."""
        link = self.link
        return link if link is not None and link.carries(self) else None

    @property
    def is_written_by_daemon(self) -> bool:
        """True if the daemon may write outputs into tensors of the application."""
        return self.tensors is not None and self.tensors.targets is not None

    @property
    def size_bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(given.nbytes for given in self.inputs)

    @property
    def remaining_ms(self) -> int:
        """Milliseconds until the deadline, at least 1; 0 without a limit."""
        return max(math.ceil((self.deadline - time.monotonic()) * 1000), 1) if self.timeout_ms else 0

    def set_on_ended(self, on_ended: OnEnded, *, keeps_tensors: bool = False) -> bool:
        """Set the function to call when the run ends. Return False if the run has ended: its executor was closed."""
        with self._lock:
            if not self.ended.is_set:
                self.on_ended, self.keeps_tensors = on_ended, keeps_tensors
                return True
        return False

    def finish(self, unpack: Unpack, reply: Reply) -> None:
        """End the run with the outputs of its reply, unless it has been cancelled.

        If another thread calls `fail` meanwhile, the run ends at once, unless outputs are being written into tensors.

        Raises:
            CutOff: The connection broke before the whole reply arrived. The run has not ended.
            BaseException: A signal handler raised it.
        """
        try:
            with self._making:
                with self._lock:
                    is_wanted, stamps, tensors = self._is_wanted, self.stamps, self.tensors
                if is_wanted:
                    outputs, stamps.reply_times = unpack(), reply.times
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
            raise  # The caller fetches the reply.
        except Exception as error:
            if raised_by_handler(error):
                raise
            self.fail(nnrt_error_of(error, "the reply could not be read"))
        else:
            self._end()

    def succeed(self, result: RunResult[Any]) -> None:
        """End a run that consists of other runs with their result, unless it has been cancelled."""
        if result._stamps is not None:
            result._stamps.began_ns = self.stamps.began_ns
        with self._lock:
            if self._is_wanted:
                self._result = result
        self._end()

    def write(self, piece: memoryview | bytes, assembly: Assembly) -> None:
        """Write a piece of the outputs, or drop it if the run was cancelled. Raise the errors of `Assembly.take`.

        Nothing is written into a tensor after another thread's `give_up` has returned.
        """
        with self._lock:
            if not self._is_wanted:
                assembly.drop_rest()
            assembly.take(piece)

    def fail(self, error: NnrtError) -> None:
        """End with an error, or with the reason of an earlier cancellation, unless the run has ended."""
        with self._lock:
            if not self.ended.is_set and self._result is None and self._error is None:
                self._is_wanted = False
                # A copy, because a raised error keeps the frames that it passes, with their objects.
                self._error = without_frames(error) if self.given_up is None else self.given_up.copy()
            is_written = self.tensors is not None and self.tensors.outputs is not None
        if not (is_written and self._making.locked()):  # Else the thread that writes the outputs ends the run.
            self._end()

    def give_up(self, reason: NnrtError) -> bool:
        """Cancel the run: it will end with this reason. Return False if it has ended already."""
        with self._lock:
            if self.ended.is_set or self._result is not None or self._error is not None:
                return False
            self._is_wanted, self.given_up = False, self.given_up or reason
        return True

    def settle(self, future: RunFuture[Any]) -> bool:
        """Connect the run with its future. Return False if the run has ended already."""
        self.future = future
        return self.set_on_ended(_settle)

    def take(self) -> "tuple[RunResult[Any] | None, NnrtError | None]":
        """Return the result and the error of a run that has ended, one of which is None, and forget both.

        A link may refer to the run for a while, so the run must not keep its outputs alive.
        """
        result, error, self._result, self._error = self._result, self._error, None, None
        return result, error

    def fail_in_child(self, error: NnrtError) -> None:
        """End the run in a forked child, with new locks. Callbacks are the parent's: the child calls none."""
        self._lock, self._making = threading.RLock(), threading.Lock()
        self.on_ended = None
        self.fail(error)
        if self.future is not None:
            self.future._fail_in_child(error)

    def _end(self) -> None:
        """Release the run's objects, wake the threads that wait for it, and call `on_ended`.

        Every step may be repeated: a caller that runs out of memory here calls `fail`, which does the remaining steps.
        """
        self.registry.discard(self)
        with self._lock:
            self._is_wanted = False
            if not self.ended.is_set:
                if self._error is None and self._result is None:
                    gave_up = self.given_up
                    self._error = OperationFailed("the run was given up") if gave_up is None else gave_up.copy()
                try:
                    if self.tensors is not None and not self.keeps_tensors:
                        self.tensors.release()
                        self.tensors = None
                finally:
                    self.ended.set()
            if not self._making.locked():  # Else the thread that reads the reply clears them.
                self.inputs, self.given, self.packet = (), None, None
            on_ended, self.on_ended = self.on_ended, None
        if on_ended is not None:
            try:
                on_ended(self)
            except BaseException:
                self.on_ended = on_ended
                raise


def _settle(run: Run) -> None:
    """Pass the result or the error of a run to its future."""
    if (future := run.future) is not None:
        future._settle(run._result, run._error)
        run.take()
        run.future = None
