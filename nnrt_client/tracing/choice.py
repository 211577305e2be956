"""Choice of the tracer: OpenTelemetry's, which needs the extra `tracing`, or that of a `use_tracer` block."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

from nnrt_client.tracing.tracer import Tracer
from nnrt_hdi.errors import InvalidParameter

_other: Tracer | None = None


def require_open_telemetry(place: str) -> None:
    """Raise InvalidParameter if OpenTelemetry is not installed."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        raise InvalidParameter(
            "OpenTelemetry is not installed; pip install 'nnrt[tracing]', or leave it off", place=place
        )


def tracer_of(is_on: bool) -> Tracer | None:
    """Return the tracer of a `use_tracer` block, else OpenTelemetry's if tracing is on, else None."""
    if _other is not None or not is_on:
        return _other
    tracer: Tracer = import_module("nnrt_client.tracing.open_telemetry").OpenTelemetryTracer()
    return tracer


@contextmanager
def use_tracer(tracer: Tracer) -> Iterator[None]:
    """Use this tracer for all sessions, builds and pools that begin in this block, in the whole process."""
    global _other
    former, _other = _other, tracer
    try:
        yield
    finally:
        _other = former
