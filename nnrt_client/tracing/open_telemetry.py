"""OpenTelemetry spans of runs and builds. The application configures their export."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from time import perf_counter_ns, time_ns

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nnrt_client.tracing.tracer import (
    BuildTrace,
    Metadata,
    Outcome,
    RunTrace,
    SessionTracer,
    Site,
    Stage,
    Tracer,
)
from nnrt_hdi import __version__
from nnrt_hdi.errors import Failure
from nnrt_hdi.run_times import IN_DAEMON, PARTS, RunTimes
from nnrt_hdi.spans import (
    BUILD,
    DEVICE_RUN,
    POOLED_RUN,
    RUN,
    Backlog,
    add_error,
    add_parts,
    traceparent_of,
    wall_ns,
)

# Limit of spans per second and session for runs without a parent span, because a span takes longer than a small run.
ALONE_PER_S = 100
_SECOND_NS = 10**9

# The process's tracer. OpenTelemetry returns a proxy, so the application may configure it later.
_tracer = trace.get_tracer("nnrt_client", __version__)
_PROPAGATOR = TraceContextTextMapPropagator()


class OpenTelemetryTracer(Tracer):
    """Tracer that makes a span for each run, build and RPC, as a child of the current span."""

    def of_session(self, site: Site) -> SessionTracer:
        return _SessionSpans(site)

    def begin_build(self) -> BuildTrace:
        return _BuildSpan()

    def begin_pooled_run(self) -> RunTrace:
        return _PooledRunSpan()


class _BuildSpan(BuildTrace):
    """Span of a build, the parent of the spans of its RPCs."""

    def __init__(self) -> None:
        self._began_ns = perf_counter_ns()
        self._span, self.context = _begun(BUILD, self._began_ns)

    def end(self, error: BaseException | None, stages: Sequence[Stage] = (), **about: str | int) -> None:
        span = self._span
        span.set_attributes({f"nnrt.{name}": value for name, value in about.items()})
        if error is not None:
            add_error(span, Failure.of(error), time_ns())
        here = trace.set_span_in_context(span)
        for stage in stages:
            began_ns = wall_ns(max(stage.began_ns, self._began_ns))
            _tracer.start_span(f"nnrt.{stage.name}", here, start_time=began_ns).end(wall_ns(stage.ended_ns))
        span.end()


class _PooledRunSpan(RunTrace):
    """Span of a pool's run, the parent of the spans of its attempts."""

    def __init__(self) -> None:
        self.began_ns = perf_counter_ns()
        self._span, self.context = _begun(POOLED_RUN, self.began_ns)

    def end(self, outcome: Outcome) -> None:
        if outcome.failure is not None:
            add_error(self._span, outcome.failure, time_ns())
        self._span.end()


def _begun(name: str, began_ns: int) -> tuple[trace.Span, Context]:
    """Start a span. Return it with a context in which it is the current span."""
    span, context = _tracer.start_span(name, start_time=wall_ns(began_ns)), copy_context()
    context.run(contexts.attach, trace.set_span_in_context(span))
    return span, context


class _SessionSpans(SessionTracer):
    def __init__(self, site: Site) -> None:
        self.site = site
        self.backlog = Backlog(f"nnrt-traces {site.address}")
        self.attributes = {
            "nnrt.device": site.device,
            "nnrt.session": site.session,
            "server.address": site.address,
        }
        # When the next run without a parent may have a span. Spans unused in the last second may be used later.
        self._next_ns = 0

    def begin_run(self) -> RunTrace | None:
        """Begin the trace of a run if its parent span is sampled, or if it has no parent and the rate limit allows."""
        began_ns, parent = perf_counter_ns(), trace.get_current_span().get_span_context()
        if parent.is_valid:
            return _RunSpan(self, began_ns) if parent.trace_flags.sampled else None
        if self._next_ns > began_ns:
            return None
        self._next_ns = max(self._next_ns, began_ns - _SECOND_NS) + _SECOND_NS // ALONE_PER_S
        return _RunSpan(self, began_ns)

    @contextmanager
    def calling(self, method: str) -> Iterator[Metadata]:
        """Record an RPC as a span, unless there is no parent span, as for RPCs that free memory."""
        if not trace.get_current_span().get_span_context().is_valid:
            yield ()
            return
        service, _, name = method.partition(".")
        attributes = {"rpc.system": "grpc", "rpc.service": f"nnrt_hdi.v2.{service}", "rpc.method": name}
        span = _tracer.start_span(
            f"nnrt_hdi.v2.{service}/{name}", kind=SpanKind.CLIENT, attributes={**self.attributes, **attributes}
        )
        try:
            carrier: dict[str, str] = {}
            if self.site.makes_spans:
                _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
            yield tuple(carrier.items())
        except Exception as error:
            add_error(span, Failure.of(error), time_ns())
            raise
        finally:
            span.end()

    def end(self) -> None:
        self.backlog.end()

    def join(self, timeout_s: float) -> None:
        self.backlog.join(timeout_s)


class _RunSpan(RunTrace):
    """Span of a run, made after the run's end. Only if the daemon makes child spans is it started with the run."""

    def __init__(self, session: _SessionSpans, began_ns: int) -> None:
        self.began_ns = began_ns
        self._session = session
        self._parent = contexts.get_current()
        self._span: Span | None = None
        self.fields = {}
        if session.site.makes_spans:
            self._span = self._begun(wall_ns(began_ns))
            self.fields = {"traceparent": traceparent_of(self._span)}

    def end(self, outcome: Outcome) -> None:
        self._session.backlog.put(partial(self._make, outcome))

    def _begun(self, began_ns: int) -> Span:
        return _tracer.start_span(
            RUN, self._parent, SpanKind.CLIENT, attributes=self._session.attributes, start_time=began_ns
        )

    def _make(self, outcome: Outcome) -> None:
        began_ns, ended_ns = wall_ns(outcome.began_ns), wall_ns(outcome.ended_ns)
        span = self._span or self._begun(began_ns)
        if not span.is_recording():
            return
        span.set_attributes(
            {
                "nnrt.model": outcome.model_id,
                "nnrt.run": outcome.run_id,
                "nnrt.input_bytes": outcome.input_bytes,
                "nnrt.output_bytes": outcome.output_bytes,
            }
        )
        if outcome.failure is not None:
            add_error(span, outcome.failure, ended_ns)
        else:
            times = outcome.times()
            span.set_attribute("nnrt.result", "SUCCESS")
            self._add_parts(span, began_ns, times)
            ended_ns = began_ns + times.total_ns
        span.end(ended_ns)

    def _add_parts(self, span: Span, began_ns: int, times: RunTimes) -> None:
        """Make a span of each stage. If the daemon makes no spans, make its span and those of its stages, too."""
        parts = list(zip(PARTS, times, strict=True))
        before, within, behind = parts[: IN_DAEMON.start], parts[IN_DAEMON], parts[IN_DAEMON.stop :]
        add_parts(_tracer, span, began_ns, before)
        arrived_ns = began_ns + sum(took_ns for _, took_ns in before)
        left_ns = arrived_ns + sum(took_ns for _, took_ns in within)
        if not self._session.site.makes_spans:
            device = _tracer.start_span(DEVICE_RUN, trace.set_span_in_context(span), start_time=arrived_ns)
            add_parts(_tracer, device, arrived_ns, within)
            device.end(left_ns)
        add_parts(_tracer, span, left_ns, behind)
