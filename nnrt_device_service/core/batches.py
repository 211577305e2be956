"""Runs of clients that are computed together, as one with all their rows."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from nnrt_device_service.access.counters import BatchCounter
from nnrt_device_service.scheduling.joinable import Bucket, Group, Joinable, await_outcomes
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.batching import Batching
from nnrt_hdi.errors import NnrtError, Unsupported
from nnrt_hdi.files.store_directory import SHOWN_KEY
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import infer_graph
from nnrt_hdi.ops.rows_apart import require_rows_apart
from nnrt_hdi.tensor import UNKNOWN_DIM, Array

_log = logging.getLogger(__name__)

# Runs that make less are not counted: there are no more of them than slots.
UNCOUNTED_BYTES = 1 << 20
# So many models are not judged again when another client brings them.
_VERDICTS = 256


class JudgedModel(Protocol):
    """A model that a client asks for."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that decides what is compiled."""

    def graph(self) -> Graph:
        """The graph, perhaps without the data of large constants."""


class BatchedRun(Joinable):
    """A run that may be computed with others. Its outcome is its outputs, the error that they are not there for, or
    None: it is to run alone."""

    __slots__ = ("asked_ns", "began_ns", "computed_ns", "inputs", "model", "session")

    def __init__(
        self, session: Session, model: LoadedModel, inputs: Sequence[Array], cancellation: Cancellation, bucket: Bucket
    ) -> None:
        super().__init__(session.account.flows[model.rank], cancellation, bucket, inputs[0].shape[0])
        self.session = session
        self.model = model
        self.inputs = inputs
        # When it began to wait, and when it was computed and for how long, in time.perf_counter_ns.
        self.asked_ns = time.perf_counter_ns()
        self.began_ns = self.computed_ns = 0

    def is_to_run_alone(self) -> bool:
        """Whether it has not been computed with others, and may be by itself."""
        return self.outcome is None


class Batches:
    """Computes runs together that wait for the device at the same time."""

    def __init__(self, scheduler: Scheduler, settings: Settings, counter: BatchCounter) -> None:
        """Raises InvalidParameter for settings that can't be."""
        self._by_default = settings.batching
        self._is_for_all = settings.batch_across == "identities"
        # Why models that were judged are not for it, or None; by their digests, the latest last.
        self._verdicts: OrderedDict[bytes, NnrtError | None] = OrderedDict()
        self._scheduler = scheduler
        self._counter = counter
        self._lock = threading.Lock()
        # They live as long as a model that is in one.
        self._groups: WeakValueDictionary[Hashable, Group] = WeakValueDictionary()

    def group_of(
        self,
        session: Session,
        model: JudgedModel,
        config: ModelConfig,
        batching: Batching | None,
        judging: Callable[[], AbstractContextManager[None]],
    ) -> Group | None:
        """The group of a model, as its client asks for it, or else the operator; None where its runs run alone. It is
        judged in the block of `judging`, the first time.

        Raises what is in the way of it where the client asks.
        """
        wanted = batching or self._by_default
        if wanted is None:
            return None
        digest = model.digest
        with self._lock:
            is_judged = digest in self._verdicts
            verdict = self._verdicts.get(digest)
        if not is_judged:
            with judging():
                verdict = _verdict(model.graph())
            self._remember(digest, verdict)
        if verdict is None:
            return self.group(session, digest, config, wanted)
        if batching is not None:
            raise verdict.copy()
        if not is_judged:
            _log.info("runs of model %s are not computed together: %s", digest.hex()[:SHOWN_KEY], verdict)
        return None

    def group(self, session: Session, digest: bytes, config: ModelConfig, batching: Batching) -> Group:
        """The group of those who may share, and run the same compiled model."""
        whose = "" if self._is_for_all else str(session.identity)
        how = config.enable_float16, config.mode, frozenset(config.extensions.items())
        key = digest, how, batching, whose
        with self._lock:
            found = self._groups.get(key)
            if found is None:
                found = self._groups[key] = Group(batching)
            return found

    def _remember(self, digest: bytes, verdict: NnrtError | None) -> None:
        with self._lock:
            self._verdicts[digest] = verdict
            if len(self._verdicts) > _VERDICTS:
                self._verdicts.popitem(last=False)

    def joined(
        self, session: Session, model: LoadedModel, inputs: Sequence[Array], cancellation: Cancellation
    ) -> BatchedRun | None:
        """A run that would have to wait, computed, perhaps with others; None where it is to run alone.

        Raises what it ended with.
        """
        if model.group is None or (self._scheduler.has_free_slot and not model.group.batching.max_delay_us):
            return None
        bucket = model.group.bucket([array.shape for array in inputs])
        if bucket is None:
            return None
        run = BatchedRun(session, model, inputs, cancellation, bucket)
        self.settle([run])
        if isinstance(run.outcome, NnrtError):
            raise run.outcome
        return run if run.outcome is not None else None

    def settle(self, runs: Sequence[BatchedRun]) -> None:
        """Wait until each of these runs, which are of one bucket, has an outcome. Computes them, and with them what of
        the bucket waits in other threads; or has those compute them."""
        bucket = runs[0].bucket
        if bucket.batching.max_delay_us:
            self._gather(bucket, runs)
        else:
            for batch in batches_of(runs, bucket.batching.max_size):
                self._compute_all(batch)
        await_outcomes(runs)

    def _gather(self, bucket: Bucket, runs: Sequence[BatchedRun]) -> None:
        """Wait as long as a run may for others to come, unless there are enough; whoever is first to have waited so
        long, or brings what was lacking, computes all."""
        wake, until = threading.Event(), time.monotonic() + bucket.batching.max_delay_us / 1e6
        for run in runs:
            run.wakes.append(wake)
            run.cancellation.on_cancel(wake.set)
        with self._lock:
            bucket.gathering += runs
            gathered = bucket.gathered(bucket.batching.max_size)
        if not gathered:
            wake.wait(max(until - time.monotonic(), 0.0))
            with self._lock:
                gathered = bucket.gathered() if any(run in bucket.gathering for run in runs) else []
        try:
            for batch in batches_of(gathered, bucket.batching.max_size):
                self._compute_all(batch)
        except BaseException:  # Of memory, perhaps. Others wait for these, and have nobody else.
            for run in gathered:
                run.settle(None)
            raise

    def _compute_all(self, runs: Sequence[BatchedRun]) -> None:
        """Compute these, which fit into a batch, as far as their time isn't over, or leave them to other threads."""
        for run in runs:
            run.settle_if_over()
        left = [run for run in runs if not run.is_settled]
        slot = Cancellation()
        batch: list[Any] = self._scheduler.acquire_together(left, slot) if left else []
        if batch:
            self._compute(batch, slot)

    def _compute(self, batch: Sequence[BatchedRun], slot: Cancellation) -> None:
        """Compute these on the device, and give each its outcome. What fails together is to run alone."""
        _end_with_the_last(batch, slot)
        outputs: list[Array] | None = None
        began_ns = slot.began_ns = time.perf_counter_ns()
        try:
            with batch[0].model:  # Whoever brought it may leave, and release it, before the others have their rows.
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

    def _outputs(self, batch: Sequence[BatchedRun], slot: Cancellation) -> list[Array]:
        """The outputs of all, as one run gives them."""
        prepared = batch[0].model.prepared
        inputs = [_joined(each) for each in zip(*[run.inputs for run in batch], strict=True)]
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
        self, batch: Sequence[BatchedRun], slot: Cancellation, inputs: Sequence[Array], peak_bytes: int
    ) -> list[Array]:
        """Run what makes so much that it counts: in each session by its rows."""
        with ExitStack() as held:
            for run in batch:
                held.enter_context(run.session.budget.reserved(peak_bytes * run.rows // len(inputs[0])))
            self._scheduler.reserve(slot, peak_bytes)
            slot.began_ns = time.perf_counter_ns()
            return batch[0].model.prepared.run(inputs, slot)


def require_open_rows(prepared: PreparedModel) -> None:
    """Refuse, with Unsupported, what has no inputs, or a tensor without an open first dimension, as no model has that
    `require_rows_apart` takes."""
    specs = (*prepared.inputs, *prepared.outputs)
    if not prepared.inputs or any(spec.shape[:1] != (UNKNOWN_DIM,) for spec in specs):
        raise Unsupported(
            f"its tensors are {', '.join(map(str, specs))}; to be joined, all must have a first dimension that is open",
            place="a model whose runs are to be computed together",
        )


def _verdict(graph: Graph) -> NnrtError | None:
    """Why runs of a model can't be computed together; None if they can. Raises what is wrong with the model."""
    inferred = infer_graph(graph)
    inferred.raise_first_problem()
    try:
        require_rows_apart(inferred.graph)
    except NnrtError as error:
        return error
    return None


def _joined(arrays: Sequence[Array]) -> Array:
    """One input of all runs, which nobody may write to."""
    if len(arrays) == 1:
        return arrays[0]
    joined: Array = np.concatenate(arrays)
    joined.flags.writeable = False
    return joined


def batches_of(runs: Sequence[Any], max_size: int) -> Iterator[list[Any]]:
    """These runs in batches of at most so many rows, in order."""
    batch: list[Any] = []
    rows = 0
    for run in runs:
        if rows + run.rows > max_size:
            yield batch
            batch, rows = [], 0
        batch.append(run)
        rows += run.rows
    if batch:
        yield batch


def _end_with_the_last(batch: Sequence[BatchedRun], slot: Cancellation) -> None:
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
