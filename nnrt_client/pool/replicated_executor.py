"""Running a model that several devices have."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from nnrt_client.pool.attempts import Attempts, Rule
from nnrt_client.pool.hedging import Hedger
from nnrt_client.pool.pooled_run import PooledRun
from nnrt_client.pool.replica import Replica, has_tensors
from nnrt_client.pool.supply import Supply
from nnrt_client.run.base_executor import BaseExecutor, Targets, require_timeout
from nnrt_client.run.future import Convert, RunFuture
from nnrt_client.run.result import RunResult
from nnrt_client.run.signature import Inputs
from nnrt_client.session.fork import LockOwner
from nnrt_hdi.errors import NnrtError, OperationFailed
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.tensor import TensorSpec


class ReplicatedExecutor(LockOwner, BaseExecutor):
    """Runs a model on whichever of its replicas is likely to be the soonest, from any number of threads."""

    # Makes the runs that no thread waits for.
    _pooled_run: Callable[..., PooledRun] = PooledRun

    def __init__(self, supply: Supply, rule: Rule, hedger: Hedger | None = None) -> None:
        """Closes what it is given."""
        self.supply = supply
        self._rule = rule
        self._hedger = hedger
        self._runs: set[PooledRun] = set()
        super().__init__()

    @property
    def _specs(self) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
        assert self.supply.specs is not None  # As soon as there is a replica, and before there is a session.
        return self.supply.specs

    @property
    def _is_living(self) -> bool:
        return self.supply.is_living

    def _run(
        self, inputs: Inputs, outputs: Targets | None, timeout_ms: int | None, unwanted: Sequence[int] = ()
    ) -> RunResult[Any]:
        """Raises what `Executor.run_sync` raises: UnavailableDevice where several devices have failed it, or none is
        there."""
        if self._hedger is not None and not has_tensors(inputs, outputs):
            hedged: RunResult[Any] = self._submit(inputs, outputs, timeout_ms, None, unwanted)._result_or_give_up()
            return hedged
        began_ns = time.perf_counter_ns()
        supply, began, attempts = self.supply, time.monotonic(), None
        replica, started, remaining_ms = supply.choose(), began, timeout_ms
        while True:
            if replica is None:
                attempts = attempts or self._attempts(began, timeout_ms, inputs, outputs)
                replica, started, remaining_ms = self._awaited(attempts), time.monotonic(), attempts.remaining_ms
            try:
                result = replica.executor._run(inputs, outputs, remaining_ms, unwanted)
            except NnrtError as error:
                if raised_by_handler(error):
                    raise
                attempts = attempts or self._attempts(began, timeout_ms, inputs, outputs)
                if not attempts.allow(replica, error):
                    raise
                replica = None
            else:
                supply.ran(replica, time.monotonic() - started, result._queued_s)
                supply.offer(inputs, outputs, unwanted)
                result._hand_on(began_ns)
                return result

    def _submit(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        convert: Convert | None,
        unwanted: Sequence[int] = (),
    ) -> "RunFuture[Any]":
        """Raises at once what is wrong with the run itself."""
        began_ns = time.perf_counter_ns()
        attempts = self._attempts(time.monotonic(), timeout_ms, inputs, outputs)
        arguments = inputs, outputs, unwanted
        run = self._pooled_run(self.supply, attempts, arguments, convert, self._runs, self._hedger, began_ns)
        try:
            run.start()
        except BaseException:
            run.give_up(OperationFailed("the run was given up"))
            raise
        return run.future

    def close(self) -> None:
        """End the runs in flight, and free the model everywhere. Idempotent."""
        self.supply.close()
        if self._hedger is not None:
            self._hedger.close()

    def _make_locks(self) -> None:
        """It has none."""

    def _enter_child(self, reason: NnrtError) -> None:
        for run in list(self._runs):
            run.fail_in_child(reason)
        self.supply.enter_child(reason)

    def _attempts(self, began: float, timeout_ms: int | None, inputs: Inputs, outputs: Targets | None) -> Attempts:
        if timeout_ms is not None:
            require_timeout(timeout_ms, "; without one run_timeout_s of the Settings holds")
        return Attempts(self.supply, self._rule, began, timeout_ms, has_tensors(inputs, outputs))

    def _awaited(self, attempts: Attempts) -> Replica:
        """The replica for the next attempt, as soon as there is one. Raises UnavailableDevice where none comes."""
        until = attempts.waits_until
        while (replica := attempts.next()) is None:
            remaining_s = until - time.monotonic()
            if remaining_s <= 0 or not self.supply.is_open:
                raise attempts.given_up()
            self.supply.wait(remaining_s)
        return replica
