"""The one way in which runs of models are executed."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

import numpy as np

from nnrt_device_service.access.counters import BatchCounter
from nnrt_device_service.host.steps import take_each
from nnrt_device_service.runs.batches import Batches
from nnrt_device_service.runs.run import Run
from nnrt_device_service.runs.tensors import UNCOUNTED_BYTES
from nnrt_device_service.scheduling.deadlines import Deadlines
from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_hdi.backend import FirstEnd, RunEnd, StartableModel
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array

_SHAPE_AND_TYPE = attrgetter("shape", "dtype")
_ARRAY = {np.ndarray}


class Executing:
    """Executes runs: those that a thread waits for, those that the device ends later, and those of a batch.

    A run enters the registry of its session and the drain gate in `begin`; the model, the slot and the memory in
    `_enter` and `_take_slot`. It leaves the device in `_leave` and the gate in `end`, which follow whatever becomes of
    it. What it ends with is in the run: its outputs, or its error.
    """

    def __init__(self, scheduler: Scheduler, gate: DrainGate, counter: BatchCounter, device_name: str) -> None:
        self.scheduler = scheduler
        self._gate = gate
        self._batches = Batches(scheduler, counter)
        self._deadlines = Deadlines()
        self._device_name = device_name

    def begin(self, run: Run, former: Sequence[Run] = ()) -> None:
        """Begin a run of a client: from now on it is known by its id, in place of `former` ones, whose replies the
        client has, and the daemon doesn't end before `end`.

        Raises nothing: what refuses it becomes its error. To be called also for a run that has an error already.
        """
        if run.is_unknown:
            for each in former:
                run.session.runs.forget(each)
            return
        try:
            run.session.runs.begin(run, former)
            self._gate.enter()
            run.is_inside = True
        except NnrtError as error:
            run.error = run.error or error

    def execute(self, run: Run, *, alone: bool = False) -> None:
        """Compute a run in this thread, as soon as a slot is free; with others that wait, unless it is to be alone.

        One that has ended already, with others or by an error, stays as it is.
        """
        if run.error is not None or run.done_ns:
            return
        model = run.model
        assert model is not None
        try:
            is_alone = alone or model.group is None
            arrays = self._enter(run, takes_slot=is_alone)
            if not is_alone and not self._batches.compute(run):
                self._leave(run, ends=False)
                is_alone, arrays = True, self._enter(run)
            if is_alone:
                if run.description is not None and run.description.profile:
                    run.outputs, run.operators = model.prepared.profile(run.inputs, run.cancellation, arrays)
                else:
                    run.outputs = model.prepared.run(run.inputs, run.cancellation, arrays)
                run.done_ns = time.perf_counter_ns()
                if run.cancellation.is_cancelled:  # Whether the backend has looked or not.
                    run.cancellation.check()
                run.computed_ns = run.done_ns - run.began_ns
        except BaseException as error:  # One that exits, or is cancelled, would leave the run without an end.
            run.fail(error)
        self._leave(run)

    def start(self, run: Run, on_end: Callable[[], object]) -> None:
        """Start a run of a StartableModel as soon as a slot is free, and don't wait for its end.

        Raises nothing. `on_end` is called exactly once, by whoever ends the run, perhaps before this returns; then the
        run leaves the gate.
        """
        if run.error is not None:
            take_each((on_end, partial(self.end, run)), "ending a run")
            return
        ends = FirstEnd(partial(self._end_started, run, on_end))
        try:
            arrays = self._enter(run)
            assert run.model is not None
            prepared = run.model.prepared
            assert isinstance(prepared, StartableModel)
            self._deadlines.add(run.cancellation)
            prepared.start(run.inputs, run.cancellation, arrays, ends)
        except BaseException as error:
            ends(error)

    def _end_started(self, run: Run, on_end: Callable[[], object], end: RunEnd) -> None:
        """End a run that was started: in the device, then for its client, then in the daemon."""
        run.done_ns = time.perf_counter_ns()
        self._deadlines.discard(run.cancellation)
        if isinstance(end, BaseException):
            run.fail(end)
        elif run.cancellation.is_cancelled:  # Whether the backend has looked or not.
            try:
                run.cancellation.check()
            except NnrtError as error:
                run.fail(error)
        else:
            run.outputs, run.computed_ns = end, run.done_ns - run.began_ns
        take_each((partial(self._leave, run), on_end, partial(self.end, run)), "ending a run")

    def execute_together(self, runs: Sequence[Run]) -> None:
        """Compute runs of one bucket in this thread. What fails together has no end yet: `execute` it alone."""
        entered = []
        try:
            for run in runs:
                if run.error is None:
                    entered.append(run)
                    try:
                        self._enter(run, takes_slot=False)
                    except BaseException as error:
                        run.fail(error)
            self._batches.compute_all([run for run in entered if run.error is None])
        finally:
            for run in entered:
                self._leave(run, ends=run.has_ended)

    def end(self, run: Run) -> None:
        """Let the daemon end as far as this run is concerned: its reply has been sent, or never will be."""
        if run.is_inside:
            run.is_inside = False
            self._gate.leave()

    def close(self) -> None:
        """Let no run be started any more, when all have ended."""
        self._deadlines.close()

    def _enter(self, run: Run, *, takes_slot: bool = True) -> Sequence[Array | None]:
        """Take what the run needs: its inputs, the model, and a slot on the device with the memory that it makes, as
        soon as there is one. Give the memory that its outputs are to go to.

        Raises what `Run.take_inputs`, `Scheduler.acquire` and `reserve` and the backend raise; `_leave` follows.
        """
        began_ns = time.perf_counter_ns()
        model, session, cancellation, scheduler = run.model, run.session, run.cancellation, self.scheduler
        assert model is not None
        if run.regions and run.placed is None:
            run.take_inputs()
        model.acquire()
        run.has_model = True
        session.cancellations.add(cancellation)
        if not session.is_open:
            cancellation.cancel()
        if not run.asked_ns:
            run.asked_ns = time.perf_counter_ns()
            run.copied_in_ns = run.asked_ns - began_ns
        if not takes_slot:
            return ()
        scheduler.acquire(session.account.flows[model.rank], cancellation)
        run.has_slot = True
        cancellation.began_ns = run.began_ns = time.perf_counter_ns()
        sizes, targets = model.prepared.sizes(run.inputs), run.targets
        run.known = sizes.outputs
        arrays: Sequence[Array | None] = ()
        if targets is not None:
            if not targets.are_known:
                targets.learn(sizes.outputs)
            arrays = targets.arrays
        peak_bytes = sizes.peak_bytes
        if peak_bytes >= UNCOUNTED_BYTES:
            # Memory that the outputs are given counts in the session already.
            more_bytes = max(peak_bytes - sum(array.nbytes for array in arrays if array is not None), 0)
            if more_bytes:
                session.budget.reserve(more_bytes)
                run.reserved_bytes = more_bytes
            scheduler.reserve(cancellation, peak_bytes)
            cancellation.began_ns = run.began_ns = time.perf_counter_ns()
        return arrays

    def _leave(self, run: Run, *, ends: bool = True) -> None:
        """Give back what the run has taken, and take its outputs if it `ends`; else it enters once more."""
        model, session, cancellation = run.model, run.session, run.cancellation
        assert model is not None
        if run.has_slot:
            run.has_slot = False
            self.scheduler.release(cancellation, run.computed_ns or time.perf_counter_ns() - run.began_ns)
        if run.reserved_bytes:
            session.budget.release(run.reserved_bytes)
            run.reserved_bytes = 0
        session.cancellations.discard(cancellation)
        if run.has_model:
            run.has_model = False
            model.release(run.computed_ns)
        if not ends:
            return
        if run.error is None:
            try:
                promised = run.description.promised if run.description is not None else None
                are_arrays = set(map(type, run.outputs)) <= _ARRAY
                run.is_as_promised = are_arrays and promised == list(map(_SHAPE_AND_TYPE, run.outputs))
            except (AttributeError, TypeError):  # They aren't arrays. `take_outputs` says so.
                run.is_as_promised = False
            if run.placed is not None or not run.is_as_promised:
                run.take_outputs(self._device_name)
        run.inputs = []
        if run.placed is not None:
            run.let_go()
