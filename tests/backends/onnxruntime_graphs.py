"""Helpers of the ONNX Runtime backend's tests: lower graphs, and run them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from loaded import loaded
from nnrt_backend_onnxruntime.backend import OnnxRuntimeBackend, create
from nnrt_backend_onnxruntime.kernels import Kernels
from nnrt_backend_onnxruntime.model import OnnxModel
from nnrt_backend_onnxruntime.processor import features, integer_kernels
from nnrt_onnx_lowering import IntegerTypes, Lowered, lower
from numpy.typing import NDArray

from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph

AnyArray = NDArray[Any]
CPU = [("CPUExecutionProvider", dict[str, str]())]


def backend(**options: str) -> OnnxRuntimeBackend:
    made = create({"threads": "1", **options})
    assert isinstance(made, OnnxRuntimeBackend)
    return made


def prepare(graph: Graph, **config: Any) -> OnnxModel:
    return backend().prepare(graph, ModelConfig(**config), lambda _: None)


def run(graph: Graph, *inputs: AnyArray, **config: Any) -> list[AnyArray]:
    return prepare(graph, **config).run(inputs, Cancellation())


def reference(graph: Graph, *inputs: AnyArray) -> list[AnyArray]:
    return loaded("reference").prepare(graph, ModelConfig(), lambda _: None).run(inputs, Cancellation())


def require_close(actual: Sequence[AnyArray], wanted: Sequence[AnyArray], rtol: float = 1e-4) -> None:
    for pair in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(*pair, rtol=rtol, atol=1e-5)


def lowered(graph: Graph, *engine: IntegerTypes, float16: bool = False) -> Lowered:
    """Lower a graph, for a processor with these integer types if any are given."""
    return lower(inferred_graph(graph), Kernels(CPU, *engine, computes_float16=float16), float16=float16)


def optimized(graph: Graph) -> Any:
    """Return the ONNX model after ONNX Runtime's optimizations."""
    _, _, model, _ = (bytes(part.data) for part in prepare(graph).export())
    return onnx.load_from_string(model)


def run_lowered(made: Lowered, *inputs: AnyArray) -> list[AnyArray]:
    """Run a lowered model in ONNX Runtime, with the integer kernels that are exact on this processor."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for key, value in integer_kernels(features()).entries.items():
        options.add_session_config_entry(key, value)
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in made.weights.items()}
    options.add_external_initializers(list(values), list(values.values()))
    session = onnxruntime.InferenceSession(made.model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return [np.asarray(y) for y in session.run(None, dict(zip(names, inputs, strict=True)))]


def op_types(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]
