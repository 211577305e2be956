"""Runs that wait for the device and may be computed together as a batch."""

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from weakref import WeakValueDictionary

from nnrt_device_service.scheduling.flows import QueuedRun, SessionFlow
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.batching import Batching
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array, Shape

# Number of different shapes for which a member may create buckets. Runs with other shapes run alone, unless another
# member already has a bucket for them.
MOST_SHAPES = 64
# Shapes of a run's inputs without their first dimension, the rows.
RowShapes = tuple[Shape, ...]
# Name of the identity on whose behalf a run is, and its row shapes.
_Key = tuple[str, RowShapes]


class Group:
    """Models of sessions whose runs may be computed together if their shapes agree.

    The models are compiled in the same way, and --batch-across allows their identities to share batches.
    """

    __slots__ = ("__weakref__", "_buckets", "_lock", "batching", "is_for_all")

    def __init__(self, batching: Batching, *, is_for_all: bool = False) -> None:
        """Make a group, whose batches may have runs of several identities if `is_for_all`."""
        self.batching = batching
        self.is_for_all = is_for_all
        self._lock = threading.Lock()
        # A bucket stays while a member, a description or a run refers to it.
        self._buckets: WeakValueDictionary[_Key, Bucket] = WeakValueDictionary()

    def find_bucket(self, row_shapes: RowShapes, served: str = "", *, is_new: bool) -> "Bucket | None":
        """Return the bucket of runs with these shapes; if there is none, a new one if `is_new`, else None."""
        key = served, row_shapes
        with self._lock:
            found = self._buckets.get(key)
            if found is None and is_new:
                found = self._buckets[key] = Bucket(self.batching)
            return found


class Member:
    """Model of a session in a group."""

    __slots__ = ("_buckets", "_group", "batching")

    def __init__(self, group: Group) -> None:
        self.batching = group.batching
        self._group = group
        self._buckets: dict[RowShapes, Bucket] = {}

    def find_bucket(self, shapes: Sequence[Shape], served: str = "") -> "Bucket | None":
        """Return the bucket of a run with inputs of these shapes, or None if the run can't join a batch.

        `served` is the name of the identity on whose behalf the run is, or empty.
        """
        rows = shapes[0][0]
        if not 0 < rows <= self.batching.max_size:
            return None
        row_shapes = []
        for shape in shapes:
            if shape[0] != rows:
                return None
            row_shapes.append(shape[1:])
        key = tuple(row_shapes)
        if served and not self._group.is_for_all:  # The run or its description keeps the bucket.
            return self._group.find_bucket(key, served, is_new=True)
        found = self._buckets.get(key)
        if found is None:
            has_room = len(self._buckets) < MOST_SHAPES
            found = self._group.find_bucket(key, is_new=has_room)
            if found is not None and has_room:
                self._buckets[key] = found
        return found


class Bucket:
    """Runs of a group whose rows have the same shapes."""

    __slots__ = ("__weakref__", "batching", "gathering", "loops", "waiting")

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        # Runs that wait for a slot, in the order in which they came. Guarded by the scheduler's lock.
        self.waiting: dict[Joinable, None] = {}
        # Runs that wait for other runs although a slot may be free. Guarded by the lock of `Batches`.
        self.gathering: list[Joinable] = []
        # Number of loops under way whose latest run was here, and whose next one will come soon. Guarded likewise.
        self.loops = 0

    @property
    def is_full(self) -> bool:
        """True if no gathering run need wait: they fill a batch, or nobody is known that would join them."""
        is_complete = 1 < self.loops <= len(self.gathering)
        return is_complete or sum(run.rows for run in self.gathering) >= self.batching.max_size

    def take_gathered(self) -> "list[Joinable]":
        """Remove and return all gathering runs."""
        gathered, self.gathering = self.gathering, []
        return gathered


class LoopMembership:
    """Bucket of a loop's runs. The other runs there wait for the next one, as long as a run may wait at all."""

    __slots__ = ("_bucket",)

    def __init__(self) -> None:
        self._bucket: Bucket | None = None

    def move(self, bucket: "Bucket | None") -> None:
        """Note that the loop's runs go to this bucket from now on; None: the loop has ended.

        Call this under the lock of `Batches`.
        """
        former, self._bucket = self._bucket, bucket
        if former is bucket:
            return
        if bucket is not None:
            bucket.loops += 1
        if former is not None:
            former.loops -= 1
            if former.gathering and former.is_full:  # Nobody else would end their wait.
                for wake in former.gathering[0].wakes:
                    wake.set()


# Outputs or error of a joinable run; None means that it is to run alone.
Outcome = Sequence[Array] | NnrtError | None


class Joinable:
    """Run that may join a batch, as the scheduler sees it. The first outcome that it is given counts."""

    __slots__ = ("_outcomes", "bucket", "cancellation", "flow", "queued", "rows", "wakes")

    def __init__(self, flow: SessionFlow, cancellation: Cancellation, bucket: Bucket, rows: int) -> None:
        self.flow = flow
        self.cancellation = cancellation
        self.bucket = bucket
        self.rows = rows
        # Its entry in the scheduler's queue while it waits.
        self.queued: QueuedRun | None = None
        # Events that wake the threads that wait for it.
        self.wakes: list[threading.Event] = []
        self._outcomes: list[Outcome] = []

    def begin_to_wait(self, queued: QueuedRun, wake: threading.Event) -> None:
        """Note that the run waits for a slot of its own or to join a batch; `wake` wakes its thread."""
        self.queued, queued.wake = queued, wake.set
        queued.on_grant = partial(self.bucket.waiting.pop, self)
        self.bucket.waiting[self] = None

    @property
    def is_granted(self) -> bool:
        """True if the run has a slot of its own."""
        return self.queued is not None and self.queued.is_granted

    @property
    def is_settled(self) -> bool:
        return bool(self._outcomes)

    @property
    def outcome(self) -> Outcome:
        """First outcome that was given."""
        return self._outcomes[0]

    def settle(self, outcome: Outcome) -> None:
        """Give the run an outcome. Any thread may call this."""
        self._outcomes.append(outcome)
        for wake in self.wakes:
            wake.set()

    def settle_if_over(self) -> None:
        """Give the run its error as the outcome if it was cancelled or its deadline has passed."""
        if self.is_settled or not self.is_over:
            return
        try:
            self.cancellation.check()
        except NnrtError as error:
            self.settle(error)

    @property
    def is_over(self) -> bool:
        """True if the run was cancelled or its deadline has passed."""
        return self.cancellation.is_cancelled or self.cancellation.remaining == 0.0


def await_outcomes(runs: Iterable[Joinable]) -> None:
    """Wait until other threads have given each run an outcome, or the run's deadline has passed."""
    left = [run for run in runs if not run.is_settled]
    if not left:
        return
    wake = threading.Event()
    for run in left:
        run.wakes.append(wake)  # Before `is_settled` is checked again, so that no outcome is missed.
        run.cancellation.on_cancel(wake.set)
    while not all(run.is_settled for run in left):
        await_change(left, wake)
        for run in left:
            run.settle_if_over()


def await_change(runs: Iterable[Joinable], wake: threading.Event) -> None:
    """Wait for `wake`, or until the first deadline of a run without an outcome; then clear `wake`."""
    known = [run.cancellation.remaining for run in runs if not run.is_settled]
    wake.wait(min((seconds for seconds in known if seconds is not None), default=None))
    wake.clear()
