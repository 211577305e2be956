"""ONNX's own node tests as programs. What passes is kept in program_node_tests.json, and may only grow."""

import json

import onnx
import onnxruntime
import pytest
from node_tests import FROZEN, collected
from node_tests import KEPT as KEPT_OF_OPERATORS
from node_tests import PASSED as PASSED_AS_OPERATORS
from program_node_tests import AS_IN_PROCESS, KEPT, NO_TENSORS, NOT_IN_PROCESS, PASSED, document, program_outcomes

_KEPT = json.loads(KEPT.read_text())
_AS_OPERATORS = json.loads(KEPT_OF_OPERATORS.read_text())
# Of those that pass as NNRt's operators every so many are run as programs, too.
_SAMPLED = 20
# Of those that are left so many: `python tests/onnx_import/program_node_tests.py` runs all.
_OTHERS = 5


@pytest.mark.slow
def test_node_tests_pass_as_programs() -> None:
    passing = _AS_OPERATORS[PASSED_AS_OPERATORS] + _AS_OPERATORS[FROZEN]
    left_out = set(passing) - set(passing[::_SAMPLED])
    outcomes = program_outcomes([test for test in collected() if test.name not in left_out][::_OTHERS])
    sound = (PASSED, AS_IN_PROCESS, NOT_IN_PROCESS, NO_TENSORS)
    assert {name: said for name, said in outcomes.items() if said not in sound} == {}
    if (_KEPT["onnx"], _KEPT["onnxruntime"]) == (onnx.__version__, onnxruntime.__version__):
        # More passes, or for another reason not: write it down with tests/onnx_import/program_node_tests.py.
        kept = {said: [name for name in names if name in outcomes] for said, names in _KEPT["others"].items()}
        assert document(outcomes)["others"] == {said: names for said, names in kept.items() if names}
