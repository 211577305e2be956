"""ONNX's own node tests, or a part with every operator. What passes is kept in node_tests.json, and may only grow."""

import json

import numpy as np
import onnx
import pytest
from node_tests import FROZEN, KEPT, PASSED, NodeTest, array, collected, document, outcomes_of
from part import part

from nnrt_client import Compilation, Executor, Runtime, from_onnx

_KEPT = json.loads(KEPT.read_text())
# Every so many of the tests that pass run through a daemon.
_SAMPLED = 8


@pytest.fixture(scope="module")
def node_tests() -> dict[str, NodeTest]:
    tests = part(collected(), lambda test: test.name, lambda test: {node.op_type for node in test.model.graph.node})
    return {test.name: test for test in tests}


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_no_fewer_node_tests_pass_than_before(node_tests: dict[str, NodeTest]) -> None:
    outcomes, on_onnxruntime = outcomes_of(node_tests.values())
    passing = [name for name in _KEPT[PASSED] + _KEPT[FROZEN] if name in outcomes]
    worse = {name: outcomes[name] for name in passing if outcomes[name] not in (PASSED, FROZEN)}
    known = {name for names in _KEPT["not passing on ONNX Runtime"].values() for name in names}
    worse |= {name: said for name, said in on_onnxruntime.items() if said not in (PASSED, FROZEN) and name not in known}
    assert worse == {}
    if _KEPT["onnx"] == onnx.__version__:
        # More passes, or for another reason not: write it down with tests/onnx_import/node_tests.py.
        assert outcomes.items() <= _kept_outcomes().items()
        assert len(outcomes) < _KEPT["all"] or document(outcomes, on_onnxruntime) == _KEPT


def _kept_outcomes() -> dict[str, str]:
    passing = {said: _KEPT[said] for said in (PASSED, FROZEN)}
    by_reason = {**passing, **_KEPT["failing"], **_KEPT["skipped"]}
    return {name: said for said, names in by_reason.items() for name in names}


@pytest.mark.slow
def test_node_tests_pass_through_a_daemon(node_tests: dict[str, NodeTest], runtime: Runtime) -> None:
    wrong = []
    for name in [name for name in _KEPT[PASSED] if name in node_tests][::_SAMPLED]:
        test = node_tests[name]
        model = from_onnx(test.model.SerializeToString())
        names = [info.name for info in test.model.graph.input]
        with Compilation(model, runtime.device()) as compilation:
            compilation.build()
            with Executor(compilation) as executor:
                for inputs, outputs in test.data_sets:
                    feeds = dict(zip(names, map(array, inputs), strict=True))
                    got = executor.run_sync([feeds[tensor.desc.name] for tensor in model.inputs])
                    same = [
                        np.allclose(mine, array(theirs), test.rtol, test.atol, equal_nan=True)
                        for mine, theirs in zip(got, outputs, strict=True)
                    ]
                    wrong += [] if all(same) else [name]
    assert wrong == []
