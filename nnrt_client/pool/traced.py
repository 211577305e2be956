"""Runs of a pool that a tracer is told of, with their attempts in them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from nnrt_client.pool.attempts import Rule
from nnrt_client.pool.hedging import Hedger
from nnrt_client.pool.pooled_run import PooledRun
from nnrt_client.pool.replica import Replica, has_tensors
from nnrt_client.pool.replicated_executor import ReplicatedExecutor
from nnrt_client.pool.supply import Supply
from nnrt_client.run.base_executor import Targets
from nnrt_client.run.result import RunResult
from nnrt_client.run.signature import Inputs
from nnrt_client.tracing.tracer import Tracer


class TracedPooledRun(PooledRun):
    """Its attempts are made in the context of the run, whichever thread makes them."""

    def __init__(self, tracer: Tracer, *arguments: Any) -> None:
        self._traced = tracer.begin_pooled_run()
        super().__init__(*arguments)

    def _begin(self, replica: Replica) -> None:
        self._traced.context.copy().run(super()._begin, replica)

    def _end(self, result: Any, error: BaseException | None) -> bool:
        is_end = super()._end(result, error)
        if is_end:
            self._traced.end(error)
        return is_end


class TracedReplicatedExecutor(ReplicatedExecutor):
    """Tells a tracer of its runs."""

    def __init__(self, tracer: Tracer, supply: Supply, rule: Rule, hedger: Hedger | None = None) -> None:
        super().__init__(supply, rule, hedger)
        self._tracer = tracer
        self._pooled_run = partial(TracedPooledRun, tracer)

    def _run(
        self, inputs: Inputs, outputs: Targets | None, timeout_ms: int | None, unwanted: Sequence[int] = ()
    ) -> RunResult[Any]:
        run = partial(super()._run, inputs, outputs, timeout_ms, unwanted)
        if self._hedger is not None and not has_tensors(inputs, outputs):
            return run()  # By `_submit`.
        traced = self._tracer.begin_pooled_run()
        try:
            result = traced.context.run(run)
        except BaseException as error:
            traced.end(error)
            raise
        traced.end(None)
        return result


def executor_of(supply: Supply, rule: Rule, hedger: Hedger | None, tracer: Tracer | None) -> ReplicatedExecutor:
    """Make the executor of a pool, which tells a tracer of its runs if there is one."""
    if tracer is None:
        return ReplicatedExecutor(supply, rule, hedger)
    return TracedReplicatedExecutor(tracer, supply, rule, hedger)
