"""`nnrt bench`: measure a device running a model, by the number of runs in flight."""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nnrt_client.build.options import Options
from nnrt_client.cli.bench_page import bench_page
from nnrt_client.cli.closed_loop import WINDOWS, ClosedLoop, Measurement, Rule
from nnrt_client.cli.inputs import gathered
from nnrt_client.cli.options import (
    POSITIVE,
    Number,
    Shapes,
    build_timeout_option,
    building_options,
    cache_option,
    device_option,
    input_option,
    json_option,
    model_argument,
    opened,
    run_timeout_option,
    runtime_for,
    seed_option,
    shape_option,
)
from nnrt_client.cli.printing import build_bar, print_json, print_line, print_table, step_bar
from nnrt_client.model_session.load import open_session
from nnrt_client.settings import Settings
from nnrt_hdi.files import container

_RANGE = re.compile(r"(\d+)(?::(\d+)(?::(\d+))?)?")
_MOST_IN_FLIGHT = 1024
_PERCENTILES = (50.0, 90.0, 95.0, 99.0)


class _Sweep(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # Generic from click 8.4 on.
    """START, START:END or START:END:STEP."""

    name = "START[:END[:STEP]]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        match = _RANGE.fullmatch(value)
        start, end, step = (int(part) if part else None for part in match.groups()) if match else (0, None, None)
        sweep = range(start or 0, (start or 0) + 1 if end is None else end + 1, 1 if step is None else max(step, 1))
        if not match or step == 0 or not sweep or sweep[0] < 1 or sweep[-1] > _MOST_IN_FLIGHT:
            self.fail(f"{value!r} is not {self.name} with numbers in 1..{_MOST_IN_FLIGHT}.", param, ctx)
        return sweep


@click.command()
@model_argument
@device_option()
@input_option
@shape_option
@seed_option
@click.option(
    "--concurrency", type=_Sweep(), default="1", show_default=True, help="Numbers of runs in flight to measure with."
)
@click.option(
    "--percentile",
    type=Number(min=0, max=100, min_open=True),
    help="Have this percentile of the latency be stable instead of its mean, and show it.",
)
@click.option("--window", type=POSITIVE, default=1.0, show_default=True, help="Seconds of a measurement window.")
@click.option(
    "--max-windows",
    type=click.IntRange(min=WINDOWS),
    default=10,
    show_default=True,
    help="Windows after which it counts as unstable.",
)
@click.option("--stability", type=POSITIVE, default=10.0, show_default=True, help="Percent that windows may differ.")
@run_timeout_option(60.0)
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write the table as CSV.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write a page with plots.")
@building_options
@cache_option
@build_timeout_option
@json_option
def bench(
    model: Path,
    device: str | None,
    given: tuple[str, ...],
    shapes: Shapes,
    seed: int,
    concurrency: range,
    percentile: float | None,
    window: float,
    max_windows: int,
    stability: float,
    run_timeout_ms: int,
    csv_file: Path | None,
    html_file: Path | None,
    options: Options,
    cache: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure how MODEL runs with some runs always in flight: throughput, and percentiles of the latency.

    Each number of runs in flight is measured in windows until the last three differ by at most --stability percent from
    their mean, in throughput and latency; those three are what is shown. Inputs without --input are random.
    """
    rule = Rule(window, max_windows, stability / 100, percentile)
    with runtime_for(device, Settings(build_timeout_s=timeout)) as runtime:
        for file in filter(None, (csv_file, html_file)):
            container.require_place(file)
        found = opened(model, shapes)
        inputs = gathered(found.inputs, given, dict(shapes), seed)
        with build_bar() as progress:
            session = open_session(found, device, options, runtime=runtime, cache=cache, progress=progress)
        with session:
            with step_bar(max_windows * len(concurrency)) as steps:
                measured = []
                for runs in concurrency:
                    steps.begin(f"{runs} in flight")
                    measured.append(ClosedLoop(session, inputs, runs, run_timeout_ms).measure(rule, steps.end))
            asked = session.device.name
    percentiles = sorted({*_PERCENTILES, *([percentile] if percentile else [])})
    rows = [_row(one, percentiles) for one in measured]
    if csv_file:
        container.write(csv_file, [_csv(rows)])
    if html_file:
        container.write(html_file, [bench_page(f"{model.name} on {asked}", measured, rows, percentiles).encode()])
    if as_json:
        print_json({"device": asked, "model": str(model), "seed": seed, "measurements": rows})
    else:
        columns = [column for column in rows[0] if column != "stable"]
        print_table(
            [column.replace("_", " ") for column in [*columns, "stable"]],
            [[*(f"{row[column]:.6g}" for column in columns), "yes" if row["stable"] else "no"] for row in rows],
            right=[column.replace("_", " ") for column in columns],
        )
        _say_where_unstable(measured, rule)


def _row(one: Measurement, percentiles: Sequence[float]) -> dict[str, Any]:
    return {
        "concurrency": one.concurrency,
        "runs_per_s": round(one.runs_per_s, 3),
        "mean_ms": round(one.mean_ms, 4),
        **{f"p{percentile:g}_ms": round(one.percentile_ms(percentile), 4) for percentile in percentiles},
        "runs": len(one.latencies_s),
        "windows": one.windows,
        "stable": one.is_stable,
    }


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _say_where_unstable(measured: Sequence[Measurement], rule: Rule) -> None:
    unstable = [str(one.concurrency) for one in measured if not one.is_stable]
    if unstable:
        print_line(
            f"not stable with {', '.join(unstable)} in flight: after {rule.most_windows} windows the last {WINDOWS}"
            f" differ by more than {rule.tolerance * 100:g} %; try a longer --window"
        )
