"""Execution of runs: the one path that all runs take."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

import numpy as np

from nnrt_device_service.access.counters import BatchCounter
from nnrt_device_service.host.steps import take_each
from nnrt_device_service.memory.device_memory import DeviceHeap
from nnrt_device_service.runs.batches import Batches
from nnrt_device_service.runs.run import Run
from nnrt_device_service.runs.tensors import UNCOUNTED_BYTES
from nnrt_device_service.scheduling.deadlines import Deadlines
from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_device_service.scheduling.run_costs import RunCosts
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_hdi.backend import FirstEnd, RunEnd, StartableModel
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array

_SHAPE_AND_TYPE = attrgetter("shape", "dtype")
_ARRAY = {np.ndarray}


class Executing:
    """Executor of runs: of those that a thread waits for, those that the device ends later, and those of a batch.

    `begin` enters a run in its session's registry and in the drain gate. `_enter` takes its model, its slot on the
    device and its memory. `_leave` gives these back, and `end` leaves the gate; both are called whatever happens. The
    result stands in the run: its outputs or its error.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        costs: RunCosts,
        gate: DrainGate,
        counter: BatchCounter,
        heap: DeviceHeap,
        device_name: str,
    ) -> None:
        self.scheduler = scheduler
        self._heap = heap
        self._costs = costs
        self._gate = gate
        self._batches = Batches(scheduler, costs, counter)
        self.end_loop = self._batches.end_loop
        self._deadlines = Deadlines()
        self._device_name = device_name

    def begin(self, run: Run, former: Sequence[Run] = ()) -> None:
        """Enter a run in its session's registry, in place of `former` runs, whose replies the client has.

        The daemon doesn't end before `end`. Raises nothing: a refusal becomes the error of the run. Call this also for
        a run that has an error already.
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
        """Compute a run in this thread as soon as a slot is free, unless it has ended already.

        The run may join a batch of waiting runs, unless `alone` is true.
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
                    run.outputs, run.operators = model.shared.prepared.profile(run.inputs, run.cancellation, arrays)
                else:
                    run.outputs = model.shared.prepared.run(run.inputs, run.cancellation, arrays)
                run.done_ns = time.perf_counter_ns()
                if run.cancellation.is_cancelled:  # The backend may not have checked.
                    run.cancellation.check()
                run.computed_ns = run.done_ns - run.began_ns
        except BaseException as error:  # SystemExit and CancelledError too must end the run.
            run.fail(error)
        self._leave(run)

    def start(self, run: Run, on_end: Callable[[], object]) -> None:
        """Start a run of a StartableModel as soon as a slot is free, without waiting for its end.

        Raises nothing. The thread that ends the run calls `on_end` exactly once, perhaps before this method returns;
        then the run leaves the drain gate.
        """
        if run.error is not None:
            take_each((on_end, partial(self.end, run)), "ending a run")
            return
        ends = FirstEnd(partial(self._end_started, run, on_end))
        try:
            arrays = self._enter(run)
            assert run.model is not None
            prepared = run.model.shared.prepared
            assert isinstance(prepared, StartableModel)
            self._deadlines.add(run.cancellation)
            prepared.start(run.inputs, run.cancellation, arrays, ends)
        except BaseException as error:
            ends(error)

    def _end_started(self, run: Run, on_end: Callable[[], object], end: RunEnd) -> None:
        """End a run that `start` started: free its slot, call `on_end`, and leave the drain gate."""
        run.done_ns = time.perf_counter_ns()
        self._deadlines.discard(run.cancellation)
        if isinstance(end, BaseException):
            run.fail(end)
        elif run.cancellation.is_cancelled:  # The backend may not have checked.
            try:
                run.cancellation.check()
            except NnrtError as error:
                run.fail(error)
        else:
            run.outputs, run.computed_ns = end, run.done_ns - run.began_ns
        take_each((partial(self._leave, run), on_end, partial(self.end, run)), "ending a run")

    def execute_together(self, runs: Sequence[Run]) -> None:
        """Compute runs of one bucket in this thread.

        Runs whose batch failed, or whose model is away, have neither outputs nor an error afterwards: call `execute`
        for each alone.
        """
        entered = []
        try:
            for run in runs:
                # While one run waits for its model, the models of the others couldn't leave for it.
                if run.error is None and not (run.model is not None and run.model.shared.is_away):
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
        """Leave the drain gate: the run's reply has been sent, or never will be."""
        if run.is_inside:
            run.is_inside = False
            self._gate.leave()

    def close(self) -> None:
        """Close the executor after all runs have ended."""
        self._deadlines.close()

    def _enter(self, run: Run, *, takes_slot: bool = True) -> Sequence[Array | None]:
        """Take the run's inputs and model, wait for a slot, and take the memory that the run allocates.

        Returns the arrays in regions that the backend may write outputs to. Raises what `Run.take_inputs`,
        `Scheduler.acquire`, `Scheduler.reserve`, `RunCosts.require_in_time` and the backend raise. Call `_leave`
        afterwards in any case.
        """
        began_ns = time.perf_counter_ns()
        model, session, cancellation, scheduler = run.model, run.session, run.cancellation, self.scheduler
        assert model is not None
        if run.sequence_id or run.values is not None:
            run.take_values()
        if run.regions and run.region_tensors is None:
            run.take_inputs()
        session.cancellations.add(cancellation)
        if not session.is_open:
            cancellation.cancel()
        if not run.asked_ns:
            run.asked_ns = time.perf_counter_ns()
            run.copied_in_ns = run.asked_ns - began_ns
        model.acquire(cancellation)
        run.has_model = True
        if not takes_slot:
            return ()
        scheduler.acquire(run.payer.account.flows[model.rank], cancellation)
        run.has_slot = True
        cancellation.began_ns = run.began_ns = time.perf_counter_ns()
        sizes, targets = model.shared.prepared.sizes(run.inputs), run.output_regions
        run.known = sizes.outputs
        arrays: Sequence[Array | None] = ()
        if targets is not None:
            if not targets.are_known:
                targets.set_specs(sizes.outputs)
            arrays = targets.arrays
        if run.values is not None and model.shared.prepared.takes_device_buffers and len(sizes.outputs):
            assert run.description is not None
            arrays = run.values.device_arrays(run.description, self._heap, sizes.outputs, arrays)
        peak_bytes, costs = sizes.peak_bytes, self._costs
        is_long = (model.usual_ns or 0) > costs.short_ns
        if sizes.multiply_adds > costs.unchecked:
            is_long |= costs.require_in_time(sizes.multiply_adds, cancellation)
        if peak_bytes >= UNCOUNTED_BYTES or is_long:
            # Regions for outputs count in the session's budget already.
            more_bytes = max(peak_bytes - sum(array.nbytes for array in arrays if array is not None), 0)
            if more_bytes:
                session.budget.reserve(more_bytes)
                run.reserved_bytes = more_bytes
            scheduler.reserve(cancellation, peak_bytes, is_long=is_long)
            cancellation.began_ns = run.began_ns = time.perf_counter_ns()
        return arrays

    def _leave(self, run: Run, *, ends: bool = True) -> None:
        """Release what `_enter` took; if the run `ends`, also check its outputs and copy them to their regions."""
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
                description, outputs = run.description, run.outputs
                expected_outputs = None
                if description is not None:
                    expected_outputs = description.expected_outputs
                    if description.wanted is not None and len(outputs) == len(description.outputs):
                        outputs = [outputs[index] for index in description.wanted]
                are_arrays = set(map(type, run.outputs)) <= _ARRAY
                run.is_as_expected = are_arrays and expected_outputs == list(map(_SHAPE_AND_TYPE, outputs))
            except (AttributeError, TypeError):  # The outputs are no arrays: `take_outputs` reports that.
                run.is_as_expected = False
            if run.region_tensors is not None or not run.is_as_expected:
                run.take_outputs(self._device_name)
        if run.values is not None:
            run.keep_values()
        run.inputs = []
        if run.region_tensors is not None:
            run.release_inputs()
