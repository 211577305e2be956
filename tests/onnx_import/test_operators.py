"""Each form of each operator: as ONNX Runtime computes it, and through import and a daemon of either backend."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_models import AnyArray, Graph, run_onnxruntime
from samples import OF_ANY_SIZE, SAMPLES, Sample
from samples_attention import ATTENTION, GROUPED
from samples_microsoft import FUSED, QUANTIZED

from nnrt_client import Compilation, Executor, OperationFailed, Runtime, from_onnx
from nnrt_client.onnx_import.operators.operator import OPERATORS, find_operator

pytestmark = pytest.mark.table

# Forms of operators that the ONNX Runtime backend does not run, as its page says, by their constants.
_REFUSED = {
    ("ConvInteger", frozenset({2})): "ONNX Runtime has no Conv kernel for FLOAT64",
}


def graph_of(sample: Sample, *, are_sizes_known: bool = True) -> tuple[onnx.ModelProto, dict[str, AnyArray]]:
    """The model of a sample, which also has an input that it may not need, and what it is fed."""
    g = Graph(sample.opset)
    feeds: dict[str, AnyArray] = {"unused": np.ones(1, "f4")}
    g.input("unused", [1])
    names = []
    for at, value in enumerate(sample.given):
        if value is None:
            names.append("")
        elif at in sample.constant:
            names.append(g.constant(value))
        else:
            # How many numbers there are for dimensions is known before a run.
            is_vector = sample.op_type in ("Pad", "Resize", "Slice", "Split") and at > 0
            shape = np.shape(value) if are_sizes_known or is_vector else [None] * np.ndim(value)
            names.append(g.input(f"x{at}", shape, np.asarray(value).dtype))
            feeds[f"x{at}"] = np.asarray(value)
    y = g.op(sample.op_type, *names, outputs=sample.outputs, domain=sample.domain, **sample.attributes)
    used = g.op("Neg", "unused")
    return g.model(*([y] if sample.outputs == 1 else y), used), feeds


def expected(sample: Sample, proto: onnx.ModelProto, feeds: Mapping[str, AnyArray]) -> list[AnyArray]:
    if sample.by_reference:
        return [np.asarray(y) for y in ReferenceEvaluator(proto).run(None, dict(feeds))]
    return run_onnxruntime(proto, feeds)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_operator_gives_what_onnx_runtime_gives(sample: Sample, each_runtime: Runtime) -> None:
    proto, feeds = graph_of(sample)
    model = from_onnx(proto.SerializeToString())
    with Compilation(model, each_runtime.device()) as compilation:
        reason = _REFUSED.get((sample.op_type, sample.constant))
        if reason and each_runtime.device().info.backend_name == "onnxruntime":
            with pytest.raises(OperationFailed, match=reason):
                compilation.build()
            return
        compilation.build()
        with Executor(compilation) as executor:
            given = executor.run_sync([feeds[tensor.desc.name] for tensor in model.inputs])
    for mine, theirs in zip(given, expected(sample, proto, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        # A quantized result may be a step beside it, where a half is rounded the other way.
        step = 1 if sample.op_type.startswith("QLinear") else 0
        np.testing.assert_allclose(mine.astype("f8"), theirs.astype("f8"), rtol=1e-4, atol=1e-5 + step)


@pytest.mark.parametrize("sample", OF_ANY_SIZE, ids=str)
def test_sizes_that_only_a_run_knows(sample: Sample, each_runtime: Runtime) -> None:
    proto, feeds = graph_of(sample, are_sizes_known=False)
    model = from_onnx(proto.SerializeToString())
    with Compilation(model, each_runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            given = executor.run_sync([feeds[tensor.desc.name] for tensor in model.inputs])
    for mine, theirs in zip(given, run_onnxruntime(proto, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_every_form_of_every_operator_has_a_sample() -> None:
    declared = {id(form) for forms in OPERATORS.values() for form in forms}
    sampled = {
        id(find_operator(sample.domain, sample.op_type, 1 if sample.domain else sample.opset))
        for sample in [*SAMPLES, *ATTENTION, *GROUPED, *QUANTIZED, *FUSED]
    }
    missing = [
        f"{form.name} from {form.since} on" for forms in OPERATORS.values() for form in forms if id(form) not in sampled
    ]
    assert missing == []
    assert sampled <= declared
