"""The cases of the conformance kit: the answers that ship are the oracles', and both backends give them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from loaded import loaded
from part import part

from nnrt_client.conformance import Case, Distance, Level, cases
from nnrt_client.conformance.answers import load_answer as shipped
from nnrt_client.conformance.answers import pack, unpack
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig
from nnrt_hdi.errors import InvalidFile, NnrtError, Unsupported
from nnrt_hdi.ops import OPERATORS

from .answering import answer_of
from .lacking import lacks_kernel

Record = Callable[[str, str, str, float], None]
RecordSteps = Callable[[str, str, float, float], None]

CASES = [case for level in Level for case in cases(level)]
PARTS = sorted({(case.level, case.family) for case in CASES}, key=str)

per_part = pytest.mark.parametrize(("level", "family"), PARTS, ids=lambda part: getattr(part, "value", part))


def cases_of(level: Level, family: str) -> list[Case]:
    """Choose some of each operator and data type."""
    of_both = [case for case in CASES if (case.level, case.family) == (level, family)]
    return part(of_both, lambda case: case.name, lambda case: (case.data_type, *case.node_types))


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.name.startswith(f"{case.level.value}/") for case in CASES)


def test_every_operator_has_cases() -> None:
    for which in (CASES, [case for case in CASES if case.is_quick]):
        assert {kind for case in which for kind in case.node_types} == set(OPERATORS)


@per_part
def test_what_ships_is_what_the_oracles_give(level: Level, family: str) -> None:
    """`make answers` writes them anew. Another release of an oracle may round otherwise, which a tolerance allows."""
    seen: set[str] = set()
    for case in cases_of(level, family):
        if case.by_hand is not None or case.answer in seen:
            continue
        seen.add(case.answer)
        fresh, kept = answer_of(case), shipped(level.value, case.answer)
        assert (kept.oracle, kept.inputs, len(kept.runs)) == (fresh.oracle, fresh.inputs, len(fresh.runs)), case.name
        for run, wanted in zip(case.runs, fresh.runs, strict=True):
            assert (run.wanted is None) == (wanted is None), case.name
            reasons = [] if wanted is None else [distance.reason for distance in case.distances(wanted, run)]
            assert not any(reasons), (case.name, reasons)


@per_part
def test_the_reference_gives_the_answers(level: Level, family: str, record_error: Record) -> None:
    for case in cases_of(level, family):
        for distance in distances_of(case, loaded("reference")):
            record_error(
                case.name.split("/")[1].split("-")[0], case.data_type.name.lower(), case.oracle, distance.error
            )


@per_part
def test_onnx_runtime_gives_the_answers(level: Level, family: str) -> None:
    """It refuses what it has no kernel for and where it must know a dimension."""
    backend = loaded("onnxruntime")
    for case in cases_of(level, family):
        try:
            distances_of(case, backend)
        except Unsupported:
            reasons = [support.reason for support in backend.supported(case.graph) if not support.supported]
            assert lacks_kernel(case) or any(
                "is known only when the model runs" in reason or (case.is_dynamic and "known" in reason)
                for reason in reasons
            ), (case.name, reasons)


def distances_of(case: Case, backend: Backend) -> list[Distance]:
    """Make the runs of a case. Fails where one isn't right."""
    model = backend.prepare(case.graph, ModelConfig(enable_float16=case.enable_float16), lambda _: None)
    distances = []
    for run in case.runs:
        if run.wanted is None:
            with pytest.raises(NnrtError):
                model.run(run.inputs, Cancellation())
        else:
            outputs = model.run(run.inputs, Cancellation())
            assert all(spec.accepts(y.shape) for spec, y in zip(case.graph.output_specs, outputs, strict=True)), (
                case.name
            )
            distances += case.distances(outputs, run)
    assert [distance.reason for distance in distances if distance.reason] == [], case.name
    return distances


def test_a_wrong_answer_is_told() -> None:
    """What a device may give instead: another number, type, shape or count of outputs."""
    case = cases(Level.OPERATORS)[0]
    (run,) = case.runs
    assert run.wanted is not None
    (y,) = run.wanted
    off = y.copy()
    off.flat[-1] += 1
    for outputs, said in (
        ([off], "output 0 is"),
        ([y.astype(np.float64)], "float64"),
        ([y[:1]], "in place of"),
        ([y, y], "2 outputs in place of 1"),
    ):
        assert any(said in distance.reason for distance in case.distances(outputs, run))
    assert [distance.reason for distance in case.distances([y], run)] == [""]


def test_answers_are_of_their_inputs() -> None:
    case = cases(Level.OPERATORS)[0]
    other = replace(case, make=lambda: (case.graph, [[x + 1 for x in case.inputs[0]]]))
    with pytest.raises(InvalidFile, match="make answers"):
        _ = other.runs


def test_a_file_that_is_cut_is_refused() -> None:
    answer = shipped("operators", cases(Level.OPERATORS)[0].answer)
    file = pack([answer, answer])
    assert unpack(file).keys() == {answer.name}
    with pytest.raises(InvalidFile):
        unpack(file[:-40])
