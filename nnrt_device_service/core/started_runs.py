"""Runs on the device for which no thread waits."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from nnrt_device_service.core.batches import UNCOUNTED_BYTES
from nnrt_device_service.core.places import Places
from nnrt_device_service.host.steps import take_each
from nnrt_device_service.scheduling.deadlines import Deadlines
from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.backend import Cancellation, FirstEnd, RunEnd, StartableModel
from nnrt_hdi.errors import NnrtError, UnavailableDevice
from nnrt_hdi.tensor import Array, TensorSpec


class Ended(NamedTuple):
    """What became of a run: what the backend gave for its outputs, or why it gave none; what was known of them before;
    the nanoseconds for which it waited and computed, and when it was done, by time.perf_counter_ns."""

    outcome: Sequence[Array] | Exception
    known: Sequence[TensorSpec]
    queued_ns: int
    computed_ns: int
    done_ns: int


OnEnd = Callable[[Ended], object]


class StartedRuns:
    """Has models make runs for which no thread waits."""

    def __init__(self, scheduler: Scheduler, gate: DrainGate) -> None:
        self.scheduler = scheduler
        self.gate = gate
        self.deadlines = Deadlines()

    def start(
        self,
        session: Session,
        model: LoadedModel,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        places: Places | None,
        on_end: OnEnd,
    ) -> None:
        """Start a run of a StartableModel as soon as a slot is free. Its inputs have been checked, and the drain gate
        counts it, which it leaves at its end.

        Raises nothing. `on_end` is called exactly once, by whoever ends the run, perhaps before this returns.
        """
        _StartedRun(self, session, model, inputs, cancellation, places, on_end).begin()

    def close(self) -> None:
        """Let no run be started any more, when all have ended."""
        self.deadlines.close()


class _StartedRun:
    """One of them. What it enters, it leaves by hand, as one that a thread waits for does."""

    __slots__ = (
        "_asked_ns",
        "_began_ns",
        "_cancellation",
        "_held_bytes",
        "_inputs",
        "_keeps_model",
        "_known",
        "_model",
        "_on_end",
        "_places",
        "_runs",
        "_session",
    )

    def __init__(
        self,
        runs: StartedRuns,
        session: Session,
        model: LoadedModel,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        places: Places | None,
        on_end: OnEnd,
    ) -> None:
        self._runs = runs
        self._session = session
        self._model = model
        self._inputs = inputs
        self._cancellation = cancellation
        self._places = places
        self._on_end = on_end
        self._asked_ns = self._began_ns = time.perf_counter_ns()
        # What it has taken: of the model, and of the session's memory.
        self._keeps_model = False
        self._held_bytes = 0
        self._known: Sequence[TensorSpec] = ()

    def begin(self) -> None:
        """Get onto the device; or end at once."""
        ends = FirstEnd(self._end)
        try:
            self._start(ends)
        except BaseException as error:
            ends(error)

    def _start(self, ends: FirstEnd) -> None:
        session, model, cancellation, scheduler = self._session, self._model, self._cancellation, self._runs.scheduler
        model.acquire()
        self._keeps_model = True
        session.cancellations.add(cancellation)
        if not session.is_open:
            cancellation.cancel()
        scheduler.acquire(session.account.flows[model.rank], cancellation)
        cancellation.began_ns = self._began_ns = time.perf_counter_ns()
        prepared, inputs, places = model.prepared, self._inputs, self._places
        assert isinstance(prepared, StartableModel)
        sizes = prepared.sizes(inputs)
        self._known = sizes.outputs
        if places is not None and not places.are_known:
            places.learn(sizes.outputs)
        arrays = places.arrays if places is not None else ()
        peak_bytes = sizes.peak_bytes
        if peak_bytes >= UNCOUNTED_BYTES:
            # Memory that the outputs are given counts in the session already.
            more_bytes = max(peak_bytes - sum(array.nbytes for array in arrays if array is not None), 0)
            if more_bytes:
                session.budget.reserve(more_bytes)
                self._held_bytes = more_bytes
            scheduler.reserve(cancellation, peak_bytes)
            cancellation.began_ns = self._began_ns = time.perf_counter_ns()
        self._runs.deadlines.add(cancellation)
        prepared.start(inputs, cancellation, arrays, ends)

    def _end(self, end: RunEnd) -> None:
        """Leave the device, tell what became of the run, and leave the daemon; each whatever becomes of the others."""
        done_ns = time.perf_counter_ns()
        outcome, took_ns = self._outcome(end), done_ns - self._began_ns
        computed_ns = 0 if isinstance(outcome, Exception) else took_ns
        ended = Ended(outcome, self._known, self._began_ns - self._asked_ns, computed_ns, done_ns)
        steps = (
            partial(self._leave_device, took_ns, computed_ns),
            partial(self._on_end, ended),
            self._runs.gate.leave,
        )
        take_each(steps, "ending a run")

    def _outcome(self, end: RunEnd) -> Sequence[Array] | Exception:
        if isinstance(end, BaseException):
            return failed_on_device(end)
        if self._cancellation.is_cancelled:  # Whether the backend has looked or not.
            try:
                self._cancellation.check()
            except NnrtError as error:
                return error
        return end

    def _leave_device(self, took_ns: int, computed_ns: int) -> None:
        session, cancellation = self._session, self._cancellation
        self._runs.deadlines.discard(cancellation)
        self._runs.scheduler.release(cancellation, took_ns)
        if self._held_bytes:
            session.budget.release(self._held_bytes)
        session.cancellations.discard(cancellation)
        if self._keeps_model:
            self._model.release(computed_ns)


def failed_on_device(error: BaseException) -> Exception:
    """The error to tell where a backend has raised one."""
    if isinstance(error, NnrtError | MemoryError):
        return error
    failed = UnavailableDevice(
        f"the device failed to run the model ({type(error).__name__}); the daemon's log has the details"
    )
    failed.__cause__ = error
    return failed
