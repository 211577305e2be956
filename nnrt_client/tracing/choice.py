"""Choice of the tracer: OpenTelemetry, which needs the extra `tracing`, or another one in its place."""

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
    """Return the tracer that the settings ask for, or None."""
    if _other is not None or not is_on:
        return _other
    tracer: Tracer = import_module("nnrt_client.tracing.open_telemetry").OpenTelemetryTracer()
    return tracer


@contextmanager
def telling(tracer: Tracer) -> Iterator[None]:
    """Use another tracer for everything that begins in this block, in the whole process."""
    global _other
    former, _other = _other, tracer
    try:
        yield
    finally:
        _other = former
