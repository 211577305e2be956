"""Registry of oracles: ONNX Runtime, or onnx's reference evaluator for types that ONNX Runtime lacks.

The module of each family builds an ONNX model for each node type. ONNX images are NCHW: NHWC samples are transposed
before and after the model, and NumPy reorders the weights.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from nnrt_hdi.enums import ActivationType, Format, NodeType

AnyArray = NDArray[Any]
OPSET = 21
# In the order of NNRt's numbers, from 1.
DTYPES = [np.dtype(code) for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]
IR_VERSION = 10


class Onnx:
    """ONNX model under construction, whose inputs are given arrays."""

    def __init__(self, inputs: Sequence[AnyArray]) -> None:
        self.feeds = {f"x{index}": array for index, array in enumerate(inputs)}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: AnyArray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> tuple[str, ...]:
        """Add a node with several outputs, and return their names."""
        names = [f"y{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return tuple(names)

    def run(self, outputs: Sequence[str]) -> tuple[list[AnyArray], str]:
        """Return the values of tensors, and the name of the oracle that computed them."""
        try:
            session = self.session(outputs)
            return [np.asarray(result) for result in session.run(None, self.feeds)], "onnxruntime"
        except _REFUSALS:
            with np.errstate(all="ignore"):
                results: Any = ReferenceEvaluator(self._model(outputs)).run(None, self.feeds)
            return [np.asarray(result) for result in results], "onnx reference"

    def session(self, outputs: Sequence[str]) -> Any:
        """Return an ONNX Runtime session of the model with one thread."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        model = self._model(outputs).SerializeToString()
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def _model(self, names: Sequence[str]) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, element_type(array.dtype), array.shape)
            for name, array in self.feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in names]
        graph = helper.make_graph(self.nodes, "sample", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def element_type(dtype: np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


_STATE = onnxruntime.capi.onnxruntime_pybind11_state
_REFUSALS = (
    _STATE.NotImplemented,
    _STATE.InvalidGraph,
    _STATE.InvalidArgument,
    _STATE.RuntimeException,
    _STATE.Fail,
)

Attrs = Mapping[str, Any]
# Returns the names of one or several outputs, or the outputs' values from an oracle other than ONNX.
Oracle = Callable[[Onnx, list[AnyArray], Attrs, Format], str | tuple[str, ...] | list[AnyArray]]
ORACLES: dict[NodeType, Oracle] = {}


def expected(
    node_type: NodeType, arrays: Sequence[AnyArray], attrs: Attrs, layout: Format
) -> tuple[list[AnyArray], str]:
    """Return the outputs of a node, and the name of the oracle that computed them.

    FLOAT16 is computed in FLOAT32, and rounded at the end.
    """
    half = arrays[0].dtype == np.float16 and node_type is not NodeType.CAST
    wide = [array.astype(np.float32) if half and array.dtype == np.float16 else array for array in arrays]
    model = Onnx(wide)
    named = ORACLES[node_type](model, wide, attrs, layout)
    if isinstance(named, list):
        results, name = named, "LiteRT"
    else:
        results, name = model.run((named,) if isinstance(named, str) else named)
    with np.errstate(all="ignore"):
        return [
            result.astype(np.float16) if half and result.dtype == np.float32 else result for result in results
        ], name


def oracle(node_type: NodeType) -> Callable[[Oracle], Oracle]:
    def register(function: Oracle) -> Oracle:
        ORACLES[node_type] = function
        return function

    return register


def fused(model: Onnx, y: str, dtype: np.dtype[Any], attrs: Attrs) -> str:
    kind = attrs.get("activation_type", ActivationType.NO_ACTIVATION)
    if kind == ActivationType.NO_ACTIVATION:
        return y
    low = model.constant(np.array(0, dtype))
    high = model.constant(np.array(6, dtype))
    return model.op("Clip", y, low, high) if kind == ActivationType.RELU6 else model.op("Max", y, low)


def per_channel(model: Onnx, name: str, rank: int, layout: Format) -> str:
    """Return a vector reshaped to [C, 1, 1] if the channels are dimension 1, else unchanged."""
    if layout is not Format.NCHW:
        return name
    return model.op("Reshape", name, model.constant(np.array([-1] + [1] * (rank - 2))))
