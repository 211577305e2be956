"""A run on one of several devices that no thread waits for."""

import math
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from nnrt_client.pool.attempts import DEVICES_FAILURES, Attempts
from nnrt_client.pool.hedging import Hedger
from nnrt_client.pool.replica import Replica
from nnrt_client.pool.supply import Supply
from nnrt_client.run.base_executor import Targets
from nnrt_client.run.future import Convert, RunFuture
from nnrt_client.run.signature import Inputs
from nnrt_client.session.latch import Latch
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.signals import raised_by_handler


class PooledRun:
    """A run from its start to its end: an attempt, and others where the devices of the earlier ones fail it."""

    def __init__(
        self,
        supply: Supply,
        attempts: Attempts,
        arguments: tuple[Inputs, Targets | None, Sequence[int]],
        convert: Convert | None,
        registry: "set[PooledRun]",
        hedger: Hedger | None,
        began_ns: int,
    ) -> None:
        """`arguments` are inputs, targets and unwanted outputs. It is in the registry from its start to its end; for
        its caller it began at a time of time.perf_counter_ns."""
        self.future: RunFuture[Any] = RunFuture()
        self.future._bind(self.give_up, supply.call_back, convert)
        self._began_ns = began_ns
        self.error: BaseException | None = None
        self.ended = Latch()
        # While it waits for a replica.
        self.waits_until = math.inf
        self._supply = supply
        self._attempts = attempts
        self._inputs, self._outputs, self._unwanted = arguments
        self._registry = registry
        self._hedger = hedger
        # Held by who begins or ends an attempt, or the run: never while anything is started or called.
        self._lock = threading.RLock()
        # Attempts, each with its replica and when it began.
        self._under_way: dict[RunFuture[Any], tuple[Replica, float]] = {}
        self._is_over = False

    def start(self) -> None:
        """Begin the first attempt. Raises what is wrong with the run itself, as far as it is known before anything is
        sent; it has not ended then."""
        self._registry.add(self)
        replica = self._supply.choose()
        if replica is None:
            self._go_on()
            return
        try:
            self._begin(replica)
        except NnrtError as error:
            if raised_by_handler(error) or not self._attempts.allow(replica, error):
                raise
            self._go_on()

    def resume(self) -> None:
        """Go on after a wait: there is a replica, or none came in time."""
        if self._supply.choose() is not None:
            self._go_on()
        elif self._supply.is_open and time.monotonic() < self.waits_until:
            self._park()
        else:
            self._end(None, self._attempts.given_up())

    def hedge(self) -> bool:
        """Begin it on another device as well; false where it is over, or there is none."""
        with self._lock:
            busy = [replica for replica, _ in self._under_way.values()]
        replica = self._supply.choose_another(busy)
        if self._is_over or len(busy) != 1 or replica is None or replica in busy:
            return False
        try:
            self._begin(replica)
        except NnrtError as error:
            self._attempts.allow(replica, error)
        return True

    def give_up(self, reason: BaseException) -> bool:
        """End with this error, and stop what is under way. False where it was over already. Any thread."""
        return self._end(None, reason)

    def _go_on(self) -> None:
        while not self._is_over:
            replica = self._attempts.next()
            if replica is None:
                self.waits_until = self._attempts.waits_until
                self._park()
                return
            try:
                self._begin(replica)
                return
            except Exception as error:
                is_handlers = raised_by_handler(error)
                if is_handlers or not (isinstance(error, NnrtError) and self._attempts.allow(replica, error)):
                    self._end(None, error)
                if is_handlers:
                    raise

    def _park(self) -> None:
        try:
            self._supply.park(self)
        except Exception as error:
            self._end(None, error)
            if raised_by_handler(error):
                raise

    def _begin(self, replica: Replica) -> None:
        began = time.monotonic()
        future = replica.executor._submit(
            self._inputs, self._outputs, self._attempts.remaining_ms, None, self._unwanted
        )
        with self._lock:
            self._under_way[future] = replica, began
            is_over = self._is_over
        if is_over:
            future.cancel()
        future._watch(partial(self._attempt_ended, replica, began))
        if self._hedger is not None and len(self._under_way) == 1 and not self._attempts.has_tensors:
            self._hedger.watch(self)

    def _attempt_ended(self, replica: Replica, began: float, future: Any) -> None:
        with self._lock:
            self._under_way.pop(future, None)
            is_last = not self._under_way
            if self._is_over or future.cancelled():
                return
        error = future.exception()
        if error is None:
            if self._hedger is not None:
                self._hedger.ran(time.monotonic() - began)
            result = future.result()
            self._supply.ran(replica, time.monotonic() - began, result._queued_s)
            self._supply.offer(self._inputs, self._outputs, self._unwanted)
            self._end(result, None)
        elif not (isinstance(error, NnrtError) and self._attempts.allow(replica, error)):
            if is_last or not isinstance(error, DEVICES_FAILURES):
                self._end(None, error)
        elif is_last:
            self._supply.begin_soon(self._go_on)

    def _end(self, result: Any, error: BaseException | None) -> bool:
        with self._lock:
            if self._is_over:
                return False
            self._is_over, self.error = True, error
            left = list(self._under_way.items())
        for future, (replica, began) in left:
            if future.cancel() and error is None:  # It took so long at least.
                self._supply.ran(replica, time.monotonic() - began)
        self._registry.discard(self)
        if error is None:
            result._hand_on(self._began_ns)
            self.future._stamps = result._stamps
        self._inputs, self._outputs = (), None
        self.ended.set()
        self.future._settle(result, error)
        return True

    def fail_in_child(self, reason: NnrtError) -> None:
        """End after a fork, whoever held the lock before. Callbacks are the parent's."""
        self._is_over, self.error = True, reason
        self.ended.set()
        self.future._fail_in_child(reason)
