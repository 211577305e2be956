"""ONNX's own node tests: imported, and run on the reference and the ONNX Runtime backend.

`python tests/onnx_import/node_tests.py` (with tests/ in PYTHONPATH) writes node_tests.json: the tests that pass, and
the reasons why the others don't.
"""

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx_models import REFERENCE, AnyArray, run_imported

from nnrt_client import NnrtError, from_onnx
from nnrt_hdi.backend import Backend, load_backend

KEPT = Path(__file__).with_name("node_tests.json")
PASSED = "passes"
FROZEN = "passes with its other inputs as constants"

Outcomes = Mapping[str, str]


@dataclass(frozen=True)
class NodeTest:
    name: str
    model: onnx.ModelProto
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


def collected() -> Iterator[NodeTest]:
    with warnings.catch_warnings():
        # Warnings of onnx's own test cases.
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    for case in cases:
        assert case.model is not None and case.data_sets is not None
        sets = [(list(inputs), list(outputs)) for inputs, outputs in case.data_sets]
        yield NodeTest(case.name, case.model, sets, case.rtol, case.atol)


def outcomes_of(tests: Iterable[NodeTest]) -> tuple[Outcomes, Outcomes]:
    """Return the outcomes by name on the reference backend, and of those that pass there on ONNX Runtime."""
    kept = {test.name: test for test in tests}
    reference = {name: outcome(test, REFERENCE) for name, test in kept.items()}
    backend = load_backend("onnxruntime", {"threads": "1"})
    try:
        passing = [name for name, said in reference.items() if said in (PASSED, FROZEN)]
        return reference, {name: outcome(kept[name], backend) for name in passing}
    finally:
        backend.close()


def outcome(test: NodeTest, backend: Backend) -> str:
    """Return PASSED, FROZEN, or the reason why the test doesn't pass."""
    try:
        return _run(test, test.model, backend) or PASSED
    except NnrtError:
        pass
    # Real models have constant axes and shapes, but these tests have them as inputs.
    try:
        return _run(test, _frozen(test), backend) or FROZEN
    except NnrtError as error:
        return _reason(error)


def _run(test: NodeTest, model: onnx.ModelProto, backend: Backend) -> str:
    """Return how the outputs differ from ONNX's, or an empty string."""
    imported = from_onnx(model.SerializeToString())
    for inputs, outputs in test.data_sets:
        names = [info.name for info in test.model.graph.input]
        given = run_imported(imported, dict(zip(names, map(array, inputs), strict=True)), backend)
        for at, (got, wanted) in enumerate(zip(given, map(array, outputs), strict=True)):
            if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
                return f"output {at} is {got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
            if not np.allclose(got, wanted, rtol=test.rtol, atol=test.atol, equal_nan=True):
                return f"output {at} differs by {_steps(got, wanted):.0f} rounding steps of {got.dtype}"
    return ""


def _steps(got: AnyArray, wanted: AnyArray) -> float:
    """Return the largest difference in units in the last place of the data type."""
    if got.dtype.kind != "f":
        return float(np.abs(got.astype("f8") - wanted.astype("f8")).max())
    return float((np.abs(got.astype("f8") - wanted.astype("f8")) / np.spacing(np.abs(wanted)).astype("f8")).max())


def _frozen(test: NodeTest) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    (inputs, _), *_ = test.data_sets
    for info, value in list(zip(test.model.graph.input, inputs, strict=True))[1:]:
        if isinstance(value, np.ndarray | np.generic | onnx.TensorProto):
            model.graph.initializer.append(numpy_helper.from_array(array(value), info.name))
    return model


def array(value: Any) -> AnyArray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _reason(error: NnrtError) -> str:
    """Return the last problem of an import error, without names of nodes and models."""
    return re.sub(r"^.*? node '[^']*'(\.\.\.)?: |^.*? node: |^the ONNX model: ", "", str(error).split("\n")[-1].strip())


def document(outcomes: Outcomes, on_onnxruntime: Outcomes) -> dict[str, Any]:
    """Return the summary of the outcomes that is written to the file."""
    not_there: dict[str, list[str]] = {}
    for name, said in sorted(on_onnxruntime.items()):
        if said not in (PASSED, FROZEN):
            not_there.setdefault(said, []).append(name)
    by_reason: dict[str, list[str]] = {PASSED: [], FROZEN: []}
    for name, said in sorted(outcomes.items()):
        by_reason.setdefault(said, []).append(name)
    passing = {said: by_reason.pop(said) for said in (PASSED, FROZEN)}
    failing = {said: by_reason.pop(said) for said in sorted(by_reason) if re.match(r"output \d", said)}
    passed, failed = (sum(map(len, group.values())) for group in (passing, failing))
    return {
        "onnx": onnx.__version__,
        "all": len(outcomes),
        "mapped": passed + failed,
        "passing": passed,
        **passing,
        "failing": failing,
        "passing on ONNX Runtime": len(on_onnxruntime) - sum(map(len, not_there.values())),
        "not passing on ONNX Runtime": not_there,
        "skipped": dict(sorted(by_reason.items())),
    }


def main() -> None:
    kept = document(*outcomes_of(collected()))
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{kept['passing']} of {kept['mapped']} pass, {kept['passing on ONNX Runtime']} also on ONNX Runtime;")
    print(f"{kept['all']} in all")


if __name__ == "__main__":
    main()
