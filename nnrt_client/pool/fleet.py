"""Fleet of a pool: it tracks the daemons of a runtime, and updates the replicas of each model."""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.member import Member, MemberState
from nnrt_client.pool.replica import Replica
from nnrt_client.pool.replicas import Replicas
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.io_loop import io_loop
from nnrt_client.session.latch import Latch
from nnrt_client.session.runtime import Runtime
from nnrt_hdi.errors import NnrtError, OperationForbidden

_log = logging.getLogger(__name__)

# Interval at which the loop checks what no event reports: states in heartbeats, and ends of runs on leaving replicas.
_LOOK_AGAIN_S = 0.25
# Seconds that `close` waits for the loop.
_END_S = 5.0
# Number of threads that start repeated runs.
_BEGINNERS = 4


class Fleet(LockOwner):
    """Daemons of a runtime, with their replicas. It asks daemons that take no work again and again."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._candidates: dict[str, Candidate] = {}
        self._models: list[Replicas] = []
        # Functions that store the daemons' answers; see `Candidate.ask`.
        self._answers: queue.SimpleQueue[Callable[[float], None]] = queue.SimpleQueue()
        self._beginners = ThreadPoolExecutor(_BEGINNERS, thread_name_prefix="nnrt-pool-begin")
        self._is_open = True
        # Why the pool has ended.
        self._end_reason: NnrtError = OperationForbidden("the pool is closed; make a new one")
        self._loop = io_loop()
        self._timer: asyncio.TimerHandle | None = None
        # Function that ends the watch of the addresses, once that has begun.
        self._unwatch: Callable[[], object] | None = None
        self._ended = Latch()
        super().__init__()
        threading.Thread(target=self._begin, name="nnrt-pool", daemon=True).start()

    def _make_locks(self) -> None:
        """Make no locks, because other threads change this object only in single steps."""

    def _enter_child(self, reason: NnrtError) -> None:
        self._end_reason, self._is_open = reason, False

    def _end(self, reason: NnrtError) -> None:
        self._end_reason, self._is_open = reason, False
        for model in list(self._models):
            model.end(reason)

    def wake(self) -> None:
        """Ask the loop to check everything soon. Any thread may call this, also a signal handler."""
        self._loop.call(self._follow)

    def add(self, model: Replicas) -> None:
        """Update the replicas of a model from now on, until they are closed."""
        self._models.append(model)
        if not self._is_open:  # `_end` may not have seen the model.
            model.end(self._end_reason)
        self.wake()

    @property
    def candidates(self) -> list[Candidate]:
        """Daemons whose addresses the pool's runtime lists, or that still have a replica."""
        return list(self._candidates.values())

    def members(self) -> list[Member]:
        """Return the state of each device."""
        return [self._member(candidate) for candidate in self.candidates]

    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in a thread for callbacks."""
        try:
            self.runtime._callbacks.submit(function, *arguments)
        except RuntimeError:  # The runtime with its threads was closed meanwhile.
            function(*arguments)

    def begin_soon(self, begin: Callable[[], object]) -> None:
        """Call a function in a thread for starting runs.

        Threads for callbacks can't do this, because all of them may be in callbacks that wait for these runs.
        """
        try:
            self._beginners.submit(begin)
        except RuntimeError:  # The pool is closed.
            begin()

    def close(self) -> None:
        """Close all models and stop tracking daemons. Idempotent."""
        self._is_open = False
        self._beginners.shutdown(wait=False)
        with ExitStack() as stack:  # If one `close` is interrupted, the stack still calls the others.
            stack.callback(self._await_end)
            for model in list(self._models):
                stack.callback(model.close)
                model.end(self._end_reason)

    def _await_end(self) -> None:
        self.wake()
        if not self._loop.is_here:
            self._ended.wait(_END_S)
        if self._unwatch is not None:
            self._unwatch()

    def _begin(self) -> None:
        """Look up the runtime's names, which may block, and watch them from then on. Runs in a thread of its own."""
        try:
            self._unwatch = self.runtime.watch(lambda _: self.wake())
        except NnrtError as error:  # The runtime is closed.
            self._end(error)
        if not self._is_open and self._unwatch is not None:  # `close` may not have seen the watch.
            self._unwatch()
        self.wake()

    # ---- in the loop

    def _follow(self) -> None:
        """Check everything, and schedule the next check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_open:
            self._ended.set()
        elif self._unwatch is not None:
            pause_s = _LOOK_AGAIN_S
            try:
                pause_s = min(pause_s, max(self._look() - time.monotonic(), 0.0))
            except Exception:  # Such as MemoryError. The next check must be scheduled nevertheless.
                _log.exception("looking after a pool failed")
            self._timer = self._loop.events.call_later(pause_s, self._follow)

    def _look(self) -> float:
        """Check everything once. Return the latest time for the next check."""
        while not self._answers.empty():
            self._answers.get()(time.monotonic())
        self._follow_addresses()
        if not self.runtime._is_open:
            self._end(OperationForbidden("the runtime is closed; make a new one"))
        now, due = time.monotonic(), float("inf")
        for candidate in self.candidates:
            if candidate.is_due(now):
                name = f"nnrt-pool-ask {candidate.address}"
                threading.Thread(target=self._ask, args=(candidate,), name=name, daemon=True).start()
                candidate.is_being_asked = True  # Until the loop stores the answer.
            elif candidate.is_to_be_asked:
                due = min(due, candidate.due)
        for model in [model for model in self._models if not model.is_open]:
            self._models.remove(model)  # In place, because another thread may be adding one.
        for model in list(self._models):
            due = min(due, model.update(self.candidates, now))
        if self._models:
            self.runtime._log_left_out()
        return due

    def _follow_addresses(self) -> None:
        listed = self.runtime.addresses
        for address in listed:
            if address not in self._candidates:
                self._candidates[address] = Candidate(address)
        for address, candidate in list(self._candidates.items()):
            candidate.is_listed = address in listed
            if not candidate.is_listed and not any(model.roster.has(candidate) for model in self._models):
                del self._candidates[address]

    def _ask(self, candidate: Candidate) -> None:
        enter = candidate.ask(self.runtime, lambda _: self.wake())
        self._answers.put(enter)
        self.wake()

    def _member(self, candidate: Candidate) -> Member:
        replicas = [one for model in self._models for one in model.roster.everywhere if one.candidate is candidate]
        runs, now = sum(one.runs for one in replicas), time.monotonic()
        state, why = self._state(candidate, replicas)
        return Member(
            address=candidate.address,
            name=candidate.name,
            state=state,
            why=why,
            replicas=len(replicas),
            outstanding=sum(len(one.under_way) for one in replicas),
            runs=candidate.past_runs + runs,
            failures=candidate.past_failures + sum(one.failures for one in replicas),
            latency_s=sum(one.latency_s * one.runs for one in replicas) / runs if runs else None,
            ejected_s=max((one.ejected_until - now for one in replicas if one.is_ejected), default=0.0),
        )

    def _state(self, candidate: Candidate, replicas: list[Replica]) -> tuple[MemberState, str]:
        if not candidate.is_listed:
            return MemberState.GONE, "its address is gone"
        if candidate.is_draining and candidate.is_connected:
            return MemberState.DRAINING, candidate.trouble.reason
        if candidate.takes_work is False or candidate.suspension_reason:
            return MemberState.GONE, candidate.trouble.reason
        if not candidate.is_up or any(model.roster.loads.is_loading(candidate) for model in self._models):
            return MemberState.JOINING, candidate.why
        refusals = [model.roster.loads.refusal_of(candidate) for model in self._models]
        if any(one.is_ejected for one in replicas):
            return MemberState.EJECTED, "its runs were slow, or failed"
        if replicas:
            return MemberState.READY, ""
        return MemberState.SPARE, "; ".join(str(error) for error in refusals if error is not None)
