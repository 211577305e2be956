"""The page of a benchmark: its table, and plots of throughput and latency."""

from collections.abc import Sequence
from typing import Any

from nnrt_client.cli.measuring import Measurement
from nnrt_client.cli.page import page, table
from nnrt_client.cli.plot import line_plot, share_bars
from nnrt_client.cli.run_parts import labelled

_AXES = {"concurrency": "runs in flight", "rate": "runs per second asked for"}


def bench_page(
    title: str, measured: Sequence[Measurement], rows: Sequence[dict[str, Any]], percentiles: Sequence[float]
) -> str:
    """One page that stands alone."""
    xs = [one.load for one in measured]
    axis = next(text for kind, text in _AXES.items() if kind in rows[0])
    latencies = {
        "mean": [one.mean_ms for one in measured],
        **{f"p{percentile:g}": [one.percentile_ms(percentile) for one in measured] for percentile in percentiles},
    }
    shown_rows = [[_cell(cell) for cell in row.values()] for row in rows]
    return page(
        title,
        "\n".join(
            [
                "<h2>Throughput</h2>",
                line_plot(xs, {"runs/s": [one.runs_per_s for one in measured]}, axis, "runs per second"),
                "<h2>Latency</h2>",
                line_plot(xs, latencies, axis, "milliseconds"),
                *_where_time_went(measured, axis),
                "<h2>Table</h2>",
                table([column.replace("_", " ") for column in rows[0]], shown_rows),
            ]
        ),
    )


def _where_time_went(measured: Sequence[Measurement], axis: str) -> list[str]:
    """Bars of the parts of runs; nothing where runs don't say."""
    bars = {
        f"{one.load:g} {axis}, {runs}: {times.total_ns / 1e6:.4g} ms": times
        for one in measured
        for runs, times in (("typical", one.typical), ("slowest 1 %", one.slow))
        if times is not None
    }
    return ["<h2>Where the time of a run went</h2>", share_bars(labelled(bars))] if bars else []


def _cell(value: Any) -> Any:
    return "yes" if value is True else "no" if value is False else "-" if value is None else value
