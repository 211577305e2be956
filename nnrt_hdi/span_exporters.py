"""Exporters of spans, as OpenTelemetry's environment variables name them. Needs the extra `tracing`."""

import os
import sys
from importlib.metadata import entry_points

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
    OTEL_SERVICE_NAME,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from nnrt_hdi.errors import InvalidParameter

_OTEL_TRACES_EXPORTER = "OTEL_TRACES_EXPORTER"
_EXPORTERS = "opentelemetry_traces_exporter"


def provider_as_set(service: str, place: str, **about: str) -> TracerProvider:
    """Return the process's own tracer provider, if it was started with one, or a new one as the environment says.

    Args:
        service: Name of the service unless the environment has another.
        place: The option or variable that asks for spans.
        **about: Attributes of the process.

    Raises InvalidParameter if the environment names an exporter that isn't installed.
    """
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        return provider
    named = {} if os.environ.get(OTEL_SERVICE_NAME) else {"service.name": service}
    resource = Resource.create({**named, **about})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in filter(None, map(str.strip, os.environ.get(_OTEL_TRACES_EXPORTER, "otlp").split(","))):
        if name != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name, place)))
    return provider


def _line_of(span: ReadableSpan) -> str:
    return f"{span.to_json(indent=None)}\n"


def _exporter(name: str, place: str) -> SpanExporter:
    if name == "otlp":
        protocol = os.environ.get(OTEL_EXPORTER_OTLP_TRACES_PROTOCOL) or os.environ.get(OTEL_EXPORTER_OTLP_PROTOCOL)
        name = "otlp_proto_http" if protocol == "http/protobuf" else "otlp_proto_grpc"
    found = tuple(entry_points(group=_EXPORTERS, name=name))
    if not found:
        known = ", ".join(sorted(point.name for point in entry_points(group=_EXPORTERS)))
        raise InvalidParameter(
            f"no exporter {name!r} is installed for {_OTEL_TRACES_EXPORTER}; there is {known}. Install"
            " opentelemetry-exporter-otlp for `otlp`, or set it to another one, or to `none`",
            place=place,
        )
    # The console exporter writes to stderr, one line for each span: a supervisor keeps stderr with the log, not stdout.
    options = {"out": sys.stderr, "formatter": _line_of} if name == "console" else {}
    try:
        exporter: SpanExporter = found[0].load()(**options)
    except Exception as error:
        raise InvalidParameter(f"the exporter {name!r} can't be made: {error!r}", place=place) from error
    return exporter
