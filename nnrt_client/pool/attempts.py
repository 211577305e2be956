"""Attempts of one run of a pool, on one replica after the other until one succeeds."""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any

from nnrt_client.pool.hedging import Hedger
from nnrt_client.pool.replica import Replica
from nnrt_client.pool.supply import Supply
from nnrt_client.run.dispatcher import Targets
from nnrt_client.run.failures import nnrt_error_of
from nnrt_client.run.result import RunResult, is_of_unsent
from nnrt_client.run.run import Run
from nnrt_client.run.signature import Inputs
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_hdi.errors import (
    ConnectionFailed,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    TimedOut,
    UnavailableDevice,
)
from nnrt_hdi.signals import raised_by_handler

_DEVICES_FAILURES = (UnavailableDevice, ConnectionFailed)


@dataclass(frozen=True, slots=True)
class Rule:
    """Limits for the repetition of a failed run: number of retries, and seconds to wait for a replica."""

    retries: int
    patience_s: float


class Attempts:
    """Attempts of one run. It starts a first attempt, and further ones when devices fail, until the run has ended.

    A run has no side effects, so it can be repeated. If a device fails, or its daemon dies before it answers, another
    device makes the run. If the first attempt takes long, a second device may make the run at the same time. Errors
    that the run itself causes are not repeated.
    """

    def __init__(self, supply: Supply, rule: Rule, hedger: Hedger | None, run: Run) -> None:
        """Prepare the attempts of a run. A run with Tensors has only one: a failed device may still write to them."""
        self.run = run
        # Time until which the run waits for a replica.
        self.waits_until = math.inf
        self._has_tensors = run.given is not None and has_tensors(*run.given)
        self._supply = supply
        self._hedger = hedger
        self._left = rule.retries
        self._patience_s = rule.patience_s
        self._tried: dict[Replica, NnrtError] = {}
        self._had_no_room = False
        # Locked for single steps of starting or ending an attempt, never during a send or a callback.
        self._lock = threading.RLock()
        # Attempts by replica, with the time when each began.
        self._under_way: dict[Replica, tuple[Run, float]] = {}
        self._is_settled = False

    def allow(self, replica: Replica, error: NnrtError) -> bool:
        """Record a failed attempt. Return whether another one is allowed."""
        supply = self._supply
        self._tried[replica] = error.copy()  # A copy has no frames, which would keep inputs alive.
        if isinstance(error, TimedOut):
            supply.count_run(replica, self._elapsed_s)
        if not supply.is_open or self._has_tensors:
            return False
        if replica.is_freed and isinstance(error, OperationForbidden | OperationFailed):
            return True  # The replica was closed meanwhile.
        if isinstance(error, OutOfMemory):
            had_no_room, self._had_no_room = self._had_no_room, True
            return not had_no_room and any(one not in self._tried for one in supply.serving)
        if not isinstance(error, _DEVICES_FAILURES):
            return False
        supply.count_failure(replica)
        if not is_of_unsent(error):
            self._left -= 1
        return self._left >= 0 and time.monotonic() < self.run.deadline

    def start(self) -> None:
        """Start the first attempt, or the next one if a replica has failed before.

        Raises:
            NnrtError: The first attempt found, before anything was sent, that the run is invalid. The run has not
                ended.
        """
        replica = None if self._tried else self._supply.choose()
        if replica is None:
            self._try_next()
            return
        try:
            self._begin(replica)
        except NnrtError as error:
            if raised_by_handler(error):
                raise
            if not self.allow(replica, error):
                self.run.link = None  # No attempt is under way.
                raise
            self._try_next()

    def resume(self) -> None:
        """Continue after a wait: start an attempt if there is a replica, or fail if the time is over."""
        if self._supply.choose() is not None:
            self._try_next()
        elif self._supply.is_open and time.monotonic() < self.waits_until:
            self._park()
        else:
            self.fail(self._no_replica_error())

    def hedge(self) -> bool:
        """Start an attempt on a second device. Return False if the run has ended, or no other device is there."""
        with self._lock:
            busy = list(self._under_way)
        replica = self._supply.choose_another(busy)
        if self._is_over or len(busy) != 1 or replica is None or replica in busy:
            return False
        try:
            self._begin(replica)
        except NnrtError as error:
            self.allow(replica, error)
        return True

    def fail(self, error: BaseException) -> None:
        """End the run with this error, and cancel its attempts."""
        self._end(None, error)

    def stop(self) -> None:
        """End a cancelled run. A run with Tensors ends when its attempt has, and nothing writes to them any more."""
        if self._has_tensors and self._under_way:
            self._cancel_all()
        else:
            self._end(None, None)

    @property
    def _is_over(self) -> bool:
        return self._is_settled or self.run.given_up is not None

    def _try_next(self) -> None:
        while not self._is_over:
            replica = self._supply.choose_another(self._tried)
            if replica is None:
                self.waits_until = min(self.run.deadline, time.monotonic() + self._patience_s)
                self._park()
                return
            try:
                self._begin(replica)
                return
            except Exception as error:
                is_handlers = raised_by_handler(error)
                if is_handlers or not (isinstance(error, NnrtError) and self.allow(replica, error)):
                    self.fail(error)
                if is_handlers:
                    raise

    def _park(self) -> None:
        try:
            self._supply.park(self)
        except Exception as error:
            self.fail(error)
            if raised_by_handler(error):
                raise

    def _begin(self, replica: Replica) -> None:
        run, given, began = self.run, self.run.given, time.monotonic()
        if given is None:  # The run has ended meanwhile.
            return

        def attach(attempt: Run) -> bool:
            with self._lock:
                self._under_way[replica] = attempt, began
            return attempt.set_on_ended(partial(self._attempt_ended, replica, began))

        begin = partial(
            replica.dispatcher.begin, *given, run.remaining_ms or None, run.unwanted, attach, run.on_behalf_of
        )
        try:
            if run.context is None:
                begin()
            else:
                run.context.copy().run(begin)
        except BaseException:
            with self._lock:
                self._under_way.pop(replica, None)
            raise
        if self._is_over:  # The thread that ended the run may not have seen this attempt.
            self._cancel_all()
        elif self._hedger is not None and len(self._under_way) == 1 and not self._has_tensors:
            self._hedger.watch(self)

    def _attempt_ended(self, replica: Replica, began: float, attempt: Run) -> None:
        with self._lock:
            self._under_way.pop(replica, None)
            is_last = not self._under_way
        result, error = attempt.take()
        if self._is_over:
            self._end(None, None)
        elif result is not None:
            seconds = time.monotonic() - began
            if self._hedger is not None:
                self._hedger.count_run(seconds)
            self._supply.count_run(replica, seconds, result._queued_s)
            if (given := self.run.given) is not None:
                self._supply.offer(*given, self.run.unwanted)
            self._end(result, None)
        elif error is not None and not self.allow(replica, error):
            if is_last or not isinstance(error, _DEVICES_FAILURES):
                self._end(None, error)
        elif is_last:
            self._supply.begin_soon(self._try_next)

    def _cancel_all(self) -> list[tuple[Replica, float]]:
        """Cancel the attempts. Return the replicas of those that had not ended, with the time when each began."""
        with self._lock:
            left = list(self._under_way.items())
        reason = OperationFailed("its result is not needed")
        return [(replica, began) for replica, (attempt, began) in left if replica.dispatcher.cancel(attempt, reason)]

    def _end(self, result: RunResult[Any] | None, error: BaseException | None) -> None:
        """End the run once: with its result, an error, or the reason of its cancellation."""
        with self._lock:
            if self._is_settled:
                return
            self._is_settled = True
        for replica, began in self._cancel_all():
            if result is not None:  # A lower bound of the attempt's time.
                self._supply.count_run(replica, time.monotonic() - began)
        if result is not None:
            self.run.succeed(result)
        else:
            self.run.fail(nnrt_error_of(error or OperationFailed("the run was given up"), "the run could not be begun"))
        self.run.link = None  # Else a reference cycle keeps both until the garbage collector runs.

    def _no_replica_error(self) -> NnrtError:
        """Return the error of a run for which no replica came in time."""
        if self._supply.end_reason is not None:
            return self._supply.end_reason.copy()
        tried = "; ".join(f"{replica.candidate.address}: {error}" for replica, error in self._tried.items())
        missing = "; ".join(f"{address}: {error}" for address, error in self._supply.missing.items())
        return UnavailableDevice(
            f"no device of the pool has the model, since {self._elapsed_s:.1f} s; the run was tried on"
            f" {tried or 'none'}; why they don't have it: {missing or '`Pool.members` says it'}"
        )

    @property
    def _elapsed_s(self) -> float:
        return (perf_counter_ns() - self.run.stamps.began_ns) / 1e9


def has_tensors(inputs: Inputs, outputs: Targets | None) -> bool:
    """Return whether a run reads or writes memory of Tensors."""
    given = inputs.values() if isinstance(inputs, Mapping) else inputs
    return outputs is not None or any(isinstance(one, RunTensor) for one in given)
