"""Runs that may be computed together, while they wait for the device."""

import threading
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from nnrt_device_service.access.counters import Tally
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.batching import Batching
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Shape

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

    __slots__ = ("__weakref__", "batching", "gathering", "joint", "waiting")

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        # Those that wait for a slot, first come first: the scheduler's.
        self.waiting: dict[Joinable, None] = {}
        # Those that wait for others, although there is a slot.
        self.gathering: list[Any] = []
        # What answers them together where one thread has read several: the transport's.
        self.joint: Any = None

    def gathered(self, least: int = 1) -> list[Any]:
        """Take those that wait for others, if they have so many rows."""
        if sum(run.rows for run in self.gathering) < least:
            return []
        gathered, self.gathering = self.gathering, []
        return gathered


class Joinable:
    """A run as the scheduler knows it that may join others.

    It has one outcome: the first that is given. None stands for "run it alone".
    """

    __slots__ = ("_outcomes", "bucket", "cancellation", "flow", "queued", "rows", "wakes")

    def __init__(self, flow: Any, cancellation: Cancellation, bucket: Bucket, rows: int) -> None:
        """`flow` is the scheduler's."""
        self.flow = flow
        self.cancellation = cancellation
        self.bucket = bucket
        self.rows = rows
        # What the scheduler has of it while it waits.
        self.queued: Any = None
        # Of the threads that wait for it.
        self.wakes: list[threading.Event] = []
        self._outcomes: list[Any] = []

    @property
    def tally(self) -> Tally:
        tally: Tally = self.flow.tally
        return tally

    @property
    def is_settled(self) -> bool:
        return bool(self._outcomes)

    @property
    def outcome(self) -> Any:
        """What has been given first."""
        return self._outcomes[0]

    def settle(self, outcome: Any) -> None:
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
