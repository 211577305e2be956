"""Which levels a device has reached, and what a report counts."""

from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import StartDaemon

from nnrt_client.conformance.advice import advice
from nnrt_client.conformance.case import Level
from nnrt_client.conformance.junit import junit_xml
from nnrt_client.conformance.kit import Result, levels_in_full, trials
from nnrt_client.conformance.outcome import Outcome, Verdict
from nnrt_client.conformance.report import CONTRACT_LEVELS, SEVERAL, Report, describe_result
from nnrt_client.conformance.target import Target
from nnrt_client.settings import Settings
from nnrt_hdi.backend import Capabilities, DeviceInfo
from nnrt_hdi.enums import DataType, DeviceType, NodeType, ReturnCode

INFO = DeviceInfo("device", "vendor", DeviceType.CPU, Capabilities(), "backend", "1")


@dataclass(frozen=True)
class Tried:
    """A trial that is over."""

    level: Level
    data_type: DataType | None = None
    node_types: tuple[NodeType, ...] = ()
    family: str = ""
    is_quick: bool = True

    @property
    def name(self) -> str:
        return f"{self.level.value}/{self.data_type}"

    def run(self, target: Target) -> Outcome:
        raise NotImplementedError


def report(*others: tuple[Level, DataType | None, Verdict], cut_short: str = "") -> Report:
    """Of each level something that is right, and these."""
    results = [Result(Tried(level), Outcome(Verdict.RIGHT)) for level in Level]
    results += [Result(Tried(level, data_type), Outcome(verdict, "so")) for level, data_type, verdict in others]
    return Report("address", "device", INFO, results, frozenset(Level), cut_short)


def reached(*others: tuple[Level, DataType | None, Verdict], cut_short: str = "") -> list[str]:
    return [reach.name for reach in report(*others, cut_short=cut_short).reached() if reach.is_reached]


ALL = ["contract", "float32 networks", "float16 networks", "quantized", "full"]


def test_all_levels_are_reached_where_all_is_right() -> None:
    assert reached() == ALL


def test_a_capability_that_is_not_claimed_is_none_that_is_missing() -> None:
    assert reached((Level.CONTRACT, None, Verdict.REFUSED)) == ALL


def test_a_broken_contract_is_in_the_way_of_all() -> None:
    for level in CONTRACT_LEVELS:
        assert reached((level, None, Verdict.CRASHED)) == []


def test_refusals_are_in_the_way_of_networks_where_these_are_refused() -> None:
    assert reached((Level.OPERATORS, DataType.FLOAT32, Verdict.REFUSED)) == ALL[:-1]
    refused_network = reached((Level.GRAPHS, DataType.FLOAT32, Verdict.REFUSED))
    assert refused_network == ["contract", "float16 networks", "quantized"]


def test_what_no_capability_claims_is_in_the_way_of_nothing() -> None:
    given = report()
    unclaimed = Outcome(Verdict.REFUSED, "so", is_unclaimed=True)
    given.results += [Result(Tried(level, DataType.FLOAT32), unclaimed) for level in (Level.OPERATORS, Level.GRAPHS)]
    assert [reach.name for reach in given.reached() if reach.is_reached] == ALL


@pytest.mark.parametrize(
    ("name", "is_unclaimed"),
    [
        ("graphs/mlp-float32-enabled_float16", True),
        ("graphs/mlp-float32", False),
        ("float16/SOFTMAX-0-float32-enabled", True),
        ("operators/SOFTMAX-0-float32-dynamic", True),
    ],
)
def test_refusals_for_want_of_a_capability(start_daemon: StartDaemon, name: str, is_unclaimed: bool) -> None:
    (trial,) = trials(only=[name])
    with Target(start_daemon("--backend", "nothing").address, Settings(), 0) as target:
        outcome = trial.run(target)
    assert (outcome.verdict, outcome.is_unclaimed) == (Verdict.REFUSED, is_unclaimed)


def test_faults_are_in_the_way_of_networks_of_their_data_type() -> None:
    assert reached((Level.VALUES, DataType.FLOAT32, Verdict.FAILED)) == ["contract", "float16 networks", "quantized"]
    assert reached((Level.VALUES, DataType.INT32, Verdict.WRONG)) == ALL[:-1]
    assert reached((Level.QUANTIZED, DataType.UINT8, Verdict.WRONG)) == ALL[:3]


def test_what_was_not_tried_is_not_reached() -> None:
    assert reached(cut_short="it was interrupted") == []
    assert reached((Level.FLOAT16, DataType.FLOAT16, Verdict.UNTRIED)) == ["contract", "float32 networks", "quantized"]
    one = trials([Level.OPERATORS])[:1]
    assert levels_in_full(one) == frozenset()
    assert levels_in_full([*one, *trials([Level.CACHES])]) == {Level.CACHES}


def test_nodes_that_a_daemon_survives_are_no_answers() -> None:
    given = report()
    for verdict in (Verdict.RIGHT, Verdict.CRASHED):
        trial = Tried(Level.DEATH, DataType.INT32, (NodeType.GATHER,))
        given.results.append(Result(trial, Outcome(verdict, "so")))
    assert given.by_operator() == {"GATHER": {DataType.INT32: {Verdict.CRASHED: 1}}}


def test_outcomes_are_counted_by_operator_and_data_type() -> None:
    given = report()
    both = (NodeType.ADD_FUSION, NodeType.SOFTMAX)
    for node_types, error, tolerance, verdict in (
        (both[:1], 1e-7, 1e-6, Verdict.RIGHT),
        (both[:1], 0.5, 1.0, Verdict.RIGHT),  # It is nearer to what it may be.
        (both[1:], np.inf, 1e-6, Verdict.WRONG),
        (both, 0.0, 0.0, Verdict.CRASHED),
    ):
        trial = Tried(Level.OPERATORS, DataType.FLOAT32, node_types)
        given.results.append(Result(trial, Outcome(verdict, "so\x1b", error, tolerance)))
    counts = {name: dict(cells[DataType.FLOAT32]) for name, cells in given.by_operator().items()}
    assert counts == {
        "ADD_FUSION": {Verdict.RIGHT: 2},
        "SOFTMAX": {Verdict.WRONG: 1},
        SEVERAL: {Verdict.CRASHED: 1},
    }
    assert given.worst_errors()["ADD_FUSION"].outcome.error == 0.5
    assert [result.outcome.verdict for result in given.first_faults().values()] == [Verdict.WRONG, Verdict.CRASHED]
    suites = {suite.attrib["name"]: suite for suite in ElementTree.fromstring(junit_xml(given))}  # noqa: S314  # Our own.
    operators = suites["operators"].attrib
    assert (operators["tests"], operators["failures"], operators["errors"]) == ("5", "1", "1")


ADVICE = [
    (Outcome(Verdict.CRASHED, "so"), Level.VALUES, "exit code"),
    (Outcome(Verdict.FAILED, "so", code=ReturnCode.UNAVAILABLE_DEVICE), Level.VALUES, "traceback"),
    (Outcome(Verdict.FAILED, "so", code=ReturnCode.TIMEOUT), Level.GRAPHS, "--timeout"),
    (Outcome(Verdict.FAILED, "so", code=ReturnCode.MEMORY_ERROR), Level.CONTRACT, "--run-bytes"),
    (Outcome(Verdict.FAILED, "so", code=ReturnCode.UNSUPPORTED), Level.OPERATORS, "`supported`"),
    (Outcome(Verdict.FAILED, "so"), Level.OPERATORS, "reply"),
    (Outcome(Verdict.WRONG, "so"), Level.CONTRACT, "write-a-backend.md"),
    (Outcome(Verdict.WRONG, "so"), Level.CONCURRENCY, "share"),
    (Outcome(Verdict.WRONG, "so"), Level.SEQUENCES, "over its inputs"),
    (Outcome(Verdict.WRONG, "so"), Level.CACHES, "`restore`"),
    (Outcome(Verdict.WRONG, "so"), Level.DEATH, "before"),
    (Outcome(Verdict.WRONG, "so"), Level.OPERATORS, "the same checks"),
    (Outcome(Verdict.WRONG, "so", np.inf, 1.0), Level.OPERATORS, "shape"),
    (Outcome(Verdict.WRONG, "so", 0.5, 0.1), Level.OPERATORS, "docs/reference/operators.md"),
    (Outcome(Verdict.WRONG, "so", 0.5, 0.1), Level.VALUES, "docs/reference/operators.md"),
    (Outcome(Verdict.WRONG, "so", 2.0, 1.0), Level.QUANTIZED, "zero point"),
    (Outcome(Verdict.WRONG, "so", 0.5, 0.1), Level.FLOAT16, "sums"),
    (Outcome(Verdict.WRONG, "so", 0.5, 0.1), Level.GRAPHS, "fuses"),
]


@pytest.mark.parametrize(("outcome", "level", "says"), ADVICE)
def test_each_kind_of_fault_says_what_to_look_at(outcome: Outcome, level: Level, says: str) -> None:
    """In one sentence."""
    result = Result(Tried(level), outcome)
    said = advice(result)
    assert said.startswith("look ")
    assert says in said
    assert ". " not in said and not said.endswith(".")
    assert describe_result(result)["look_at"] == said
    given = report()
    given.results = [result]
    ((case,),) = ElementTree.fromstring(junit_xml(given))  # noqa: S314  # Our own.
    assert case[0].text == said


def test_no_fault_says_nothing() -> None:
    for verdict in (Verdict.RIGHT, Verdict.REFUSED, Verdict.UNTRIED):
        assert advice(Result(Tried(Level.VALUES), Outcome(verdict, "so"))) == ""


def test_no_kind_of_fault_is_left_out() -> None:
    faults = [verdict for verdict in Verdict if verdict.is_fault]
    assert all(
        advice(Result(Tried(level), Outcome(verdict, "so", error, code=code)))
        for verdict in faults
        for level in Level
        for error in (None, np.inf, 0.5)
        for code in (None, *ReturnCode)
    )
