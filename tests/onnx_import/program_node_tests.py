"""ONNX's own node tests as programs: the unchanged files on the ONNX Runtime backend.

`python tests/onnx_import/program_node_tests.py` (with tests/ in PYTHONPATH) writes program_node_tests.json: how many
tests pass, and the reasons why the others don't.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from node_tests import NodeTest, array, collected

from nnrt_client.onnx_import import program_from_onnx
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, load_backend
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.packed_values import PackedSpec
from nnrt_hdi.tensor import TensorSpec

KEPT = Path(__file__).with_name("program_node_tests.json")
PASSED = "passes"
AS_IN_PROCESS = "differs from ONNX's outputs, as ONNX Runtime in process does"
NOT_IN_PROCESS = "ONNX Runtime in process does not run it either"
NO_TENSORS = "its inputs or outputs are no tensors of NNRt"

Outcomes = Mapping[str, str]


def program_outcomes(tests: Iterable[NodeTest]) -> Outcomes:
    """Return PASSED, or the reason why a test doesn't pass, by name."""
    backend = load_backend("onnxruntime", {"threads": "1"})
    try:
        return {test.name: _outcome(test, backend) for test in tests}
    finally:
        backend.close()


def _outcome(test: NodeTest, backend: Backend) -> str:
    try:
        got = _run(test, backend)
    except NnrtError as error:
        if "a run takes only tensors" in str(error):
            return NO_TENSORS
        return NOT_IN_PROCESS if _in_process(test) is None else _reason(error)
    if _same(test, got, [list(map(_value, outputs)) for _, outputs in test.data_sets]):
        return PASSED
    wanted = _in_process(test)
    return AS_IN_PROCESS if wanted is not None and _same(test, got, wanted) else "differs from ONNX Runtime in process"


def _run(test: NodeTest, backend: Backend) -> list[list[Any]]:
    program = program_from_onnx(test.model.SerializeToString())
    model = backend.load_program(program.format, program.parts, ModelConfig(), lambda _: None)
    try:
        names = [info.name for info in test.model.graph.input]
        order = [names.index(spec.name) for spec in model.inputs]
        made = []
        for inputs, _ in test.data_sets:
            given = [_packed(spec, _value(inputs[at])) for spec, at in zip(model.inputs, order, strict=True)]
            outputs = model.run(given, Cancellation())
            made.append([_unpacked(*one) for one in zip(model.outputs, outputs, strict=True)])
        return made
    finally:
        model.close()


def _in_process(test: NodeTest) -> list[list[Any]] | None:
    """Return ONNX Runtime's own outputs, or None if it raises an error."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    names = [info.name for info in test.model.graph.input]
    try:
        session = onnxruntime.InferenceSession(
            test.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [
            list(session.run(None, dict(zip(names, map(_value, inputs), strict=True)))) for inputs, _ in test.data_sets
        ]
    except Exception:  # Of many types, none of which is NNRt's.
        return None


def _value(given: Any) -> Any:
    """Return a value of a data set: an array, a list of values, or None."""
    if given is None or isinstance(given, list):
        return given and [_value(one) for one in given]
    return array(given)


def _packed(spec: TensorSpec, value: Any) -> Any:
    return spec.value.pack(value) if isinstance(spec, PackedSpec) else value


def _unpacked(spec: TensorSpec, value: Any) -> Any:
    return spec.value.unpack(value) if isinstance(spec, PackedSpec) else value


def _same(test: NodeTest, got: Any, wanted: Any) -> bool:
    """Return whether outputs are the same: arrays, or lists of them in any depth."""
    if wanted is None:
        return got is None
    if not isinstance(wanted, np.ndarray):
        is_list = isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted)
        return is_list and all(_same(test, *pair) for pair in zip(got, wanted, strict=True))
    if not isinstance(got, np.ndarray) or (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        return False
    if got.dtype.kind == "O":
        return bool(got.tolist() == wanted.tolist())
    return bool(np.allclose(got, wanted, rtol=test.rtol, atol=test.atol, equal_nan=got.dtype.kind in "fc"))


def _reason(error: NnrtError) -> str:
    """Return the error's text without names of nodes and values."""
    return re.sub(r"^(the ONNX model: )?(\w+ (node )?'[^']*': )?", "", str(error))


def document(outcomes: Outcomes) -> dict[str, Any]:
    """Return the summary of the outcomes that is written to the file."""
    others: dict[str, list[str]] = {}
    for name, said in sorted(outcomes.items()):
        if said != PASSED:
            others.setdefault(said, []).append(name)
    return {
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "all": len(outcomes),
        "passing": len(outcomes) - sum(map(len, others.values())),
        "others": dict(sorted(others.items())),
    }


def main() -> None:
    kept = document(program_outcomes(collected()))
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{kept['passing']} of {kept['all']} pass as programs; of the others:")
    for said, names in kept["others"].items():
        print(f"{len(names):5} {said}")


if __name__ == "__main__":
    main()
