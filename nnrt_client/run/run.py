"""One run, from the moment it is accepted to its end."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from time import perf_counter_ns
from typing import Any

import numpy as np

from nnrt_client.run.descriptions import Descriptions
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

# The timeout in a frame is a uint32. Who asks for more than these 49 days gets them.
_MAX_TIMEOUT_MS = 2**32 - 1

# Makes the outputs of a run of its reply. Raises what that says went wrong.
Unpack = Callable[[], "list[Elements]"]
OnEnded = Callable[["Run"], object]


class Run:
    """A run from before it is accepted. It ends exactly once: with a RunResult, or with an error.

    `inputs` are arrays that fit the model, read where they are until the run has ended; `tensors` are those among its
    inputs and outputs. A run that is made of others, attempts or parts, has what was `given` for it.
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
    # The one in which runs are made that it is made of; None where any will do.
    context: Context | None = None

    def __init__(
        self,
        signature: Signature,
        registry: "set[Run]",
        descriptions: Descriptions | None = None,
        priority: Priority = Priority.NONE,
    ) -> None:
        """It is in the registry until it has ended. What is made of others has no descriptions."""
        self.stamps = Stamps(signature.clock)
        self.id = 0
        self.signature = signature
        if descriptions is not None:
            self.descriptions = descriptions
        self.inputs: Sequence[Elements] = ()
        # Inputs and outputs as the application gave them.
        self.given: tuple[Any, Any] | None = None
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
        # The link that carries it, or did; or what fetches its reply; or what makes the runs that it is made of.
        self.link: Any = None
        # The description that it was found with, where it may share a packet.
        self.description: Any = None
        # The run as it travels, which reads its reply.
        self.packet: Any = None
        # Why it is to end, once nobody wants its outputs any more.
        self.given_up: NnrtError | None = None
        # Whether outputs may still come of it.
        self._is_wanted = True
        # Held by who ends it for a step, or while a piece of its outputs is copied, a MiB at most. A handler that comes
        # in the same thread meanwhile may close its executor.
        self._lock = threading.RLock()
        # Held by who makes its outputs, for as long as the network takes. Who ends the run doesn't wait for it.
        self._making = threading.Lock()
        # The future that the run has, if any.
        self.future: RunFuture[Any] | None = None
        # Called with the run when it has ended, in a thread that gets no signals.
        self.on_ended: OnEnded | None = None
        self._result: RunResult[Any] | None = None
        self._error: NnrtError | None = None

    def limit(self, timeout_ms: int, began: float | None = None) -> None:
        """End it after so long, from now on, or from a time of time.monotonic on. Raises InvalidParameter for what is
        no number of milliseconds."""
        if isinstance(timeout_ms, bool) or not (isinstance(timeout_ms, int | np.integer) and timeout_ms >= 1):
            raise InvalidParameter(f"timeout_ms is {timeout_ms!r}; use a whole number of 1 or more")
        self.timeout_ms = min(timeout_ms, _MAX_TIMEOUT_MS)
        self.deadline = (time.monotonic() if began is None else began) + self.timeout_ms / 1000

    @property
    def carrying(self) -> Any:
        """The link on which its reply is to come, or what fetches it; None where neither is."""
        link = self.link
        return link if link is not None and link.carries(self) else None

    @property
    def is_written_by_daemon(self) -> bool:
        """True where the daemon may write outputs into tensors of the application."""
        return self.tensors is not None and self.tensors.targets is not None

    @property
    def size_bytes(self) -> int:
        """Length of the inputs."""
        return sum(given.nbytes for given in self.inputs)

    @property
    def remaining_ms(self) -> int:
        """Milliseconds that are left of its time, for who makes it; 0 without a limit."""
        return max(math.ceil((self.deadline - time.monotonic()) * 1000), 1) if self.timeout_ms else 0

    def tell(self, on_ended: OnEnded, *, keeps_tensors: bool = False) -> bool:
        """Call this when the run ends; false where it has ended before it began, for its executor was closed."""
        with self._lock:
            if not self.ended.is_set:
                self.on_ended, self.keeps_tensors = on_ended, keeps_tensors
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
            self.fail(nnrt_error_of(error, "the reply could not be read"))
        else:
            self._end()

    def succeed(self, result: RunResult[Any]) -> None:
        """End with the result of the runs that it is made of, unless it has been given up."""
        if result._stamps is not None:
            result._stamps.began_ns = self.stamps.began_ns
        with self._lock:
            if self._is_wanted:
                self._result = result
        self._end()

    def write(self, piece: memoryview | bytes, assembly: Assembly) -> None:
        """Write a piece of the outputs, or throw it and the rest away if nobody wants them: nothing is written into a
        tensor after `give_up` has returned in another thread. Raises as `Assembly.take`."""
        with self._lock:
            if not self._is_wanted:
                assembly.throw_away()
            assembly.take(piece)

    def fail(self, error: NnrtError) -> None:
        """End with an error, or with why the run was given up before, unless it has ended."""
        with self._lock:
            if not self.ended.is_set and self._result is None and self._error is None:
                self._is_wanted = False
                # A copy of one that the run keeps: an error that is raised has the frames that it goes through.
                self._error = without_frames(error) if self.given_up is None else self.given_up.copy()
            is_written = self.tensors is not None and self.tensors.outputs is not None
        if not (is_written and self._making.locked()):  # Else who writes them ends it.
            self._end()

    def give_up(self, reason: NnrtError) -> bool:
        """Have it end with this reason, for nobody wants its outputs any more. True if it has not ended yet."""
        with self._lock:
            if self.ended.is_set or self._result is not None or self._error is not None:
                return False
            self._is_wanted, self.given_up = False, self.given_up or reason
        return True

    def settle(self, future: RunFuture[Any]) -> bool:
        """Have the future take what comes of the run; false where it has ended before it began."""
        self.future = future
        return self.tell(_settle)

    def take(self) -> "tuple[RunResult[Any] | None, NnrtError | None]":
        """Hand result and error of a run that has ended, one of them None, to the only one who asks. The run, which its
        link may keep for a while, forgets them."""
        result, error, self._result, self._error = self._result, self._error, None, None
        return result, error

    def fail_in_child(self, error: NnrtError) -> None:
        """End after a fork, whoever held the lock before. What it would call is the parent's."""
        self._lock, self._making = threading.RLock(), threading.Lock()
        self.on_ended = None
        self.fail(error)
        if self.future is not None:
            self.future._fail_in_child(error)

    def _end(self) -> None:
        """Let go of what the run held, and wake the threads that wait for it. Once; who was left without memory on the
        way does the rest when it fails the run."""
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
            if not self._making.locked():  # Else who reads its reply does so.
                self.inputs, self.given, self.packet = (), None, None
            on_ended, self.on_ended = self.on_ended, None
        if on_ended is not None:
            try:
                on_ended(self)
            except BaseException:
                self.on_ended = on_ended
                raise


def _settle(run: Run) -> None:
    """Give the future of a run what came of it."""
    if (future := run.future) is not None:
        future._settle(run._result, run._error)
        run.take()
        run.future = None
