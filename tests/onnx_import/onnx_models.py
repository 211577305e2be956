"""ONNX models for tests and benchmarks, run in ONNX Runtime, or imported on a backend."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from nnrt_backend_reference.backend import ReferenceBackend
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from nnrt_client import Model
from nnrt_client.model.model import parts_of
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig

AnyArray = NDArray[Any]
Shape = Sequence[int | str | None]

IR_VERSION = 10
OPSET = 21
# Networks in the package onnx.
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
# Hidden layers of 4096 are narrowed: this shrinks a network from 500 to 100 MiB.
WIDE, NARROW = 4096, 256
REFERENCE: Backend = ReferenceBackend()


class Graph:
    """ONNX graph under construction, which generates missing names."""

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
        others = sorted({node.domain for node in self.nodes} - {""})
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in others)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def with_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network with random weights, without its softmax.

    onnx's own weights are all equal, so that the results would show no error.
    """
    rng = np.random.default_rng(1)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    nodes = []
    for node in proto.graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        shape = [NARROW if dim == WIDE else dim for dim in shapes[node.input[0]].tolist()]
        spread = np.sqrt(2 / max(np.prod(shape[1:]), 1), dtype="f4")
        weight = rng.standard_normal(shape, "f4") * spread if len(shape) > 1 else rng.random(shape, "f4") + 0.5
        proto.graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
    (last,) = (node for node in nodes if node.output[0] == proto.graph.output[0].name)
    if last.op_type == "Softmax":
        nodes.remove(last)
        proto.graph.output[0].CopyFrom(onnx.helper.make_empty_tensor_value_info(last.input[0]))
    del proto.graph.value_info[:], proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto


def element_type(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def run_imported(model: Model, feeds: Mapping[str, AnyArray], backend: Backend = REFERENCE) -> list[AnyArray]:
    """Run an imported model on a backend in this process, and return the outputs."""
    prepared = backend.prepare(parts_of(model).graph, ModelConfig(), lambda _: None)
    try:
        return [np.asarray(y) for y in prepared.run([feeds[x.desc.name] for x in model.inputs], Cancellation())]
    finally:
        prepared.close()


# Operands of operators that multiply bytes: activations and their zero point, and each weight with its zero point.
_MULTIPLY_BYTES = {
    "ConvInteger": ((0, 2), ((1, 3),)),
    "DynamicQuantizeLSTM": ((), ((1, 9), (2, 11))),
    "DynamicQuantizeMatMul": ((), ((1, 3),)),
    "MatMulInteger": ((0, 2), ((1, 3),)),
    "MatMulIntegerToFloat": ((0, 4), ((1, 5),)),
    "QAttention": ((0, 6), ((1, 7),)),
    "QGemm": ((0, 2), ((3, 5),)),
    "QLinearConv": ((0, 2), ((3, 5),)),
    "QLinearMatMul": ((0, 2), ((3, 5),)),
}


def with_exact_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its INT8 weights converted to UINT8 weights for the same numbers.

    On processors without VNNI, ONNX Runtime adds products of UINT8 and INT8 in 16 bits, which saturate. It adds
    products of UINT8 and UINT8 in 32 bits everywhere.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    types = {info.name: info.type.tensor_type.elem_type for info in (*graph.input, *graph.value_info)}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    types |= {node.output[0]: node.attribute[0].t.data_type for node in graph.node if node.op_type == "Constant"}
    flipped: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def in_uint8(name: str) -> str:
        if name not in flipped:
            new = flipped[name] = f"{name or 'none'}/uint8"
            if not name:
                graph.initializer.append(onnx.numpy_helper.from_array(np.uint8(128), new))
                return new
            wide, moved, by = f"{new}/wide", f"{new}/moved", f"{new}/by"
            graph.initializer.append(onnx.numpy_helper.from_array(np.int32(128), by))
            nodes.append(onnx.helper.make_node("Cast", [name], [wide], to=onnx.TensorProto.INT32))
            nodes.append(onnx.helper.make_node("Add", [wide, by], [moved]))
            nodes.append(onnx.helper.make_node("Cast", [moved], [new], to=onnx.TensorProto.UINT8))
        return flipped[name]

    for node in graph.node:
        activations, weights = _MULTIPLY_BYTES.get(node.op_type, ((), ()))
        of = [types.get(name) for name in node.input]
        if all(of[at] != onnx.TensorProto.INT8 for at in activations if at < len(of)):
            for weight, zero in weights:
                if of[weight] == onnx.TensorProto.INT8:
                    node.input.extend([""] * (zero + 1 - len(node.input)))
                    node.input[weight], node.input[zero] = in_uint8(node.input[weight]), in_uint8(node.input[zero])
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, AnyArray]) -> list[AnyArray]:
    """Run an ONNX model in ONNX Runtime without optimizations, with the same result on every processor."""
    model = with_exact_products(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, dict(feeds))]
