"""ONNX's own node tests: imported, and run on the reference backend.

`python tests/onnx_import/node_tests.py` (with tests/ in PYTHONPATH) writes node_tests.json: what passes, and of all
others why they don't.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx_models import AnyArray, run_imported

from nnrt_client import NnrtError, from_onnx

KEPT = Path(__file__).with_name("node_tests.json")
PASSED = "passes"
FROZEN = "passes with its other inputs as constants"


@dataclass(frozen=True)
class NodeTest:
    name: str
    model: onnx.ModelProto
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


def collected() -> Iterator[NodeTest]:
    with warnings.catch_warnings():
        # What onnx's own test cases do to numpy is not ours.
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    for case in cases:
        assert case.model is not None and case.data_sets is not None
        sets = [(list(inputs), list(outputs)) for inputs, outputs in case.data_sets]
        yield NodeTest(case.name, case.model, sets, case.rtol, case.atol)


def outcome(test: NodeTest) -> str:
    """PASSED or FROZEN, or why not."""
    try:
        return _run(test, test.model) or PASSED
    except NnrtError:
        pass
    # Models have axes and shapes as constants; these tests have them as inputs.
    try:
        return _run(test, _frozen(test)) or FROZEN
    except NnrtError as error:
        return _reason(error)


def _run(test: NodeTest, model: onnx.ModelProto) -> str:
    """What is wrong with the outputs."""
    imported = from_onnx(model.SerializeToString())
    for inputs, outputs in test.data_sets:
        names = [info.name for info in test.model.graph.input]
        given = run_imported(imported, dict(zip(names, map(array, inputs), strict=True)))
        for at, (got, wanted) in enumerate(zip(given, map(array, outputs), strict=True)):
            if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
                return f"output {at} is {got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
            if not np.allclose(got, wanted, rtol=test.rtol, atol=test.atol, equal_nan=True):
                return f"output {at} differs by {_steps(got, wanted):.0f} rounding steps of {got.dtype}"
    return ""


def _steps(got: AnyArray, wanted: AnyArray) -> float:
    """By how many of the smallest differences that the data type has at that place."""
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
    """The last thing that can't be imported, without the names around it."""
    return re.sub(r"^.*? node '[^']*'(\.\.\.)?: |^.*? node: |^the ONNX model: ", "", str(error).split("\n")[-1].strip())


def document(outcomes: Mapping[str, str]) -> dict[str, Any]:
    """What is kept of the outcomes."""
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
        "skipped": dict(sorted(by_reason.items())),
    }


def main() -> None:
    kept = document({test.name: outcome(test) for test in collected()})
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{kept['passing']} of {kept['mapped']} pass; {kept['all']} in all")


if __name__ == "__main__":
    main()
