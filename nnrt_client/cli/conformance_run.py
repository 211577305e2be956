"""Implementation of `nnrt conformance`, which runs trials, prints their results and writes report files."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import click
from rich.table import Table
from rich.text import Text

from nnrt_client.cli.failures import INTERRUPTED
from nnrt_client.cli.printing import print_line, print_page, print_table, replace_non_finite, step_bar
from nnrt_client.conformance.advice import advice
from nnrt_client.conformance.case import Level
from nnrt_client.conformance.junit import junit_xml
from nnrt_client.conformance.kit import Kit, Result, levels_in_full, trials
from nnrt_client.conformance.outcome import Verdict
from nnrt_client.conformance.report import Counts, Report, total
from nnrt_client.conformance.saved_faults import save_faults
from nnrt_client.conformance.target import Target
from nnrt_client.conformance.trial import Trial
from nnrt_client.settings import Settings
from nnrt_hdi.enums import DataType
from nnrt_hdi.files import container
from nnrt_hdi.text import escape_for_terminal

_COLORS = {
    Verdict.RIGHT: "green",
    Verdict.REFUSED: "dim",
    Verdict.WRONG: "bold red",
    Verdict.FAILED: "bold red",
    Verdict.CRASHED: "bold magenta",
    Verdict.UNTRIED: "dim",
}
# Suffixes of the counts in the table's cells.
_MARKS = {Verdict.REFUSED: "r", Verdict.WRONG: "w", Verdict.FAILED: "f", Verdict.CRASHED: "c"}


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of the report files that the options ask for."""

    json: Path | None
    junit: Path | None

    def write(self, report: Report) -> None:
        """Write the files that were asked for. Raises OSError."""
        if self.json:
            document = replace_non_finite(report.describe())
            container.write(self.json, [json.dumps(document, indent=2, allow_nan=False).encode()])
        if self.junit:
            container.write(self.junit, [junit_xml(report)])


def list_trials(levels: Sequence[str], only: Sequence[str], *, quick: bool) -> None:
    """Print the names of the selected trials."""
    for trial in _select_trials(levels, only, quick=quick):
        print_line(trial.name)


def try_all(
    address: str,
    settings: Settings,
    return_s: float,
    levels: Sequence[str],
    only: Sequence[str],
    files: Files,
    kept: Path | None,
    *,
    quick: bool,
    fail_fast: bool,
) -> int:
    """Run the trials, write and print the report (also after Ctrl-C), and return the exit code.

    The report is printed even if a file can't be written, and written even if standard output is closed.
    """
    wanted = _select_trials(levels, only, quick=quick)
    if kept:
        kept.mkdir(parents=True, exist_ok=True)
    code = 0
    with Target(address, settings, return_s) as target:
        target.require_rights()
        report = Report(target.address, target.name, target.info, in_full=levels_in_full(wanted))
        try:
            _try(target, wanted, report, fail_fast=fail_fast)
        except KeyboardInterrupt:
            report.cut_short = "it was interrupted"
            code = INTERRUPTED
        places: list[Path] = []
        try:
            files.write(report)
            if kept:
                places.extend(save_faults(report, kept, address, target))
        finally:
            _print(report, address)
            for place in places:
                print_line(f"kept: {place}")
    return code or int(bool(report.faults))


def _select_trials(levels: Sequence[str], only: Sequence[str], *, quick: bool) -> list[Trial]:
    wanted = trials([Level(level) for level in levels], only, quick=quick)
    if not wanted:
        raise click.UsageError("no trial matches; --list prints the names")
    return wanted


def _try(target: Target, wanted: Sequence[Trial], report: Report, *, fail_fast: bool) -> None:
    kit = Kit(target)
    with step_bar(len(wanted)) as steps, _run_in_thread(kit, wanted) as results:
        steps.begin(wanted[0].level.value)
        for result in results:
            report.results.append(result)
            steps.begin(result.trial.level.value)
            steps.end()
            if fail_fast and result.outcome.verdict.is_fault:
                report.cut_short = "it stopped at the first fault"
                return
    if any(result.outcome.verdict is Verdict.UNTRIED for result in report.results):
        report.cut_short = f"{kit.gone}; the rest is tried where a supervisor, such as nnrt-device up, starts it again"


@contextmanager
def _run_in_thread(kit: Kit, wanted: Sequence[Trial]) -> Iterator[Iterator[Result]]:
    """Run the trials in a thread, which no signal interrupts, and yield an iterator of their results."""
    queue: SimpleQueue[Result | BaseException | None] = SimpleQueue()

    def work() -> None:
        try:
            for result in kit.results(wanted):
                queue.put(result)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    def results() -> Iterator[Result]:
        while (result := queue.get()) is not None:
            if isinstance(result, BaseException):
                raise result
            yield result

    worker = Thread(target=work, name="nnrt-conformance")
    worker.start()
    try:
        yield results()
    except BaseException:
        kit.target.close()  # Ends the trial under way at once.
        raise
    finally:
        kit.stop()
        worker.join()


def _print(report: Report, address: str) -> None:
    if report.by_operator():
        print_page(_operators(report))
        print_line("numbers are right answers; r: refused, w: wrong, f: failed, c: crashed")
    counts = report.counts()
    rows = [[level.value, *_numbers(each)] for level, each in counts.items()]
    kinds = [verdict.value for verdict in Verdict]
    print_table(("level", *kinds), [*rows, ["all", *_numbers(total(counts.values()))]], right=kinds)
    for result in report.first_faults().values():
        print_line(f"{result.outcome.verdict.value}: {result.trial.name}: {result.outcome.reason}")
        print_line(f"  {advice(result)}")
        print_line(f"  nnrt conformance {address} --only '{result.trial.name}'")
    reached = report.reached()
    print_line(f"reached: {', '.join(reach.name for reach in reached if reach.is_reached) or 'none'}")
    for reach in reached:
        if not reach.is_reached and not reach.is_untried:
            print_line(f"not reached: {reach.name}: {reach.missing}")
    if untried := [reach.name for reach in reached if reach.is_untried]:
        print_line(f"not tried in full: {', '.join(untried)}")
    if report.cut_short:
        print_line(report.cut_short)


def _numbers(counts: Counts) -> list[str]:
    return [str(counts.get(verdict, 0) or "-") for verdict in Verdict]


def _operators(report: Report) -> Table:
    """Return a table of node types by data types, with the count of each verdict in its cells."""
    operators = report.by_operator()
    used = {data_type for cells in operators.values() for data_type in cells}
    data_types = [data_type for data_type in DataType if data_type in used]
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("operator", no_wrap=True)
    for data_type in data_types:
        table.add_column(_short(data_type), justify="right")
    table.add_column("error", justify="right")
    worst = report.worst_errors()
    for name, cells in operators.items():
        error = worst[name].outcome if name in worst else None
        shown = "-" if error is None or error.error is None else f"{error.error:.2g}"
        table.add_row(escape_for_terminal(name), *(_cell(cells.get(data_type, {})) for data_type in data_types), shown)
    return table


def _short(data_type: DataType) -> str:
    """Return a short column title: `i8` for INT8, `f32` for FLOAT32."""
    return re.sub(r"^([BFIU])[A-Z]*", lambda found: found[1].lower(), data_type.name)


def _cell(counts: Counts) -> Text:
    parts = [Text(str(counts[Verdict.RIGHT]), _COLORS[Verdict.RIGHT])] if counts.get(Verdict.RIGHT) else []
    parts += [Text(f"{counts[kind]}{mark}", _COLORS[kind]) for kind, mark in _MARKS.items() if counts.get(kind)]
    return Text(" ").join(parts)
