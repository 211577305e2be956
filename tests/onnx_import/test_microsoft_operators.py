"""Each operator that ONNX Runtime adds: as it computes it, and through import and a daemon of either backend."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx_models import AnyArray, run_onnxruntime
from samples import Sample
from samples_microsoft import FUSED, OF_TEXTS, QUANTIZED, TEXTS_AND_STEPS
from test_operators import graph_of

from nnrt_client import Compilation, Executor, Runtime, from_onnx

pytestmark = pytest.mark.table


@pytest.mark.parametrize("sample", [*QUANTIZED, *FUSED], ids=str)
def test_operator_gives_what_onnx_runtime_gives(sample: Sample, each_runtime: Runtime) -> None:
    require_same(sample, *graph_of(sample), each_runtime)


@pytest.mark.parametrize("sample", OF_TEXTS, ids=str)
def test_texts_whose_number_and_length_only_a_run_knows(sample: Sample, each_runtime: Runtime) -> None:
    proto, feeds = graph_of(sample)
    for info in proto.graph.input:
        dims = info.type.tensor_type.shape.dim
        texts, steps = TEXTS_AND_STEPS[len(dims)] if info.name != "unused" else (None, None)
        if texts is not None:
            dims[texts].dim_param = "texts"
        if steps is not None:
            dims[steps].Clear()
    require_same(sample, proto, feeds, each_runtime)


def require_same(sample: Sample, proto: onnx.ModelProto, feeds: Mapping[str, AnyArray], runtime: Runtime) -> None:
    model = from_onnx(proto.SerializeToString())
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            given = executor.run_sync([feeds[tensor.desc.name] for tensor in model.inputs])
    # A quantized result may be a step beside it, where a half is rounded the other way.
    is_quantized = sample.op_type.startswith(("QLinear", "QGemm")) and given[0].dtype.kind != "f"
    for mine, theirs in zip(given, run_onnxruntime(proto, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        atol = sample.atol + (1 if is_quantized else 0)
        np.testing.assert_allclose(mine.astype("f8"), theirs.astype("f8"), rtol=1e-4, atol=atol)
