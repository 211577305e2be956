"""OpenTelemetry spans of runs and calls that clients trace. Imported only with `--traces`; needs the extra `tracing`.

The daemon makes a span only as a child of a client's span, whose traceparent must be valid (W3C Trace Context). The
SDK's environment variables, OTEL_*, say where spans go and how they are sampled.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from nnrt_device_service.device import Device
from nnrt_device_service.runs.replies import Times
from nnrt_device_service.runs.run import Run
from nnrt_device_service.transport.grpc.interceptor import OUR_SERVICES, arity_of
from nnrt_hdi import __version__
from nnrt_hdi.errors import Failure
from nnrt_hdi.run_times import IN_DAEMON, PARTS
from nnrt_hdi.span_exporters import provider_as_set
from nnrt_hdi.spans import DEVICE_RUN, Backlog, add_error, add_parts, parent_of, wall_ns

_PLACE = "--traces"
# Most runs per second that get spans: making more would slow down other clients' runs.
_MOST_PER_S = 500
# Seconds that the remaining spans get to be exported when the daemon ends.
_LAST_S = 3.0


class Traces:
    """Recorder of spans, with a thread of its own."""

    def __init__(self, device: Device) -> None:
        """Make the exporters; raise InvalidParameter if the environment names one that isn't installed."""
        self._provider = provider_as_set("nnrt-device", _PLACE, **{"nnrt.device": device.info.device_name})
        self.tracer = self._provider.get_tracer("nnrt_device_service", __version__)
        self._backlog = Backlog("traces", _MOST_PER_S)
        self._device_name = device.info.device_name

    @property
    def interceptor(self) -> "TracingInterceptor":
        """New interceptor that makes spans of calls."""
        return TracingInterceptor(self)

    def record_success(self, run: Run, times: Times) -> None:
        """Record the span of a run whose reply has just been made."""
        received_at_ns, *within_ns, served_ns = times
        parts_ns = max(served_ns - sum(within_ns), 0), *within_ns
        self._backlog.put(partial(self._make, *self._about(run), received_at_ns, served_ns, parts_ns))

    def record_failure(self, run: Run, error: BaseException) -> None:
        """Record the span of a run that has just failed."""
        began_ns = run.received_at_ns
        took_ns = time.perf_counter_ns() - began_ns
        failure = Failure.of(error)
        self._backlog.put(partial(self._make, *self._about(run), began_ns, took_ns, (), failure))

    def close(self) -> None:
        """Export the remaining spans, within a few seconds."""
        self._backlog.join(_LAST_S)
        leaving = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        leaving.start()
        leaving.join(_LAST_S)

    def _about(self, run: Run) -> tuple[str, Mapping[str, str | int]]:
        assert run.description is not None
        return run.description.traceparent, {
            "nnrt.device": self._device_name,
            "nnrt.session": run.session.label,
            "nnrt.identity": str(run.payer.identity),
            "nnrt.model": run.description.model_id,
            "nnrt.run": run.id,
        }

    def _make(
        self,
        traceparent: str,
        about: Mapping[str, str | int],
        began_ns: int,
        took_ns: int,
        parts_ns: tuple[int, ...],
        failure: Failure | None = None,
    ) -> None:
        parent = parent_of({"traceparent": traceparent})
        if parent is None:
            return
        began_ns = wall_ns(began_ns)
        span = self.tracer.start_span(DEVICE_RUN, parent, SpanKind.SERVER, about, start_time=began_ns)
        if span.is_recording():
            if failure is None:
                span.set_attribute("nnrt.result", "SUCCESS")
                add_parts(self.tracer, span, began_ns, zip(PARTS[IN_DAEMON], parts_ns, strict=True))
            else:
                add_error(span, failure, began_ns + took_ns)
            span.end(began_ns + took_ns)


class TracingInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Interceptor that makes a span of each call that is part of a client's span."""

    def __init__(self, traces: Traces) -> None:
        self._tracer = traces.tracer

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        parent = parent_of(dict(details.invocation_metadata))
        if handler is None or parent is None or not details.method.startswith(OUR_SERVICES):
            return handler
        service, _, method = details.method[1:].partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        begin = partial(
            self._tracer.start_span, details.method[1:], parent, kind=SpanKind.SERVER, attributes=attributes
        )
        arity, wrapped = arity_of(handler), _traced_stream if handler.response_streaming else _traced
        return handler._replace(**{arity: wrapped(getattr(handler, arity), begin)})


def _traced(behavior: Callable[[Any, Any], Any], begin: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    def call(request: Any, context: Any) -> Any:
        with _ending(begin()) as span, trace.use_span(span, record_exception=False, set_status_on_exception=False):
            return behavior(request, context)

    return call


def _traced_stream(
    behavior: Callable[[Any, Any], Any], begin: Callable[[], Any]
) -> Callable[[Any, Any], Iterator[Any]]:
    def call(request: Any, context: Any) -> Iterator[Any]:
        with _ending(begin()):
            yield from behavior(request, context)

    return call


@contextmanager
def _ending(span: trace.Span) -> Iterator[trace.Span]:
    """End the span of a call with the block, with the block's error if there is one."""
    try:
        yield span
    except Exception as error:
        add_error(span, Failure.of(error), time.time_ns())
        raise
    finally:
        span.end()
