"""Runs of clients that are computed together, as one with all their rows."""

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
from nnrt_device_service.scheduling.joinable import Bucket, Joinable, await_outcomes
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)


class Joined(Joinable):
    """Part of a run in a batch. Its outcome is its outputs, the error that they are not there for, or None: the run is
    to be computed alone."""

    __slots__ = ("began_ns", "computed_ns", "inputs", "run")

    def __init__(self, run: Run, bucket: Bucket) -> None:
        assert run.model is not None
        flow = run.session.account.flows[run.model.rank]
        super().__init__(flow, run.cancellation, bucket, run.rows)
        self.run = run
        # Others may still compute with them when the run has given up.
        self.inputs = run.inputs
        # When it was computed and for how long, in time.perf_counter_ns.
        self.began_ns = self.computed_ns = 0

    def give_outcome(self) -> bool:
        """Give the run its outcome; whether it has one."""
        run, outcome = self.run, self.outcome
        if outcome is None:
            return False
        if isinstance(outcome, NnrtError):
            run.error = outcome
        elif run.cancellation.is_cancelled:
            run.error = _why_cancelled(run.cancellation)
        else:
            run.outputs = outcome
        run.began_ns, run.computed_ns = self.began_ns, self.computed_ns
        run.done_ns = self.began_ns + self.computed_ns
        return True


def _why_cancelled(cancellation: Cancellation) -> NnrtError | None:
    try:
        cancellation.check()
    except NnrtError as error:
        return error
    return None


JoinedT = TypeVar("JoinedT", Joined, Run)


class Batches:
    """Computes runs together that wait for the device at the same time. They have entered all but the device."""

    def __init__(self, scheduler: Scheduler, counter: BatchCounter) -> None:
        self._scheduler = scheduler
        self._counter = counter
        self._lock = threading.Lock()

    def compute(self, run: Run) -> bool:
        """Compute a run that would have to wait, perhaps with others; whether it has its outcome, and is not to be
        computed alone."""
        assert run.model is not None
        group = run.model.group
        if group is None or (self._scheduler.has_free_slot and not group.batching.max_delay_us):
            return False
        bucket = group.bucket([array.shape for array in run.inputs])
        if bucket is None:
            return False
        joined = Joined(run, bucket)
        self.settle([joined])
        return joined.give_outcome()

    def compute_all(self, runs: Sequence[Run]) -> None:
        """Compute runs of one bucket, each of which has its outcome then, or is to be computed alone."""
        joined = [Joined(run, run.description.bucket) for run in runs if run.description and run.description.bucket]
        if joined:
            self.settle(joined)
        for each in joined:
            each.give_outcome()

    def settle(self, runs: Sequence[Joined]) -> None:
        """Wait until each of these runs, which are of one bucket, has an outcome. Computes them, and with them what of
        the bucket waits in other threads; or has those compute them."""
        bucket = runs[0].bucket
        if bucket.batching.max_delay_us:
            self._gather(bucket, runs)
        else:
            for batch in batches_of(runs, bucket.batching.max_size):
                self._compute_all(batch)
        await_outcomes(runs)

    def _gather(self, bucket: Bucket, runs: Sequence[Joined]) -> None:
        """Wait as long as a run may for others to come, unless there are enough; whoever is first to have waited so
        long, or brings what was lacking, computes all."""
        wake, until = threading.Event(), time.monotonic() + bucket.batching.max_delay_us / 1e6
        for run in runs:
            run.wakes.append(wake)
            run.cancellation.on_cancel(wake.set)
        with self._lock:
            bucket.gathering += runs
            gathered = _joined_of(bucket.gathered(bucket.batching.max_size))
        if not gathered:
            wake.wait(max(until - time.monotonic(), 0.0))
            with self._lock:
                gathered = _joined_of(bucket.gathered()) if any(run in bucket.gathering for run in runs) else []
        try:
            for batch in batches_of(gathered, bucket.batching.max_size):
                self._compute_all(batch)
        except BaseException:  # Of memory, perhaps. Others wait for these, and have nobody else.
            for run in gathered:
                run.settle(None)
            raise

    def _compute_all(self, runs: Sequence[Joined]) -> None:
        """Compute these, which fit into a batch, as far as their time isn't over, or leave them to other threads."""
        for run in runs:
            run.settle_if_over()
        left = [run for run in runs if not run.is_settled]
        slot = Cancellation()
        if batch := _joined_of(self._scheduler.acquire_together(left, slot) if left else ()):
            self._compute(batch, slot)

    def _compute(self, batch: Sequence[Joined], slot: Cancellation) -> None:
        """Compute these on the device, and give each its outcome. What fails together is to run alone."""
        _end_with_the_last(batch, slot)
        outputs: list[Array] | None = None
        began_ns = slot.began_ns = time.perf_counter_ns()
        try:
            with _model_of(
                batch[0]
            ):  # Whoever brought it may leave, and release it, before the others have their rows.
                outputs = self._outputs(batch, slot)
        except (NnrtError, MemoryError) as error:
            _log.debug("%d runs that were computed together run alone: %s", len(batch), error)
        except BaseException:
            _log.exception("%d runs that failed together run alone", len(batch))
        began_ns = slot.began_ns or began_ns
        computed_ns = time.perf_counter_ns() - began_ns
        self._scheduler.release(slot, computed_ns)
        row = 0
        for run in batch:
            run.began_ns, run.computed_ns = began_ns, computed_ns
            last = row + run.rows
            run.settle(outputs and [output[row:last] for output in outputs])
            row = last
        if outputs and len(batch) > 1:
            self._counter.count(len(batch), row)

    def _outputs(self, batch: Sequence[Joined], slot: Cancellation) -> list[Array]:
        """The outputs of all, as one run gives them."""
        prepared = _model_of(batch[0]).prepared
        inputs = [_joined(each) for each in zip(*[joined.inputs for joined in batch], strict=True)]
        peak_bytes = prepared.sizes(inputs).peak_bytes
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
        """Run what makes so much that it counts: in each session by its rows."""
        with ExitStack() as held:
            for run in batch:
                held.enter_context(run.run.session.budget.reserved(peak_bytes * run.rows // len(inputs[0])))
            self._scheduler.reserve(slot, peak_bytes)
            slot.began_ns = time.perf_counter_ns()
            return _model_of(batch[0]).prepared.run(inputs, slot)


def _joined(arrays: Sequence[Array]) -> Array:
    """One input of all runs, which nobody may write to."""
    if len(arrays) == 1:
        return arrays[0]
    joined: Array = np.concatenate(arrays)
    joined.flags.writeable = False
    return joined


def _joined_of(joinable: Sequence[Joinable]) -> list[Joined]:
    """What a bucket has: nothing else is in them."""
    return [each for each in joinable if isinstance(each, Joined)]


def _model_of(joined: Joined) -> LoadedModel:
    assert joined.run.model is not None
    return joined.run.model


def batches_of(runs: Sequence[JoinedT], max_size: int) -> Iterator[list[JoinedT]]:
    """These runs in batches of at most so many rows, in order."""
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


def _end_with_the_last(batch: Sequence[Joined], slot: Cancellation) -> None:
    """Have what is computed together end when nobody waits for it any more."""
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
