"""Command `nnrt bench`: measure throughput and latency of a model on a device, by concurrency or request rate."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nnrt_client.build.options import Options
from nnrt_client.build.way import Way
from nnrt_client.cli.baseline import Baseline, Comparison
from nnrt_client.cli.closed_loop import ClosedLoop
from nnrt_client.cli.inputs import gather_inputs
from nnrt_client.cli.measuring import WINDOWS, Loop, Measurement, Rule, Runs
from nnrt_client.cli.open_loop import OpenLoop
from nnrt_client.cli.options import (
    FALLBACK_HELP,
    POSITIVE,
    Devices,
    FixedInputs,
    Number,
    batching_option,
    build_timeout_option,
    building_options,
    cache_option,
    devices_options,
    fallback_options,
    fixed_options,
    input_option,
    json_option,
    model_argument,
    run_timeout_option,
    seed_option,
    settings_with,
    way_option,
)
from nnrt_client.cli.printing import print_json, print_line, print_table, step_bar
from nnrt_client.cli.run_parts import MEANINGS, format_largest_parts, parts_ms
from nnrt_client.cli.sessions import describe_way, device_label, open_session, print_way
from nnrt_client.cli.spread import Spread
from nnrt_client.model_session.background_write import wait_until_cached
from nnrt_client.model_session.opened_model import is_onnx
from nnrt_client.model_session.partition.fallback import Fallback
from nnrt_hdi.batching import Batching
from nnrt_hdi.files import container

_RANGE = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_MOST_IN_FLIGHT = 1024
_PERCENTILES = (50.0, 90.0, 95.0, 99.0)
# The percentiles that fit on a terminal.
_PRINTED = (50.0, 90.0, 99.0)
_LOADS = {"concurrency": "in flight", "rate": "offered runs/s"}
_PARTS = ("queue", "transfer", "compute")


class _Sweep(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # Generic from click 8.4 on.
    """Click type of START, START:END or START:END:STEP."""

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
@devices_options
@input_option
@fixed_options
@way_option
@fallback_options(FALLBACK_HELP)
@seed_option
@click.option(
    "--concurrency", type=_Sweep(), default="1", show_default=True, help="Numbers of runs in flight to measure."
)
@click.option(
    "--rate", type=POSITIVE, help="Runs per second that arrive at random (Poisson), instead of a number in flight."
)
@click.option(
    "--baseline", is_flag=True, help="Also measure ONNX Runtime in this process, alternately, and show the ratio."
)
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of --baseline; give as many as the device. [default: all]"
)
@click.option(
    "--percentile",
    type=Number(min=0, max=100, min_open=True),
    help="Percentile of the latency that must be stable, instead of the mean; it is shown too.",
)
@click.option("--window", type=POSITIVE, default=1.0, show_default=True, help="Length of a window in seconds.")
@click.option(
    "--max-windows",
    type=click.IntRange(min=WINDOWS),
    default=10,
    show_default=True,
    help="Windows after which the measurement ends as unstable.",
)
@click.option("--stability", type=POSITIVE, default=10.0, show_default=True, help="Percent that windows may differ.")
@run_timeout_option(60.0)
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write the table as CSV.")
@building_options
@batching_option
@cache_option
@build_timeout_option
@json_option
def bench(
    model: Path,
    devices: Devices,
    given: tuple[str, ...],
    fixed: FixedInputs,
    ways: Sequence[Way],
    fallback: Fallback | None,
    seed: int,
    concurrency: range,
    rate: float | None,
    baseline: bool,
    threads: int | None,
    percentile: float | None,
    window: float,
    max_windows: int,
    stability: float,
    run_timeout_ms: int,
    csv_file: Path | None,
    options: Options,
    batching: Batching | None,
    cache: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure throughput and latency of MODEL at a concurrency (runs in flight) or at a request rate.

    Each load is measured in windows until throughput and latency of the last three windows differ by at most
    --stability percent from their mean; the results are those of these three windows. With --rate a run's latency
    counts from its scheduled start, and the throughput need not be stable. Inputs without --input are random; each open
    dimension without --shape is 1.
    """
    context = click.get_current_context()
    if rate is not None and context.get_parameter_source("concurrency") is not ParameterSource.DEFAULT:
        raise click.UsageError("--concurrency and --rate are two kinds of load; give one of them")
    rule = Rule(window, max_windows, stability / 100, percentile, counts_throughput=rate is None)
    settings = settings_with(build_timeout_s=timeout)
    options = replace(options, batching=batching)
    if csv_file:
        container.require_place(csv_file)
    if baseline and not is_onnx(model):
        raise click.UsageError(f"--baseline takes ONNX files, which {model} is not")
    in_process = Baseline(model, threads, fixed.constants) if baseline else None
    gather = partial(gather_inputs, given=given, shapes=fixed.shapes, seed=seed, takes_one=True)
    session, inputs = open_session(model, devices, settings, fixed, ways, fallback, options, gather, cache=cache)
    with session:
        runs = Runs(session, inputs, run_timeout_ms)
        loads: list[tuple[str, Loop]] = [(f"{count} in flight", ClosedLoop(runs, count)) for count in concurrency]
        if rate is not None:
            loads = [(f"{rate:g} per second", OpenLoop(runs, rate, seed))]
        spread = Spread(session)
        with step_bar(max_windows * len(loads)) as steps:
            measured = []
            for title, load in loads:
                steps.begin(title)
                measured.append(load.measure(rule, steps.end))
                spread.end_load()
        compared = None
        if in_process:
            compared = in_process.compare(partial(session.run, inputs, timeout_ms=run_timeout_ms), inputs)
        where = device_label(session)
        wait_until_cached()
    percentiles = sorted({*_PERCENTILES, *([percentile] if percentile else [])})
    kind = "concurrency" if rate is None else "rate"
    rows = [_row(kind, one, percentiles) for one in measured]
    whole_rows = [row | _parts_row(one) for row, one in zip(rows, measured, strict=True)]
    if csv_file:
        container.write(csv_file, [_csv(whole_rows)])
    if as_json:
        document = {"device": where, "model": str(model), "seed": seed, **describe_way(session)}
        document["measurements"] = whole_rows
        document |= {"spread": spread.describe(kind, rows)} if spread.loads else {}
        print_json(document | ({"baseline": compared.describe()} if compared else {}))
    else:
        _print(kind, measured, rows, sorted({*_PRINTED, *([percentile] if percentile else [])}))
        spread.print(_LOADS[kind], kind, rows)
        _say_where_unstable(kind, measured, rule)
        if compared:
            _print_comparison(compared, where)
        print_way(session)


def _row(kind: str, one: Measurement, percentiles: Sequence[float]) -> dict[str, Any]:
    parts = one.parts_ms or {}
    return {
        kind: one.load,
        "runs_per_s": round(one.runs_per_s, 3),
        "mean_ms": round(one.mean_ms, 4),
        **{f"p{percentile:g}_ms": round(one.percentile_ms(percentile), 4) for percentile in percentiles},
        **{f"{part}_ms": round(parts[part], 4) if parts else None for part in _PARTS},
        "runs": len(one.runs),
        "windows": one.windows,
        "stable": one.is_stable,
    }


def _parts_row(one: Measurement) -> dict[str, Any]:
    """Return the milliseconds of each part of a typical and of a slow run, or None if runs report no times."""
    return {
        f"{which}_{part}_ms": None if times is None else parts_ms(times)[part]
        for which, times in (("typical", one.typical), ("slow", one.slow))
        for part in MEANINGS
    }


def _print(
    kind: str, measured: Sequence[Measurement], rows: Sequence[dict[str, Any]], percentiles: Sequence[float]
) -> None:
    """Print two tables, each of which fits a terminal: throughput and latency, and the parts of a run's latency."""
    load = {kind: _LOADS[kind]}
    latency = {"mean_ms": "mean", **{f"p{percentile:g}_ms": f"p{percentile:g}" for percentile in percentiles}}
    _print_columns(load | {"runs_per_s": "runs/s"} | latency | {"stable": "stable"}, rows)
    parts = [
        (f"{one.load:g}", runs, _cell(times.total_ns / 1e6), format_largest_parts(times))
        for one in measured
        for runs, times in (("typical", one.typical), ("slowest 1 %", one.slow))
        if times is not None
    ]
    if parts:
        print_table((_LOADS[kind], "runs", "ms", "largest parts"), parts, right=(_LOADS[kind], "ms"))
    print_line("latency in ms")


def _print_columns(columns: Mapping[str, str], rows: Sequence[dict[str, Any]]) -> None:
    titles = list(columns.values())
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    print_table(titles, cells, right=[title for title in titles if title != "stable"])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _print_comparison(compared: Comparison, asked: str) -> None:
    low, high = compared.quartiles
    print_line(
        f"one run at a time: {compared.remote_ms:.4g} ms on {asked}, {compared.in_process_ms:.4g} ms in ONNX Runtime in"
        f" process with {compared.threads} threads; ratio {compared.ratio:.3f} ({low:.3f}..{high:.3f}), results within"
        f" {compared.largest_difference:.1g} of the largest element"
    )


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _say_where_unstable(kind: str, measured: Sequence[Measurement], rule: Rule) -> None:
    unstable = [f"{one.load:g}" for one in measured if not one.is_stable]
    if unstable:
        print_line(
            f"not stable with {', '.join(unstable)} {'in flight' if kind == 'concurrency' else 'per second'}: after"
            f" {rule.most_windows} windows the last {WINDOWS} differ by more than {rule.tolerance * 100:g} %; try a"
            " longer --window"
        )
