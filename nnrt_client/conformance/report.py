"""Report of the kit: outcomes by operator and data type, and the levels that a device has reached."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnrt_client.conformance.advice import advice
from nnrt_client.conformance.case import Level
from nnrt_client.conformance.kit import Result
from nnrt_client.conformance.outcome import Verdict
from nnrt_hdi.backend import DeviceInfo
from nnrt_hdi.enums import DataType

CONTRACT_LEVELS = (Level.CONTRACT, Level.CONCURRENCY, Level.SEQUENCES, Level.CACHES, Level.DEATH)
# Row name of cases with several operators.
SEVERAL = "several operators"

_UNTRIED = "not all of it was tried"

Counts = Mapping[Verdict, int]


@dataclass(frozen=True, slots=True)
class Reach:
    """Level of conformance. `missing` says what a device lacks to reach it; empty if it has reached it."""

    name: str
    missing: str
    # True if only untried trials are missing.
    is_untried: bool = False

    @property
    def is_reached(self) -> bool:
        return not self.missing


@dataclass(slots=True)
class Report:
    """Results on one device, in the order of the trials."""

    address: str
    device: str
    info: DeviceInfo
    results: list[Result] = field(default_factory=list)
    # Levels of which all trials are selected.
    in_full: Collection[Level] = ()
    # Why the report is incomplete: Ctrl-C, a daemon that has ended, or the first fault with --fail-fast.
    cut_short: str = ""

    @property
    def faults(self) -> list[Result]:
        """Results that are faults."""
        return [result for result in self.results if result.outcome.verdict.is_fault]

    @property
    def refusals(self) -> list[Result]:
        return [result for result in self.results if result.outcome.verdict is Verdict.REFUSED]

    def counts(self) -> dict[Level, Counts]:
        """Return the number of outcomes per level and verdict."""
        counts: dict[Level, Counter[Verdict]] = defaultdict(Counter)
        for result in self.results:
            counts[result.trial.level][result.outcome.verdict] += 1
        return {level: counts[level] for level in Level if level in counts}

    def by_operator(self) -> dict[str, dict[DataType, Counts]]:
        """Return the number of outcomes per node type, data type and verdict.

        Of levels that consist of checks only faults count: a daemon that survives a check has given no answer.
        """
        cells: dict[str, dict[DataType, Counter[Verdict]]] = defaultdict(lambda: defaultdict(Counter))
        for result in self.results:
            trial, verdict = result.trial, result.outcome.verdict
            counts = trial.level not in CONTRACT_LEVELS or verdict.is_fault
            if counts and trial.data_type is not None and trial.node_types:
                cells[operator_name(result)][trial.data_type][verdict] += 1
        return {name: dict(cells[name]) for name in sorted(cells)}

    def worst_errors(self) -> dict[str, Result]:
        """Return the result with the largest error of each node type, relative to its tolerance if that is not 0."""
        worst: dict[str, Result] = {}
        for result in self.results:
            if result.outcome.error is not None:
                name = operator_name(result)
                if name not in worst or _share(result) > _share(worst[name]):
                    worst[name] = result
        return worst

    def first_faults(self) -> dict[str, Result]:
        """Return the first fault of each node type, and of each check that has no node type."""
        first: dict[str, Result] = {}
        for result in self.faults:
            first.setdefault(operator_name(result) if result.trial.node_types else result.trial.name, result)
        return first

    def reached(self) -> list[Reach]:
        """Return the levels of conformance, from the lowest to the highest."""
        contract = [self._missing(level) for level in CONTRACT_LEVELS]
        singles = (Level.OPERATORS, Level.VALUES)
        return [
            _reach("contract", contract),
            _reach("float32 networks", contract + self._networks(singles, DataType.FLOAT32)),
            _reach("float16 networks", contract + self._networks((Level.FLOAT16,), DataType.FLOAT16)),
            _reach("quantized", contract + self._networks((Level.QUANTIZED,), DataType.INT8, DataType.UINT8)),
            _reach("full", contract + [self._missing(level, may_refuse=False) for level in Level]),
        ]

    def _networks(self, levels: Sequence[Level], *data_types: DataType) -> list[str]:
        missing = [self._missing(level, data_types) for level in levels]
        return [*missing, self._missing(Level.GRAPHS, data_types, may_refuse=False)]

    def _missing(self, level: Level, data_types: Collection[DataType] = (), *, may_refuse: bool = True) -> str:
        """Return what the device lacks for a level in these data types (all, if none is given); empty if nothing."""
        outcomes = [
            result.outcome
            for result in self.results
            if result.trial.level is level and (not data_types or result.trial.data_type in data_types)
        ]
        counts = Counter(outcome.verdict for outcome in outcomes if not outcome.is_unclaimed)
        tried = sum(counts.values())
        if faults := sum(count for verdict, count in counts.items() if verdict.is_fault):
            return f"{faults} of {tried} of {level.value} are wrong"
        if level not in self.in_full or self.cut_short or counts[Verdict.UNTRIED]:
            return _UNTRIED
        if not may_refuse and counts[Verdict.REFUSED] and level not in CONTRACT_LEVELS:
            return f"{counts[Verdict.REFUSED]} of {tried} of {level.value} are refused"
        return ""

    def describe(self) -> dict[str, Any]:
        """Return the report as --json writes it."""
        return {
            "address": self.address,
            "device": self.device,
            "backend": self.info.backend_name,
            "backend_version": self.info.backend_version,
            "cut_short": self.cut_short,
            "reached": {reach.name: reach.is_reached for reach in self.reached()},
            "missing": {reach.name: reach.missing for reach in self.reached() if reach.missing},
            "levels": {level.value: describe_counts(counts) for level, counts in self.counts().items()},
            "operators": {
                name: {data_type.name: describe_counts(counts) for data_type, counts in cells.items()}
                for name, cells in self.by_operator().items()
            },
            "results": [describe_result(result) for result in self.results],
        }


def operator_name(result: Result) -> str:
    """Return the name of the table row that a result belongs to."""
    node_types = result.trial.node_types
    return node_types[0].name if len(node_types) == 1 else SEVERAL


def describe_result(result: Result) -> dict[str, Any]:
    """Return a result as --json writes it."""
    trial = result.trial
    return {
        "name": trial.name,
        "level": trial.level.value,
        "node_types": [node_type.name for node_type in trial.node_types],
        "data_type": trial.data_type.name if trial.data_type is not None else None,
        "seconds": round(result.seconds, 4),
        **result.outcome.describe(),
        "look_at": advice(result),
    }


def describe_counts(counts: Counts) -> dict[str, int]:
    """Return the counts above 0 as --json writes them."""
    return {verdict.value: counts[verdict] for verdict in Verdict if counts.get(verdict)}


def _share(result: Result) -> float:
    outcome = result.outcome
    error = outcome.error or 0.0
    return error / outcome.tolerance if outcome.tolerance else error


def _reach(name: str, missing: Sequence[str]) -> Reach:
    found = dict.fromkeys(what for what in missing if what and what is not _UNTRIED)
    return Reach(name, "; ".join(found) or (_UNTRIED if any(missing) else ""), is_untried=not found and any(missing))


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of several counts."""
    together: Counter[Verdict] = Counter()
    for each in counts:
        together.update(each)
    return together
