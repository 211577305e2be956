"""ONNX models for tests, and the two that run them: ONNX Runtime as they are, a backend as imported."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from nnrt_backend_reference.backend import ReferenceBackend
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from nnrt_client import Model
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig

AnyArray = NDArray[Any]
Shape = Sequence[int | str | None]

IR_VERSION = 10
OPSET = 21
REFERENCE: Backend = ReferenceBackend()


class Graph:
    """An ONNX graph under construction; names are given to whatever has none."""

    def __init__(self, opset: int = OPSET) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Shape, dtype: Any = np.float32) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, element_type(dtype), shape))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, op_type: str, *inputs: str, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        names = [f"y{len(self.nodes)}" + (f"_{at}" if at else "") for at in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name, **attributes))
        return names[0] if outputs == 1 else names

    def model(self, *outputs: str) -> onnx.ModelProto:
        wanted = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "graph", self.inputs, wanted, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)


def element_type(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def run_imported(model: Model, feeds: Mapping[str, AnyArray], backend: Backend = REFERENCE) -> list[AnyArray]:
    """The outputs of an imported model on a backend, in this process."""
    prepared = backend.prepare(model.graph, ModelConfig(), lambda _: None)
    try:
        return [np.asarray(y) for y in prepared.run([feeds[x.desc.name] for x in model.inputs], Cancellation())]
    finally:
        prepared.close()


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, AnyArray]) -> list[AnyArray]:
    """The outputs of an ONNX model in ONNX Runtime, computed as it is written."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, dict(feeds))]
