"""Spans of OpenTelemetry for runs, in client and daemon. Imported only with traces; needs the extra `tracing`."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nnrt_hdi.errors import Failure

_log = logging.getLogger(__name__)

RUN, DEVICE_RUN, POOLED_RUN, BUILD = "nnrt.run", "nnrt.device.run", "nnrt.pool.run", "nnrt.build"

_PROPAGATOR = TraceContextTextMapPropagator()
# Length of a traceparent of version 00.
_TRACEPARENT_LENGTH = 55
# Shorter parts get no span: making one takes longer.
LEAST_NS = 20_000
# Runs that may wait for their spans.
_MOST_WAITING = 4096
# Spans are made this long after their runs, many at a time, to disturb runs seldom.
_PAUSE_S = 0.1
_WARN_AGAIN_S = 10.0
# Runs that end with the backlog still arrive within this time.
_LAST_S = 0.5


def traceparent_of(span: Span) -> str:
    """Return the W3C Trace Context of a span."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def parent_of(metadata: Mapping[str, Any]) -> contexts.Context | None:
    """Return the context of the parent span that the metadata name, or None if they name none or an invalid one."""
    traceparent = metadata.get("traceparent")
    if not isinstance(traceparent, str) or len(traceparent) != _TRACEPARENT_LENGTH:
        return None
    context = _PROPAGATOR.extract({name: metadata[name] for name in _PROPAGATOR.fields if name in metadata})
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def add_parts(tracer: Tracer, parent: Span, began_ns: int, parts: Iterable[tuple[str, int]]) -> None:
    """Make spans of consecutive parts, given by name (see PARTS) and nanoseconds."""
    context = trace.set_span_in_context(parent)
    for name, took_ns in parts:
        if took_ns >= LEAST_NS:
            tracer.start_span(f"nnrt.{name}", context, start_time=began_ns).end(began_ns + took_ns)
            time.sleep(0)  # Let waiting threads run first.
        began_ns += took_ns


def add_error(span: Span, failure: Failure, at_ns: int) -> None:
    """Record a failure in a span."""
    span.set_status(trace.StatusCode.ERROR, failure.message)
    span.set_attribute("nnrt.result", failure.code)
    if failure.request_id:
        span.set_attribute("nnrt.request", failure.request_id)
    span.add_event("exception", {"exception.type": failure.kind, "exception.message": failure.message}, at_ns)


def wall_ns(counter_ns: int) -> int:
    """Convert a recent time of time.perf_counter_ns() to a time of time.time_ns()."""
    return time.time_ns() - (time.perf_counter_ns() - counter_ns)


class Backlog:
    """Backlog of spans that a thread makes after their runs.

    Making a span takes as long as a small run, so a run only leaves a function here.
    """

    def __init__(self, name: str, most_per_s: float = math.inf) -> None:
        """Start the thread, which takes at most `most_per_s` runs per second. Not called in a client's main thread."""
        self._most_at_once = most_per_s * _PAUSE_S
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._is_ending = threading.Event()
        self._left_out = 0
        self._warned_at = -math.inf
        self._thread = threading.Thread(target=self._make, name=name, daemon=True)
        self._thread.start()

    def put(self, make: Callable[[], object]) -> None:
        """Let the thread call a function soon, unless too many wait. Takes no lock; any thread may call this."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(make)
        else:
            self._left_out += 1

    def end(self) -> None:
        """Let the thread end when it has made everything that arrives soon. Idempotent."""
        self._waiting.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, at most `timeout_s`."""
        self._is_ending.set()
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def _make(self) -> None:
        patience_s: float | None = None
        while True:
            try:
                make = self._waiting.get(timeout=patience_s)
            except queue.Empty:
                return
            self._is_ending.wait(_PAUSE_S)
            left = math.inf if self._is_ending.is_set() else self._most_at_once
            while make is not None:
                try:
                    make()
                except Exception:
                    _log.exception("the spans of a run could not be made")
                time.sleep(0)  # Let waiting threads run first.
                left -= 1
                if left < 1:
                    break
                try:
                    make = self._waiting.get_nowait()
                except queue.Empty:
                    break
            else:
                patience_s = 0.0 if self._is_ending.is_set() else _LAST_S
            if self._left_out and time.monotonic() - self._warned_at > _WARN_AGAIN_S:
                self._warned_at = time.monotonic()
                left_out, self._left_out = self._left_out, 0
                _log.warning("%d runs were left out of the traces: there were too many at a time", left_out)
