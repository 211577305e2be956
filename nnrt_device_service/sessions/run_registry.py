"""The runs of a session by the ids that its client gave them, so that they outlive their streams."""

import threading
from collections.abc import Callable, Sequence

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter, OperationFailed, OutOfMemory, UnknownHandle
from nnrt_hdi.tensor import Array

# Of the cancellations that came before their runs, the latest so many are remembered.
_EARLY_CANCELLATIONS = 1024


class KnownRun:
    """What the registry knows of a run: under way, or ended and its reply perhaps not yet with the client."""

    __slots__ = ("awaiter", "cancellation", "chunked", "held_bytes", "id", "reply", "was_too_long")

    id: int
    cancellation: Cancellation
    # The frame of the reply, None until the run has ended; and the outputs that follow it in chunks.
    reply: bytes | None
    chunked: Sequence[Array]
    # Token of the latest call that waits for the reply.
    awaiter: object
    # What the reply takes of the session's memory, once it is kept.
    held_bytes: int | None
    # Whether it was too long for the local socket: then its client is on this host, and wants nothing compressed.
    was_too_long: bool

    @property
    def reply_bytes(self) -> int:
        """Memory that the reply takes."""
        return len(self.reply or b"") + sum(array.nbytes for array in self.chunked)


class RunRegistry:
    """Finds runs by their ids, for clients that have lost the streams they were on.

    `begin`, `finish` and `forget` are on the way of every run and take no lock.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._changed = threading.Condition()
        self._runs: dict[int, KnownRun] = {}
        self._early: dict[int, None] = {}
        # Calls of `reply_of` under way.
        self.awaiters = 0
        self._is_open = True

    def begin(self, run: KnownRun, former: Sequence[KnownRun] = ()) -> None:
        """Know a run from now on, in place of `former` ones, whose replies the client has. It is cancelled if `cancel`
        came first. Raises InvalidParameter for no id, or one in use."""
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
        """Note that the run has ended; whoever awaits its reply gets it."""
        run.chunked, run.reply = chunked, reply
        if self.awaiters:
            self.wake()

    def forget(self, run: KnownRun) -> None:
        """Forget a run whose reply the client has. One that is kept stays."""
        if run.held_bytes is None and self._runs.get(run.id) is run:
            self._runs.pop(run.id, None)

    def keep(self, run: KnownRun) -> None:
        """Keep the reply of a run for `reply_of` if memory allows, until `cancel` or `close`."""
        if not self._is_known(run) or run.reply is None:
            return
        # What is a part of a batch's outputs would keep the whole of them.
        run.chunked = [array if array.base is None else array.copy() for array in run.chunked]
        size_bytes = run.reply_bytes
        has_room = True
        try:
            self._budget.reserve(size_bytes)  # Without the lock: others may have to give memory back.
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
        """Bytes of replies that are kept."""
        return sum(run.held_bytes or 0 for run in list(self._runs.values()))

    def reply_of(self, run_id: int, is_wanted: Callable[[], bool]) -> KnownRun:
        """Wait until a run has its reply, until another call does so or `wake` finds this one no longer wanted.

        Raises ConnectionFailed for an unknown run, and UnknownHandle when the session is over: to its client a run
        that is cut off then is a death, not a run that the device cancelled.
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
        """Have every `reply_of` look whether it is still wanted."""
        with self._changed:
            self._changed.notify_all()

    def cancel(self, run_ids: Sequence[int]) -> list[int]:
        """Stop these runs and forget them; return those that were under way. One that is unknown and comes later
        doesn't begin."""
        runs = []
        with self._changed:
            for run_id in run_ids:
                self._early[run_id] = None  # First of all: `begin` looks here last.
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
        """Forget everything; the session is over, which cancels what is under way next."""
        with self._changed:
            self._is_open = False
            for run in self._runs.values():
                self._release(run)
            self._runs.clear()
            self._changed.notify_all()

    def _release(self, run: KnownRun) -> None:
        if run.held_bytes is not None:
            self._budget.release(run.held_bytes)
