"""The kit's operators through real daemons; tests/operators/test_answers.py tries all that the kit has in process."""

import pytest
from conftest import StartDaemon
from operators.lacking import lacks_kernel

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.kit import Kit, Result, trials
from nnrt_client.conformance.levels.answers import Answers
from nnrt_client.conformance.outcome import Verdict
from nnrt_client.conformance.target import Target
from nnrt_client.settings import Settings

# Of so many one: what a daemon adds differs by data types, shapes and numbers of tensors, and not by operators.
STEP = 64
SOME = trials([Level.OPERATORS])[::STEP]


def lacks(result: Result) -> bool:
    """ONNX Runtime has no kernel, or has to know a dimension."""
    assert isinstance(result.trial, Answers)
    is_refused = result.outcome.verdict is Verdict.REFUSED
    return is_refused and (lacks_kernel(result.trial.case) or "known" in result.outcome.reason)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
def test_operators_through_a_daemon(start_daemon: StartDaemon, backend: str) -> None:
    with Target(start_daemon("--backend", backend).address, Settings(), 0) as target:
        results = list(Kit(target).results(SOME))
    faults = [result for result in results if result.outcome.verdict is not Verdict.RIGHT]
    if backend == "onnxruntime":
        faults = [result for result in faults if not lacks(result)]
    assert [(result.trial.name, result.outcome.reason) for result in faults] == []
