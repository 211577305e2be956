"""The page of a benchmark: its table, and plots of throughput and latency."""

from collections.abc import Sequence
from typing import Any

from nnrt_client.cli.closed_loop import Measurement
from nnrt_client.cli.page import page, table
from nnrt_client.cli.plot import line_plot

_IN_FLIGHT = "runs in flight"


def bench_page(
    title: str, measured: Sequence[Measurement], rows: Sequence[dict[str, Any]], percentiles: Sequence[float]
) -> str:
    """One page that stands alone."""
    xs = [one.concurrency for one in measured]
    latencies = {
        "mean": [one.mean_ms for one in measured],
        **{f"p{percentile:g}": [one.percentile_ms(percentile) for one in measured] for percentile in percentiles},
    }
    shown_rows = [["yes" if cell is True else "no" if cell is False else cell for cell in row.values()] for row in rows]
    return page(
        title,
        "\n".join(
            [
                "<h2>Throughput</h2>",
                line_plot(xs, {"runs/s": [one.runs_per_s for one in measured]}, _IN_FLIGHT, "runs per second"),
                "<h2>Latency</h2>",
                line_plot(xs, latencies, _IN_FLIGHT, "milliseconds"),
                "<h2>Table</h2>",
                table([column.replace("_", " ") for column in rows[0]], shown_rows),
            ]
        ),
    )
