"""Runs that may be computed together, while they wait for the device."""

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from weakref import WeakValueDictionary

from nnrt_device_service.scheduling.flows import QueuedRun, SessionFlow
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.batching import Batching
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array, Shape

# Runs of one member with so many different shapes are joined; those with more run alone, unless others have runs of the
# same.
MOST_SHAPES = 64
# The shapes of a run's inputs, but for their rows.
Rests = tuple[Shape, ...]


class Group:
    """The models of sessions whose runs may be computed together if their shapes agree: they are compiled alike, and
    belong to those who may share."""

    __slots__ = ("__weakref__", "_buckets", "_lock", "batching")

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        self._lock = threading.Lock()
        # They live as long as a member, a plan or a run has them.
        self._buckets: WeakValueDictionary[Rests, Bucket] = WeakValueDictionary()

    def bucket(self, rests: Rests, *, is_new: bool) -> "Bucket | None":
        """The bucket of runs with these shapes; a new one, if it may be, where there is none."""
        with self._lock:
            found = self._buckets.get(rests)
            if found is None and is_new:
                found = self._buckets[rests] = Bucket(self.batching)
            return found


class Member:
    """A session's model in a group."""

    __slots__ = ("_buckets", "_group", "batching")

    def __init__(self, group: Group) -> None:
        self.batching = group.batching
        self._group = group
        self._buckets: dict[Rests, Bucket] = {}

    def bucket(self, shapes: Sequence[Shape]) -> "Bucket | None":
        """The bucket of a run with inputs of these shapes; None where it can't be joined with any."""
        rows = shapes[0][0]
        if not 0 < rows <= self.batching.max_size:
            return None
        rests = []
        for shape in shapes:
            if shape[0] != rows:
                return None
            rests.append(shape[1:])
        key = tuple(rests)
        found = self._buckets.get(key)
        if found is None:
            has_room = len(self._buckets) < MOST_SHAPES
            found = self._group.bucket(key, is_new=has_room)
            if found is not None and has_room:
                self._buckets[key] = found
        return found


class Bucket:
    """The runs of a group whose rows have the same shapes."""

    __slots__ = ("__weakref__", "batching", "gathering", "waiting")

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        # Those that wait for a slot, first come first: the scheduler's.
        self.waiting: dict[Joinable, None] = {}
        # Those that wait for others, although there is a slot.
        self.gathering: list[Joinable] = []

    def gathered(self, least: int = 1) -> "list[Joinable]":
        """Take those that wait for others, if they have so many rows."""
        if sum(run.rows for run in self.gathering) < least:
            return []
        gathered, self.gathering = self.gathering, []
        return gathered


# What became of a run that may be joined: its outputs, or its error; None: it is to run alone.
Outcome = Sequence[Array] | NnrtError | None


class Joinable:
    """A run as the scheduler knows it that may join others. It has one outcome: the first that is given."""

    __slots__ = ("_outcomes", "bucket", "cancellation", "flow", "queued", "rows", "wakes")

    def __init__(self, flow: SessionFlow, cancellation: Cancellation, bucket: Bucket, rows: int) -> None:
        self.flow = flow
        self.cancellation = cancellation
        self.bucket = bucket
        self.rows = rows
        # What the scheduler has of it while it waits.
        self.queued: QueuedRun | None = None
        # Of the threads that wait for it.
        self.wakes: list[threading.Event] = []
        self._outcomes: list[Outcome] = []

    def begin_to_wait(self, queued: QueuedRun, wake: threading.Event) -> None:
        """Wait for a slot in a thread that this event wakes, or to be taken along by others."""
        self.queued, queued.wake = queued, wake.set
        queued.on_grant = partial(self.bucket.waiting.pop, self)
        self.bucket.waiting[self] = None

    @property
    def is_granted(self) -> bool:
        """It has a slot of its own."""
        return self.queued is not None and self.queued.is_granted

    @property
    def is_settled(self) -> bool:
        return bool(self._outcomes)

    @property
    def outcome(self) -> Outcome:
        """What has been given first."""
        return self._outcomes[0]

    def settle(self, outcome: Outcome) -> None:
        """Give it an outcome, from any thread."""
        self._outcomes.append(outcome)
        for wake in self.wakes:
            wake.set()

    def settle_if_over(self) -> None:
        """Give it the error that it ends with where it was cancelled, or its time is over."""
        if self.is_settled or not self.is_over:
            return
        try:
            self.cancellation.check()
        except NnrtError as error:
            self.settle(error)

    @property
    def is_over(self) -> bool:
        """Whether it was cancelled, or its time is over."""
        return self.cancellation.is_cancelled or self.cancellation.remaining == 0.0


def await_outcomes(runs: Iterable[Joinable]) -> None:
    """Wait until each of these has an outcome, which other threads give, or its time is over."""
    left = [run for run in runs if not run.is_settled]
    if not left:
        return
    wake = threading.Event()
    for run in left:
        run.wakes.append(wake)  # Before the next look at its outcome.
        run.cancellation.on_cancel(wake.set)
    while not all(run.is_settled for run in left):
        await_change(left, wake)
        for run in left:
            run.settle_if_over()


def await_change(runs: Iterable[Joinable], wake: threading.Event) -> None:
    """Wait for one of the threads' events, or until the time of one of these is over that has no outcome yet."""
    known = [run.cancellation.remaining for run in runs if not run.is_settled]
    wake.wait(min((seconds for seconds in known if seconds is not None), default=None))
    wake.clear()
