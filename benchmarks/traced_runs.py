"""Measure what traces cost a small run.

    python benchmarks/traced_runs.py

The same client runs on the same daemon, traced and not: two daemons differ by more than that.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import get_tracer, set_tracer_provider
from report import Report, pair_cells
from small_run import KILOBYTE, device_daemon, runner_at

from nnrt_client import Settings

ROUNDS = 10
# About half a second.
RUNS = 5000

Span = Callable[[], AbstractContextManager[object]]


class _Nowhere(SpanExporter):
    """Counts spans."""

    exported = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.exported += len(spans)
        return SpanExportResult.SUCCESS


def measure() -> list[Report]:
    report = Report(
        "Traces",
        f"1 KB over the local socket: mean of {ROUNDS} rounds of {RUNS} runs of two sessions in turns, and the median"
        " of the rounds' ratios with their quartiles. In the first row neither session traces, which is the noise. In"
        " the last all runs are part of a sampled span of the application, so that each is traced, by a process"
        " that has nothing else to do.",
        ("", "off µs", "on µs", "ratio", "quartiles"),
    )
    exporter = _Nowhere()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    set_tracer_provider(provider)
    tracer = get_tracer(__name__)
    x = np.ones(KILOBYTE, np.float32)
    with (
        tempfile.TemporaryDirectory() as folder,
        device_daemon(f"unix:{folder}/device") as (at, _),
        runner_at(at, Settings(), x) as off,
        runner_at(at, Settings(), x) as off_too,
        runner_at(at, Settings(trace=True), x) as on,
    ):
        report.add("two that are not traced", *pair_cells(_in_turns(off, off_too)))
        report.add("traced, part of no span", *pair_cells(_in_turns(off, on)))
        each = _in_turns(off, on, lambda: tracer.start_as_current_span("application"))
        report.add("traced, each of them", *pair_cells(each))
    provider.shutdown()
    assert exporter.exported
    return [report]


def _in_turns(
    off: Callable[[], Any], on: Callable[[], Any], span: Span = lambda: nullcontext()
) -> list[tuple[float, float]]:
    """Means of both in each round; the second one's runs are part of a span."""
    pairs = []
    for _ in range(ROUNDS + 1):
        without = _mean_us(off)
        with span():
            pairs.append((without, _mean_us(on)))
        time.sleep(0.5)  # Spans that wait are made.
    return pairs[1:]  # The first one warms up.


def _mean_us(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    for _ in range(RUNS):
        run()
    return (time.perf_counter() - began) / RUNS * 1e6


if __name__ == "__main__":
    for report in measure():
        report.show()
