"""Spans of OpenTelemetry for calls: parents of the client's spans, and children of the callers'. Needs `tracing`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

from nnrt_client.serving.call import Call
from nnrt_hdi import __version__
from nnrt_hdi.errors import Failure
from nnrt_hdi.span_exporters import provider_as_set
from nnrt_hdi.spans import add_error, parent_of


class RequestSpans:
    """Maker of spans for calls. The SDK's environment variables, OTEL_*, say where they go."""

    def __init__(self, place: str) -> None:
        """Set up the process' tracer. Raises InvalidParameter if the environment names an exporter that isn't there."""
        self._provider = provider_as_set("nnrt-serve", place)
        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            trace.set_tracer_provider(self._provider)
        self._tracer = self._provider.get_tracer("nnrt_client", __version__)

    @contextmanager
    def span(self, call: Call) -> Iterator[None]:
        """Make the span of a call, which is the current one during the block."""
        parent = parent_of(call.metadata)
        about = {"nnrt.face": call.face, "client.address": call.host}
        with self._tracer.start_as_current_span(
            f"nnrt.serve.{call.name}",
            parent,
            SpanKind.SERVER,
            about,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Exception as error:
                add_error(span, Failure.of(error), time.time_ns())
                raise
            finally:
                known = {
                    "identity": "" if call.identity is None else str(call.identity),
                    "model": call.model,
                    "version": call.version,
                    "request": call.id,
                }
                span.set_attributes({f"nnrt.{name}": value for name, value in known.items() if value})

    def close(self) -> None:
        """Export the spans that are left."""
        self._provider.shutdown()
