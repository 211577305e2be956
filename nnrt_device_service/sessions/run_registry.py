"""Run registry: the runs of a session by the ids that its client gave them. Runs outlive their streams in it."""

import threading
from collections.abc import Callable, Sequence

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter, OperationFailed, OutOfMemory, UnknownHandle
from nnrt_hdi.tensor import Array

# Number of latest cancellations that are remembered, because they may come before their runs.
_EARLY_CANCELLATIONS = 1024


class KnownRun:
    """Run as the registry sees it: under way, or ended while its client may not have the reply yet."""

    __slots__ = ("awaiter", "cancellation", "chunked", "held_bytes", "id", "reply", "was_too_long")

    id: int
    cancellation: Cancellation
    # Frame of the reply, None until the run has ended, and the outputs that follow it in chunks.
    reply: bytes | None
    chunked: Sequence[Array]
    # Token of the latest call that waits for the reply.
    awaiter: object
    # Bytes of the session's budget that the reply takes once it is kept, else None.
    held_bytes: int | None
    # Whether the reply was too long for the local socket; its client is on this host then and needs no compression.
    was_too_long: bool

    @property
    def reply_bytes(self) -> int:
        """Bytes that the reply takes."""
        return len(self.reply or b"") + sum(array.nbytes for array in self.chunked)


class RunRegistry:
    """Runs of a session by their ids, for clients that have lost the streams of their runs.

    Every run calls `begin`, `finish` and `forget`, so these take no lock.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._changed = threading.Condition()
        self._runs: dict[int, KnownRun] = {}
        self._early: dict[int, None] = {}
        # Number of calls of `reply_of` under way.
        self.awaiters = 0
        self._is_open = True

    def begin(self, run: KnownRun, former: Sequence[KnownRun] = ()) -> None:
        """Add a run, and forget `former` runs, whose replies the client has.

        If `cancel` came first, the run is cancelled. Raises InvalidParameter if the run has no id or one in use.
        """
        run_id = run.id
        for each in former:
            if each.held_bytes is None and self._runs.get(each.id) is each:
                self._runs.pop(each.id, None)
        if not run_id:
            raise InvalidParameter("the run has no run_id; give each its own")
        if self._runs.setdefault(run_id, run) is not run:
            raise InvalidParameter(f"run_id {run_id} is taken; use each only once in a session")
        if run_id in self._early:
            self.forget(run)
            run.cancellation.cancel()

    def finish(self, run: KnownRun, reply: bytes, chunked: Sequence[Array] = ()) -> None:
        """Note the reply of a run that has ended, and wake the calls that wait for it."""
        run.chunked, run.reply = chunked, reply
        if self.awaiters:
            self.wake()

    def forget(self, run: KnownRun) -> None:
        """Forget a run whose reply the client has, unless the reply is kept."""
        if run.held_bytes is None and self._runs.get(run.id) is run:
            self._runs.pop(run.id, None)

    def keep(self, run: KnownRun) -> None:
        """Keep the reply of a run for `reply_of` until `cancel` or `close`; forget the run if the budget is used up."""
        if not self._is_known(run) or run.reply is None:
            return
        # A view of a batch's outputs would keep all of these in memory.
        run.chunked = [array if array.base is None else array.copy() for array in run.chunked]
        size_bytes = run.reply_bytes
        has_room = True
        try:
            self._budget.reserve(size_bytes)  # Without the lock: it may call back into other pools.
        except OutOfMemory:
            has_room = False
        with self._changed:
            if is_known := self._is_known(run):
                if has_room:
                    run.held_bytes = size_bytes
                else:
                    del self._runs[run.id]
        if has_room and not is_known:
            self._budget.release(size_bytes)

    def _is_known(self, run: KnownRun) -> bool:
        return self._is_open and run.held_bytes is None and self._runs.get(run.id) is run

    @property
    def held_bytes(self) -> int:
        """Bytes of the kept replies."""
        return sum(run.held_bytes or 0 for run in list(self._runs.values()))

    def reply_of(self, run_id: int, is_wanted: Callable[[], bool]) -> KnownRun:
        """Wait until a run has its reply, and return the run.

        Raises ConnectionFailed for an unknown run, and OperationFailed if another call begins to wait for the same
        reply or `is_wanted` returns False after a `wake`. Raises UnknownHandle if the session has ended: to the client
        that is a lost session, not a run that was cancelled.
        """
        with self._changed:
            run = self._runs.get(run_id)
            if run is None:
                raise ConnectionFailed(
                    f"run {run_id} is not known: it never arrived, or its reply is gone; run it again"
                )
            run.awaiter = awaiter = object()
            self._changed.notify_all()
            self.awaiters += 1
            try:
                self._changed.wait_for(
                    lambda: run.reply is not None or run.awaiter is not awaiter or not self._is_open or not is_wanted()
                )
            finally:
                self.awaiters -= 1
            if not self._is_open:
                raise UnknownHandle("the session has ended: open a new one")
            if run.reply is None:
                raise OperationFailed(f"run {run_id} is awaited elsewhere, or the call was given up")
            return run

    def wake(self) -> None:
        """Let every waiting `reply_of` check again whether it is still wanted."""
        with self._changed:
            self._changed.notify_all()

    def cancel(self, run_ids: Sequence[int]) -> list[int]:
        """Cancel runs and forget them; return the ids of those that were under way.

        An id that is unknown is remembered: its run is cancelled when it comes.
        """
        runs = []
        with self._changed:
            for run_id in run_ids:
                self._early[run_id] = None  # Before `_runs` is read: `begin` uses the opposite order, without a lock.
                if run := self._runs.pop(run_id, None):
                    runs.append(run)
                    self._release(run)
            while len(self._early) > _EARLY_CANCELLATIONS:
                del self._early[next(iter(self._early))]
        stopping = [run.id for run in runs if run.reply is None]
        for run in runs:
            run.cancellation.cancel()
        return stopping

    def close(self) -> None:
        """Forget all runs; `Session.end` has cancelled those under way."""
        with self._changed:
            self._is_open = False
            for run in self._runs.values():
                self._release(run)
            self._runs.clear()
            self._changed.notify_all()

    def _release(self, run: KnownRun) -> None:
        if run.held_bytes is not None:
            self._budget.release(run.held_bytes)
