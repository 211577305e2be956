"""Dispatcher of a model with replicas on several devices, or of a model that is reloaded when its daemon dies."""

from collections.abc import Sequence
from functools import partial
from time import monotonic, perf_counter_ns
from typing import Any

from nnrt_client.pool.attempts import Attempts, Rule
from nnrt_client.pool.hedging import Hedger
from nnrt_client.pool.supply import Supply
from nnrt_client.run.dispatcher import Dispatcher, Targets
from nnrt_client.run.result import RunResult
from nnrt_client.run.run import Run
from nnrt_client.run.signature import Inputs
from nnrt_client.run.traced_run import traced_run
from nnrt_client.session.fork import LockOwner
from nnrt_client.tracing.tracer import Tracer
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.signals import raised_by_handler


class PoolDispatcher(LockOwner, Dispatcher):
    """Dispatcher that sends each run to the replica that will likely finish it first.

    Each attempt of a run is a run of a replica's dispatcher.
    """

    def __init__(self, supply: Supply, rule: Rule, hedger: Hedger | None = None, tracer: Tracer | None = None) -> None:
        """Create it, and take over `supply` and `hedger`. The supply must have had a replica, to know the signature."""
        self.supply = supply
        self.patience_s = rule.patience_s
        self._attempts_of = partial(Attempts, supply, rule, hedger)
        # Whether each run needs a Run of the pool: for a second attempt at the same time, or for a trace.
        self._needs_pool_run = hedger is not None or tracer is not None
        self._hedger = hedger
        self.signature = supply.signature
        self.call_back = supply.call_back
        self.runs = set()
        make = Run if tracer is None else partial(traced_run, tracer.begin_pooled_run)
        self.new_run = partial(make, self.signature, self.runs)
        super().__init__()

    @property
    def death(self) -> NnrtError | None:
        return self.supply.end_reason

    def run(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        unwanted: Sequence[int] = (),
        on_behalf_of: str | None = None,
        run: Run | None = None,
    ) -> RunResult[Any]:
        """Make the first attempt in the calling thread. Create a Run of the pool only if that attempt fails."""
        supply = self.supply
        replica = None if self._needs_pool_run else supply.choose()
        if replica is not None:
            began_ns, began = perf_counter_ns(), monotonic()
            try:
                result = replica.dispatcher.run(inputs, outputs, timeout_ms, unwanted, on_behalf_of)
            except NnrtError as error:
                if raised_by_handler(error):
                    raise
                run = self.new_run()
                run.stamps.began_ns = began_ns
                if timeout_ms is not None:
                    run.limit(timeout_ms, began)
                self.fit(run, inputs, outputs)
                attempts = self._attempts_of(run)
                if not attempts.allow(replica, error):
                    raise
                run.link = attempts
                timeout_ms = run.remaining_ms or None
            else:
                supply.count_run(replica, monotonic() - began, result._queued_s)
                supply.offer(inputs, outputs, unwanted)
                result._hand_on(began_ns)
                return result
        return super().run(inputs, outputs, timeout_ms, unwanted, on_behalf_of, run)

    def fit(self, run: Run, inputs: Inputs, outputs: Targets | None) -> None:
        """Store inputs and outputs unchecked. The dispatcher of the replica checks them."""
        run.given = inputs, outputs

    def run_sync(self, run: Run) -> None:
        self.start(run)
        run.ended.wait()

    def start(self, run: Run) -> None:
        """Start the attempts. Raise the errors of an invalid run, which the first attempt finds."""
        attempts = run.link = run.link or self._attempts_of(run)
        attempts.start()
        self.give_up(run)  # The thread that cancelled the run may not have seen the attempts.

    def give_up(self, run: Run, *, is_left: bool = False) -> None:
        if (attempts := run.link) is not None and run.given_up is not None:
            attempts.stop()

    def close(self) -> None:
        """Free the model on all devices. Idempotent."""
        self.supply.close()
        if self._hedger is not None:
            self._hedger.close()

    def _enter_child(self, reason: NnrtError) -> None:
        for run in list(self.runs):
            run.fail_in_child(reason)
        self.supply.enter_child(reason)
