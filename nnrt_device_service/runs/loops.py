"""Loops: runs of a sequence that are made one after the other without the client."""

import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from enum import Enum

import numpy as np

from nnrt_device_service.runs.executing import Executing
from nnrt_device_service.runs.failures import report_error
from nnrt_device_service.runs.frames import PLACEHOLDER
from nnrt_device_service.runs.run import Run
from nnrt_device_service.runs.run_values import RunValues
from nnrt_device_service.scheduling.joinable import LoopMembership
from nnrt_device_service.sessions.descriptions import Description
from nnrt_device_service.sessions.sequences import Sequence
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.sessions.values import NewValue
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.tensor import Array

# Seconds between two messages of a loop: quicker steps share one, because a message takes longer than they do.
_MESSAGE_S = 0.005
# Delivered bytes that may wait for a slow client; the loop then waits, too.
_AHEAD_BYTES = 1 << 20


class EndReason(Enum):
    """Reason why a loop has ended; see LoopEnd in sequence.proto."""

    STOPPED = 0
    STEPS = 1
    BYTES = 2
    TIME = 3
    ASKED = 4
    FAILED = 5


@dataclass(frozen=True, slots=True)
class LoopRun:
    """Run of a loop's step."""

    description: Description
    # Written before the run, by number.
    values: dict[int, NewValue]
    # Numbers of the values to deliver after it, and of the one that says whether the step is the last one.
    delivered: Items[int]
    stop: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs of a step, and the limits of a loop."""

    runs: Items[LoopRun]
    max_steps: int
    max_bytes: int
    max_s: float


@dataclass(frozen=True, slots=True)
class Delivered:
    """Values after one run of a step, by number."""

    step: int
    run: int
    values: dict[int, Array]

    @property
    def size_bytes(self) -> int:
        """Bytes of the values."""
        return sum(array.nbytes for array in self.values.values())


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """End of a loop."""

    reason: EndReason
    steps: int
    bytes: int
    took_ns: int
    error: NnrtError | None = None


class Looping:
    """Loop under way in a thread of its own. Another thread takes what it delivers."""

    def __init__(
        self, executing: Executing, session: Session, sequence: Sequence, loop: Loop, cancellation: Cancellation
    ) -> None:
        """Make it for an operation of the sequence that has begun."""
        self._executing = executing
        self._session = session
        self._sequence = sequence
        self._loop = loop
        self._cancellation = cancellation
        self._changed = threading.Condition(threading.Lock())
        self._ready: list[Delivered] = []
        self._ready_bytes = self._bytes = self._steps = 0
        self._end: LoopEnd | None = None
        self._ended = threading.Event()
        self._membership = LoopMembership()
        cancellation.on_cancel(self._wake)

    def run(self) -> None:
        """Make the steps. Raises nothing: an error becomes the end of the loop."""
        began, reason, answer = time.monotonic(), EndReason.FAILED, None
        try:
            reason = self._make_steps(began + self._loop.max_s)
        except BaseException as error:
            answer = report_error(error, "Sequences/Loop", self._session, is_cancelled=self._cancellation.is_cancelled)
        self._executing.end_loop(self._membership)
        with self._changed:
            took_ns = int((time.monotonic() - began) * 1e9)
            self._end = LoopEnd(reason, self._steps, self._bytes, took_ns, answer)
            self._changed.notify_all()
        self._ended.set()

    def results(self) -> Iterator[list[Delivered] | LoopEnd]:
        """Yield what the loop delivers as it comes, and then its end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._end is not None)
                ready, self._ready, self._ready_bytes = self._ready, [], 0
                self._changed.notify_all()
            if ready:
                sent_at = time.monotonic()
                yield ready
                self._ended.wait(max(sent_at + _MESSAGE_S - time.monotonic(), 0.0))
            elif self._end is not None:
                yield self._end
                return

    def _make_steps(self, until: float) -> EndReason:
        sequence, loop = self._sequence, self._loop
        first, *others = loop.runs
        # A run alone changes nothing if it fails.
        is_one = not (others or first.values or first.delivered or first.stop)
        while True:
            snapshot = None if is_one else self._session.sequences.snapshot(sequence)
            try:
                is_last = self._make_step()
            except BaseException:
                if snapshot is not None:
                    self._session.sequences.restore(sequence, snapshot)
                raise
            if snapshot is not None:
                self._session.sequences.drop(snapshot)
            self._steps += 1
            if is_last:
                return EndReason.STOPPED
            if sequence.is_stopping:
                sequence.require_open()
                return EndReason.ASKED
            if self._steps >= loop.max_steps:
                return EndReason.STEPS
            if self._bytes >= loop.max_bytes:
                return EndReason.BYTES
            if time.monotonic() >= until:
                return EndReason.TIME

    def _make_step(self) -> bool:
        """Make the runs of a step, and return whether it is the last one."""
        is_last = False
        for index, each in enumerate(self._loop.runs):
            self._cancellation.check()
            try:
                if each.values:
                    self._session.sequences.keep(self._sequence, each.values)
                self._make_run(each.description)
                if each.delivered:
                    self._deliver(index, each.delivered)
                is_last |= bool(each.stop) and self._is_stop(each.stop)
            except NnrtError as error:
                raise error.at(f"step {self._steps}, run {index}") from error
        return is_last

    def _make_run(self, description: Description) -> None:
        cancellation = Cancellation(self._cancellation.deadline)
        forget = self._cancellation.on_cancel(cancellation.cancel)
        run = Run(self._session, 0, cancellation)
        run.description, run.model = description, description.model
        run.inputs = [PLACEHOLDER] * len(description.inputs)
        run.payer = description.served or self._session
        run.values = RunValues(self._session.sequences, self._sequence, self._membership)
        try:
            self._executing.execute(run)
        finally:
            forget()
        if run.error is not None:
            if isinstance(run.error, NnrtError):
                run.payer.usage.count_ended_run(run.error, was_cancelled=cancellation.is_cancelled)
            raise run.error
        _, queued_ns, copied_in_ns, computed_ns, copied_out_ns, _ = run.times()
        run.payer.usage.count_run(queued_ns, copied_in_ns + copied_out_ns, computed_ns, 0, 0)

    def _deliver(self, index: int, numbers: Items[int]) -> None:
        """Hand values to the thread that takes them; wait while it has too many to take."""
        values = {number: self._value(number) for number in numbers}
        delivered = Delivered(self._steps, index, values)
        with self._changed:
            self._ready.append(delivered)
            self._ready_bytes += delivered.size_bytes
            self._bytes += delivered.size_bytes
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ready_bytes < _AHEAD_BYTES or self._cancellation.is_cancelled)

    def _value(self, number: int) -> Array:
        value = self._sequence.values.get(number)
        if value is None:
            self._sequence.require_open()
            raise InvalidParameter(f"sequence {self._sequence.id} has no value {number} to deliver")
        return value.on_host()

    def _is_stop(self, number: int) -> bool:
        value = self._value(number)
        if value.dtype != np.bool_:
            raise InvalidParameter(f"value {number}, which stops the loop, is of type {value.dtype}; it must be BOOL")
        return bool(value.all())

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
