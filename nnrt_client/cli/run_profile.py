"""Profile of a run by operators, printed as tables and as JSON."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from nnrt_client.cli.printing import print_line, print_table
from nnrt_client.cli.run_parts import bar, percent
from nnrt_client.tracing.tracer import Outcome
from nnrt_hdi.operator_times import Besides, OperatorTime


class Kind(NamedTuple):
    """Total of all operators of one type."""

    operator: str
    nodes: int
    took_ns: int


class Profile:
    """Operator times of one run, longest first. Shares are fractions of the sum over all operators."""

    def __init__(self, runs: Sequence[Outcome]) -> None:
        """Collect the operators of one run, which consists of several outcomes if its model runs in parts."""
        reported = [operator for run in runs for operator in run.operators]
        self.operators = sorted((one for one in reported if not isinstance(one, Besides)), key=lambda one: -one.took_ns)
        self.besides = [one for one in reported if isinstance(one, Besides)]
        # Time that the device spent on the run. Operators may overlap in it or leave gaps.
        self.computed_ns = sum(run.times().computed_ns for run in runs)
        self.took_ns = sum(one.took_ns for one in self.operators)

    @property
    def kinds(self) -> list[Kind]:
        """Totals by operator type, longest first."""
        by_kind: dict[str, list[OperatorTime]] = defaultdict(list)
        for one in self.operators:
            by_kind[one.operator].append(one)
        kinds = [Kind(operator, len(all_), sum(one.took_ns for one in all_)) for operator, all_ in by_kind.items()]
        return sorted(kinds, key=lambda kind: -kind.took_ns)

    def share(self, took_ns: int) -> float:
        """Return a time as a fraction of all operators' time."""
        return took_ns / (self.took_ns or 1)

    def describe(self) -> dict[str, Any]:
        """Return the profile as --json prints it."""
        return {
            "computed_ns": self.computed_ns,
            "operators_ns": self.took_ns,
            "kinds": [{**kind._asdict(), "share": self.share(kind.took_ns)} for kind in self.kinds],
            "operators": [_describe(one) | {"share": self.share(one.took_ns)} for one in self.operators],
            "besides": [_describe(one) for one in self.besides],
        }

    def show(self) -> None:
        """Print one table by operator type and one by operator."""
        print_table(
            ("operator", "nodes", "ms", "share", ""),
            [(kind.operator, kind.nodes, *self._cells(kind.took_ns)) for kind in self.kinds],
            right=("nodes", "ms", "share"),
        )
        print_table(
            ("operator", "name", "ms", "share", ""),
            [(one.operator, one.name, *self._cells(one.took_ns)) for one in self.operators],
            right=("ms", "share"),
        )
        besides = "".join(f"; {_ms(one.took_ns)} ms: {one.operator}" for one in self.besides)
        print_line(
            f"{len(self.operators)} operators took {_ms(self.took_ns)} ms of the {_ms(self.computed_ns)} ms that a"
            f" second, profiled run took to compute{besides}"
        )

    def _cells(self, took_ns: int) -> tuple[str, str, str]:
        share = self.share(took_ns)
        return _ms(took_ns), percent(share), bar(share)


def _describe(one: OperatorTime) -> dict[str, Any]:
    return {"operator": one.operator, "name": one.name, "began_ns": one.began_ns, "took_ns": one.took_ns}


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.3f}"
