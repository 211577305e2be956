"""Run whose end is recorded in a trace."""

import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

from nnrt_client.run.reply import Reply
from nnrt_client.run.run import Run, Unpack
from nnrt_client.run.signature import Signature
from nnrt_client.run.stamps import Stamps
from nnrt_client.tracing.tracer import Outcome, RunTrace
from nnrt_hdi import wire
from nnrt_hdi.errors import Failure, NnrtError
from nnrt_hdi.run_times import RunTimes
from nnrt_hdi.signals import raised_by_handler


def traced_run(begin: Callable[[], RunTrace | None], signature: Signature, registry: set[Run], *details: Any) -> Run:
    """Create a run, traced if `begin`, a method of the tracer, returns a trace."""
    trace = begin()
    return Run(signature, registry, *details) if trace is None else TracedRun(trace, signature, registry, *details)


class TracedRun(Run):
    """Run that records its end in a trace, once. Its description also has the `fields` of the trace."""

    __slots__ = ("_operators", "_pending_traces", "context", "fields")

    def __init__(self, trace: RunTrace, *details: Any) -> None:
        super().__init__(*details)
        self.stamps.began_ns = trace.began_ns
        self.fields, self.context = trace.fields, trace.context
        # The trace until it ends, else empty. The thread that pops the trace ends it.
        self._pending_traces = [trace]
        self._operators: list[Any] = []

    def finish(self, unpack: Unpack, reply: Reply) -> None:
        if reply.outcome is not None:
            self._operators = wire.operator_times(reply.outcome)
        super().finish(unpack, reply)

    def fail(self, error: NnrtError) -> None:
        raised = sys.exc_info()[1]
        # A run that was never sent ends with the error that its caller raised.
        super().fail(raised if not self.id and isinstance(raised, NnrtError) else error)

    def _end(self) -> None:
        try:
            trace = self._pending_traces.pop()
        except IndexError as empty:
            if raised_by_handler(empty):
                raise
            super()._end()
            return
        began_ns, ended_ns, input_bytes = self.stamps.began_ns, perf_counter_ns(), self.size_bytes
        result, error = self._result, self._error
        specs = self.signature.outputs
        shapes = () if result is None else result.shapes
        output_bytes = sum(spec.with_shape(shape).byte_size for spec, shape in zip(specs, shapes, strict=False))
        if result is None:
            error = error or self.given_up
        super()._end()
        trace.end(
            Outcome(
                run_id=self.id,
                model_id=self.signature.model_id,
                began_ns=began_ns,
                ended_ns=ended_ns,
                times=partial(_own_times, self.stamps, began_ns),
                input_bytes=input_bytes,
                output_bytes=output_bytes,
                operators=self._operators,
                failure=None if error is None else Failure.of(error),
            )
        )


def _own_times(stamps: Stamps, began_ns: int) -> RunTimes:
    """Return the times of one attempt, without the time of earlier attempts before `began_ns`."""
    times = stamps.times()
    return times._replace(waited_ns=times.waited_ns - (began_ns - stamps.began_ns))
