"""Graphs that the tests of the ONNX Runtime backend lower and run, built node by node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from nnrt_backend_onnxruntime.backend import OnnxRuntimeBackend, create
from nnrt_backend_onnxruntime.kernels import Kernels
from nnrt_backend_onnxruntime.model import OnnxModel
from nnrt_backend_onnxruntime.program import Lowered, lower
from numpy.typing import NDArray

from nnrt_hdi.backend import Cancellation, ModelConfig, load_backend
from nnrt_hdi.enums import DataType, Format, NodeType, PadMode
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import infer_node, inferred_graph
from nnrt_hdi.tensor import QuantParam, Shape, TensorSpec, data_type_of

AnyArray = NDArray[Any]
FLOAT32 = DataType.FLOAT32


def backend(**options: str) -> OnnxRuntimeBackend:
    made = create({"threads": "1", **options})
    assert isinstance(made, OnnxRuntimeBackend)
    return made


def prepare(graph: Graph, **config: Any) -> OnnxModel:
    return backend().prepare(graph, ModelConfig(**config), lambda _: None)


def run(graph: Graph, *inputs: AnyArray, **config: Any) -> list[AnyArray]:
    return prepare(graph, **config).run(inputs, Cancellation())


def reference(graph: Graph, *inputs: AnyArray) -> list[AnyArray]:
    return load_backend("reference").prepare(graph, ModelConfig(), lambda _: None).run(inputs, Cancellation())


def require_close(actual: Sequence[AnyArray], wanted: Sequence[AnyArray], rtol: float = 1e-4) -> None:
    for pair in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(*pair, rtol=rtol, atol=1e-5)


def lowered(graph: Graph, **options: Any) -> Lowered:
    return lower(inferred_graph(graph), Kernels([("CPUExecutionProvider", {})]), **options)


def optimized(graph: Graph) -> Any:
    """The ONNX model that ONNX Runtime's optimizations make."""
    _, _, model, _ = (bytes(part.data) for part in prepare(graph).export())
    return onnx.load_from_string(model)


def run_lowered(made: Lowered, *inputs: AnyArray) -> list[AnyArray]:
    """The outputs of a model that was lowered, as ONNX Runtime computes it unasked."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in made.weights.items()}
    options.add_external_initializers(list(values), list(values.values()))
    session = onnxruntime.InferenceSession(made.model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return [np.asarray(y) for y in session.run(None, dict(zip(names, inputs, strict=True)))]


def op_types(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


class Net:
    """A graph under construction; tensors are numbers."""

    def __init__(self, layout: Format = Format.NHWC, seed: int = 0) -> None:
        self.layout = layout
        self.random = np.random.default_rng(seed)
        self.tensors: list[TensorSpec] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.constants: dict[int, Constant] = {}

    def spec(self, shape: Shape, data_type: DataType = FLOAT32, quant: tuple[QuantParam, ...] = ()) -> TensorSpec:
        layout = self.layout if len(shape) == 4 else Format.NONE
        return TensorSpec(data_type, tuple(shape), layout, quant)

    def input(self, *shape: int, data_type: DataType = FLOAT32, quant: tuple[QuantParam, ...] = ()) -> int:
        self.inputs.append(self._tensor(self.spec(shape, data_type, quant)))
        return self.inputs[-1]

    def constant(self, array: AnyArray, quant: tuple[QuantParam, ...] = ()) -> int:
        at = self._tensor(self.spec(array.shape, data_type_of(array.dtype), quant))
        self.constants[at] = Constant.of(array)
        return at

    def weights(self, *shape: int) -> int:
        return self.constant(self.random.standard_normal(shape).astype(np.float32))

    def op(self, node_type: NodeType, *inputs: int, outputs: Sequence[TensorSpec] = (), **attrs: Any) -> int:
        """A node; its first output, of which only the rank must be known to be given."""
        declared = outputs or [self._inferred(node_type, inputs, attrs)]
        made = [self._tensor(spec) for spec in declared]
        self.nodes.append(Node(node_type, inputs, tuple(made), attrs))
        return made[0]

    def conv(self, x: int, channels: int, kernel: int = 3, **attrs: Any) -> int:
        spec = self.tensors[x]
        size = (channels, kernel, kernel, spec.shape[spec.channel_axis])
        if self.layout is Format.NCHW:
            size = size[0], size[3], kernel, kernel
        attrs = {"pad_mode": PadMode.SAME, **attrs}
        return self.op(NodeType.CONV2D_FUSION, x, self.weights(*size), self.weights(channels), **attrs)

    def graph(self, *outputs: int) -> Graph:
        return Graph(tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), outputs, self.constants)

    def _tensor(self, spec: TensorSpec) -> int:
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def _inferred(self, node_type: NodeType, inputs: Sequence[int], attrs: Any) -> TensorSpec:
        constants = (self.constants.get(at) for at in inputs)
        values = (constant.shape_value if constant else None for constant in constants)
        operands = list(zip((self.tensors[at] for at in inputs), values, strict=True))
        (spec,) = infer_node(Node(node_type, (), (0,), attrs), operands)
        return spec
