"""The page of `nnrt conformance`: what is right, refused and wrong of each operator, and every fault."""

from collections.abc import Sequence

from nnrt_client.cli.page import escaped, page, table
from nnrt_client.conformance.advice import advice
from nnrt_client.conformance.kit import Result
from nnrt_client.conformance.outcome import Verdict
from nnrt_client.conformance.report import Counts, Report
from nnrt_hdi.enums import DataType

_STYLE = """
.right { color: #2a9d4a; } .refused, .untried { color: #888; } .wrong, .failed { color: #d33; font-weight: 600; }
.crashed { color: #b0b; font-weight: 600; }
"""


def conformance_page(report: Report) -> str:
    """One page that stands alone."""
    info = report.info
    reached = [(each.name, "reached" if each.is_reached else each.missing) for each in report.reached()]
    parts = [
        f"<p>{escaped(info.backend_name)} {escaped(info.backend_version)} at {escaped(report.address)}</p>",
        *([f"<p>{escaped(report.cut_short)}</p>"] if report.cut_short else []),
        "<h2>Levels reached</h2>",
        table(("level", ""), reached),
        "<h2>Operators</h2>",
        _operators(report),
        "<h2>Levels</h2>",
        _levels(report),
        *_results("Faults", report.faults),
        *_results("Refused", report.refusals),
    ]
    return page(f"Conformance of {report.device}", "\n".join(parts), _STYLE)


def _operators(report: Report) -> str:
    operators = report.by_operator()
    used = {data_type for cells in operators.values() for data_type in cells}
    data_types = [data_type for data_type in DataType if data_type in used]
    worst = report.worst_errors()
    head = "".join(
        f"<th>{escaped(title)}</th>" for title in ("operator", *(each.name for each in data_types), "worst error")
    )
    rows = []
    for name, cells in operators.items():
        error = worst[name].outcome.error if name in worst else None
        shown = "-" if error is None else f"{error:.2g}"
        counts = "".join(f"<td>{_counted(cells.get(data_type, {}))}</td>" for data_type in data_types)
        rows.append(f'<tr><td>{escaped(name)}</td>{counts}<td class="number">{shown}</td></tr>')
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(rows) + "\n</table>"


def _counted(counts: Counts) -> str:
    shown = (f'<span class="{kind.value}">{counts[kind]} {kind.value}</span>' for kind in Verdict if counts.get(kind))
    return "<br>".join(shown)


def _levels(report: Report) -> str:
    rows = [
        [level.value, *(counts.get(verdict, 0) for verdict in Verdict)] for level, counts in report.counts().items()
    ]
    return table(("level", *(verdict.value for verdict in Verdict)), rows)


def _results(title: str, results: Sequence[Result]) -> list[str]:
    if not results:
        return []
    rows = [(each.trial.name, each.outcome.verdict.value, each.outcome.reason, advice(each)) for each in results]
    return [f"<details><summary>{title}: {len(results)}</summary>", table(("name", "", "why", ""), rows), "</details>"]
