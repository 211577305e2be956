"""Batches: runs of clients that are computed together, as one run with all their rows."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TypeVar

import numpy as np

from nnrt_device_service.access.counters import BatchCounter
from nnrt_device_service.runs.run import Run
from nnrt_device_service.runs.tensors import UNCOUNTED_BYTES
from nnrt_device_service.scheduling.joinable import Bucket, Joinable, LoopMembership, await_outcomes
from nnrt_device_service.scheduling.run_costs import RunCosts
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.values import BatchedRows
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)


class Joined(Joinable):
    """Run that may join a batch. Its outcome is its outputs, its error, or None if it is to be computed alone."""

    __slots__ = ("began_ns", "computed_ns", "inputs", "rows_of", "run")

    def __init__(self, run: Run, bucket: Bucket) -> None:
        assert run.model is not None
        flow = run.payer.account.flows[run.model.rank]
        super().__init__(flow, run.cancellation, bucket, run.rows)
        self.run = run
        # Kept here because the batch may still compute with them after the run has been cancelled.
        self.inputs = run.inputs
        # The batch whose rows its outputs are, if they become values of a sequence.
        self.rows_of: BatchedRows | None = None
        # When its batch began (time.perf_counter_ns) and how long it was computed.
        self.began_ns = self.computed_ns = 0

    def copy_outcome(self) -> bool:
        """Copy the outcome to the run; return False if the run is to be computed alone."""
        run, outcome = self.run, self.outcome
        if outcome is None:
            return False
        if isinstance(outcome, NnrtError):
            run.error = outcome
        elif run.cancellation.is_cancelled:
            run.error = _cancel_error(run.cancellation)
        else:
            run.outputs = outcome
            if run.values is not None:
                run.values.rows = self.rows_of
        run.began_ns, run.computed_ns = self.began_ns, self.computed_ns
        run.done_ns = self.began_ns + self.computed_ns
        return True


def _cancel_error(cancellation: Cancellation) -> NnrtError | None:
    try:
        cancellation.check()
    except NnrtError as error:
        return error
    return None


JoinedT = TypeVar("JoinedT", Joined, Run)


class Batches:
    """Batches of runs that wait for the device at the same time.

    These runs have taken their inputs and models, but no slot yet.
    """

    def __init__(self, scheduler: Scheduler, costs: RunCosts, counter: BatchCounter) -> None:
        self._scheduler = scheduler
        self._costs = costs
        self._counter = counter
        self._lock = threading.Lock()

    def compute(self, run: Run) -> bool:
        """Compute a run in a batch if it would have to wait; return False if it is to be computed alone."""
        assert run.model is not None
        group = run.model.group
        if group is None or (self._scheduler.has_free_slot and not group.batching.max_delay_us):
            return False
        served = run.description.served_name if run.description is not None else ""
        bucket = group.find_bucket([array.shape for array in run.inputs], served)
        if bucket is None:
            return False
        if run.values is not None and run.values.membership is not None:
            with self._lock:
                run.values.membership.move(bucket)
        joined = Joined(run, bucket)
        self.settle([joined])
        return joined.copy_outcome()

    def end_loop(self, membership: LoopMembership) -> None:
        """Let no run wait for those of a loop any more."""
        with self._lock:
            membership.move(None)

    def compute_all(self, runs: Sequence[Run]) -> None:
        """Compute runs of one bucket. The caller computes those alone that have no outputs and no error afterwards."""
        joined = [Joined(run, run.description.bucket) for run in runs if run.description and run.description.bucket]
        if joined:
            self.settle(joined)
        for each in joined:
            each.copy_outcome()

    def settle(self, runs: Sequence[Joined]) -> None:
        """Wait until each of these runs, which are of one bucket, has an outcome.

        This thread or another one computes them, together with runs of the bucket that wait in other threads.
        """
        bucket = runs[0].bucket
        if bucket.batching.max_delay_us:
            self._gather(bucket, runs)
        else:
            for batch in cut_batches(runs, bucket.batching.max_size):
                self._compute_all(batch)
        await_outcomes(runs)

    def _gather(self, bucket: Bucket, runs: Sequence[Joined]) -> None:
        """Gather runs for the batching delay or until a batch is full, then compute them.

        The first thread whose delay is over, or that fills the batch, computes all gathered runs.
        """
        wake, until = threading.Event(), time.monotonic() + bucket.batching.max_delay_us / 1e6
        for run in runs:
            run.wakes.append(wake)
            run.cancellation.on_cancel(wake.set)
        with self._lock:
            bucket.gathering += runs
            gathered = _as_joined(bucket.take_gathered()) if bucket.is_full else []
        if not gathered:
            wake.wait(max(until - time.monotonic(), 0.0))
            with self._lock:
                gathered = _as_joined(bucket.take_gathered()) if any(run in bucket.gathering for run in runs) else []
        try:
            for batch in cut_batches(gathered, bucket.batching.max_size):
                self._compute_all(batch)
        except BaseException:  # MemoryError, perhaps. Other threads wait for these runs, which only this one computes.
            for run in gathered:
                run.settle(None)
            raise

    def _compute_all(self, runs: Sequence[Joined]) -> None:
        """Compute runs that fit into a batch, except those that are over, or let other threads compute them."""
        for run in runs:
            run.settle_if_over()
        left = [run for run in runs if not run.is_settled]
        slot = Cancellation()
        if batch := _as_joined(self._scheduler.acquire_together(left, slot) if left else ()):
            self._compute(batch, slot)

    def _compute(self, batch: Sequence[Joined], slot: Cancellation) -> None:
        """Compute a batch on the device and give each run its outcome; after a failure each is to run alone."""
        _cancel_with_last(batch, slot)
        batch = _in_order_of_values(batch)
        outputs: list[Array] | None = None
        began_ns = slot.began_ns = time.perf_counter_ns()
        try:
            # The session of this model may end, and release it, before the other runs have their rows.
            with _model_of(batch[0]).kept():
                outputs = self._outputs(batch, slot)
        except (NnrtError, MemoryError) as error:
            _log.debug("%d runs that were computed together run alone: %s", len(batch), error)
        except BaseException:
            _log.exception("%d runs that failed together run alone", len(batch))
        began_ns = slot.began_ns or began_ns
        computed_ns = time.perf_counter_ns() - began_ns
        self._scheduler.release(slot, computed_ns)
        row, rows_of = 0, BatchedRows() if len(batch) > 1 else None
        for run in batch:
            run.began_ns, run.computed_ns, run.rows_of = began_ns, computed_ns, rows_of
            last = row + run.rows
            run.settle(outputs and [output[row:last] for output in outputs])
            row = last
        if outputs and len(batch) > 1:
            self._counter.count(len(batch), row)

    def _outputs(self, batch: Sequence[Joined], slot: Cancellation) -> list[Array]:
        """Run the model once with all rows and return its outputs."""
        prepared = _model_of(batch[0]).shared.prepared
        inputs = [_join_arrays(each) for each in zip(*[joined.inputs for joined in batch], strict=True)]
        sizes = prepared.sizes(inputs)
        if sizes.multiply_adds > self._costs.unchecked:
            self._costs.require_in_time(sizes.multiply_adds, slot)
        peak_bytes = sizes.peak_bytes
        if peak_bytes < UNCOUNTED_BYTES:
            outputs = prepared.run(inputs, slot)
        else:
            outputs = self._run_counted(batch, slot, inputs, peak_bytes)
        slot.check()
        rows = len(inputs[0])
        if not all(output.ndim and len(output) == rows for output in outputs):
            raise RuntimeError(f"{rows} rows went in, and {[list(output.shape) for output in outputs]} came out")
        return outputs

    def _run_counted(
        self, batch: Sequence[Joined], slot: Cancellation, inputs: Sequence[Array], peak_bytes: int
    ) -> list[Array]:
        """Run a batch whose memory is counted: in each session's budget by its rows, and in the scheduler."""
        with ExitStack() as reserved:
            for run in batch:
                reserved.enter_context(run.run.session.budget.reserved(peak_bytes * run.rows // len(inputs[0])))
            self._scheduler.reserve(slot, peak_bytes)
            slot.began_ns = time.perf_counter_ns()
            return _model_of(batch[0]).shared.prepared.run(inputs, slot)


def _in_order_of_values(batch: Sequence[Joined]) -> Sequence[Joined]:
    """Return runs in the order in which their values lie in memory, if all are runs of sequences.

    Those that were computed together before then find their values as one array.
    """
    values = [run.run.values for run in batch]
    largest = values[0].largest_input if values[0] is not None else None
    if largest is None or any(one is None or one.largest_input != largest for one in values):
        return batch
    return sorted(batch, key=lambda run: _address(run.inputs[largest]))


def _join_arrays(arrays: Sequence[Array]) -> Array:
    """Join one input of all runs; the result is read-only. Rows that lie one behind the other are not copied."""
    if len(arrays) == 1:
        return arrays[0]
    base = arrays[0].base
    if isinstance(base, np.ndarray) and (joined := _adjacent_rows(base, arrays)) is not None:
        return joined
    joined = np.concatenate(arrays)
    joined.flags.writeable = False
    return joined


def _adjacent_rows(base: Array, arrays: Sequence[Array]) -> Array | None:
    """Return all arrays as one view of their base, or None if they aren't its rows, one behind the other."""
    shape = arrays[0].shape[1:]
    if not base.flags.c_contiguous or base.shape[1:] != shape or base.dtype != arrays[0].dtype or not arrays[0].nbytes:
        return None
    row_bytes = arrays[0].nbytes // len(arrays[0])
    at = begin = _address(arrays[0])
    for array in arrays:
        if array.base is not base or _address(array) != at or not array.flags.c_contiguous:
            return None
        at += array.nbytes
    first = (begin - _address(base)) // row_bytes
    rows: Array = base[first : first + (at - begin) // row_bytes]
    rows.flags.writeable = False
    return rows


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _as_joined(joinable: Sequence[Joinable]) -> list[Joined]:
    """Narrow the type of a bucket's runs: all of them are `Joined`."""
    return [each for each in joinable if isinstance(each, Joined)]


def _model_of(joined: Joined) -> LoadedModel:
    assert joined.run.model is not None
    return joined.run.model


def cut_batches(runs: Sequence[JoinedT], max_size: int) -> Iterator[list[JoinedT]]:
    """Cut runs, in order, into batches of at most `max_size` rows."""
    batch: list[JoinedT] = []
    rows = 0
    for run in runs:
        if rows + run.rows > max_size:
            yield batch
            batch, rows = [], 0
        batch.append(run)
        rows += run.rows
    if batch:
        yield batch


def _cancel_with_last(batch: Sequence[Joined], slot: Cancellation) -> None:
    """Cancel the batch's slot when all runs are cancelled, and set its deadline to the latest of theirs."""
    others = [None] * len(batch)

    def leave() -> None:
        others.pop()
        if not others:
            slot.cancel()

    for run in batch:
        run.cancellation.on_cancel(leave)
    deadlines = [run.cancellation.deadline for run in batch]
    if None not in deadlines:
        slot.deadline = max(deadline for deadline in deadlines if deadline is not None)
