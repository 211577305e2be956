"""What other people's code says an operator gives: ONNX Runtime, or where it lacks a type onnx's reference evaluator.

Each node type is written down once as an ONNX model. ONNX images are NCHW: those of a sample in NHWC are transposed
around the model, and weights are reordered, with numpy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from nnrt_hdi.enums import ActivationType, Format, NodeType, PaddingMode, PadMode, ReduceMode, RoundMode

AnyArray = NDArray[Any]
OPSET = 21
# In the order of the numbers that NNRt gives them, from 1.
DTYPES = [np.dtype(code) for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]
IR_VERSION = 10


class Onnx:
    """An ONNX model under construction, from arrays to one output."""

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

    def run(self, output: str) -> tuple[AnyArray, str]:
        """The elements of a tensor, and whose they are."""
        model = self._model(output)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return np.asarray(session.run(None, self.feeds)[0]), "onnxruntime"
        except _REFUSALS:
            with np.errstate(all="ignore"):
                results: Any = ReferenceEvaluator(model).run(None, self.feeds)
            return np.asarray(results[0]), "onnx reference"

    def _model(self, output: str) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, element_type(array.dtype), array.shape)
            for name, array in self.feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(output)]
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
Oracle = Callable[[Onnx, list[AnyArray], Attrs, Format], str]
ORACLES: dict[NodeType, Oracle] = {}


def expected(node_type: NodeType, arrays: Sequence[AnyArray], attrs: Attrs, layout: Format) -> tuple[AnyArray, str]:
    """What a node gives, and which oracle says so. FLOAT16 is computed in FLOAT32, and rounded at the end."""
    half = arrays[0].dtype == np.float16 and node_type is not NodeType.CAST
    wide = [array.astype(np.float32) if half and array.dtype == np.float16 else array for array in arrays]
    model = Onnx(wide)
    result, name = model.run(ORACLES[node_type](model, wide, attrs, layout))
    with np.errstate(all="ignore"):
        return (result.astype(np.float16) if half and result.dtype == np.float32 else result), name


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


# ---- activation ------------------------------------------------------------------------------------------------------

_PLAIN = {
    ActivationType.NO_ACTIVATION: "Identity",
    ActivationType.LINEAR: "Identity",
    ActivationType.RELU: "Relu",
    ActivationType.SIGMOID: "Sigmoid",
    ActivationType.ABS: "Abs",
    ActivationType.SOFTSIGN: "Softsign",
    ActivationType.SOFTPLUS: "Softplus",
    ActivationType.TANH: "Tanh",
    ActivationType.SELU: "Selu",
    ActivationType.HSWISH: "HardSwish",
    ActivationType.SIGN: "Sign",
}


@oracle(NodeType.ACTIVATION)
def activation(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    dtype = arrays[0].dtype
    kind = attrs["activation_type"]

    def clip(low: float, high: float) -> str:
        return model.op("Clip", "x0", model.constant(np.array(low, dtype)), model.constant(np.array(high, dtype)))

    match kind:
        case ActivationType.RELU6:
            return clip(0, 6)
        case ActivationType.RELU1:
            return clip(-1, 1)
        case ActivationType.HARD_TANH:
            return clip(attrs["min_val"], attrs["max_val"])
        case ActivationType.THRESHOLDRELU:
            return clip(0, attrs["alpha"])
        case ActivationType.ELU:
            return model.op("Elu", "x0", alpha=attrs["alpha"])
        case ActivationType.LEAKY_RELU:
            return model.op("LeakyRelu", "x0", alpha=attrs["alpha"])
        case ActivationType.HSIGMOID | ActivationType.HSWISH | ActivationType.GELU if dtype == np.float64:
            return _in_double(model, kind)
        case ActivationType.HSIGMOID:
            return model.op("HardSigmoid", "x0", alpha=1 / 6, beta=0.5)
        case ActivationType.SWISH:
            return model.op("Mul", "x0", model.op("Sigmoid", "x0"))
        case ActivationType.GELU:
            return model.op("Gelu", "x0", approximate="tanh" if attrs.get("approximate") else "none")
    return model.op(_PLAIN[kind], "x0")


def _in_double(model: Onnx, kind: ActivationType) -> str:
    """Functions whose constants ONNX Runtime has in single precision only, as ONNX defines them; GELU by tanh."""

    def number(value: float) -> str:
        return model.constant(np.array(value, np.float64))

    if kind is ActivationType.GELU:
        cube = model.op("Mul", number(0.044715), model.op("Pow", "x0", number(3)))
        inner = model.op("Mul", number(np.sqrt(2 / np.pi)), model.op("Add", "x0", cube))
        return model.op("Mul", model.op("Mul", number(0.5), "x0"), model.op("Add", number(1), model.op("Tanh", inner)))
    clipped = model.op("Clip", model.op("Add", "x0", number(3)), number(0), number(6))
    sixth = model.op("Div", clipped, number(6))
    return sixth if kind is ActivationType.HSIGMOID else model.op("Mul", "x0", sixth)


# ---- arithmetic, linear, normalization -------------------------------------------------------------------------------


def _arithmetic(op_type: str, of_bool: str) -> Oracle:
    def build(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
        if arrays[0].dtype == arrays[1].dtype == np.bool_:
            return model.op(of_bool, "x0", "x1")
        dtype = np.result_type(*arrays)
        # ONNX Runtime has no narrow integers here: those wrap around on the way back.
        wide = np.dtype(np.int64) if dtype.kind in "iu" else dtype
        y = model.op(op_type, *(model.op("Cast", f"x{i}", to=element_type(wide)) for i in range(2)))
        return fused(model, model.op("Cast", y, to=element_type(dtype)), dtype, attrs)

    return build


ORACLES[NodeType.ADD_FUSION] = _arithmetic("Add", "Or")
ORACLES[NodeType.SUB_FUSION] = _arithmetic("Sub", "")
ORACLES[NodeType.MUL_FUSION] = _arithmetic("Mul", "And")
ORACLES[NodeType.DIV_FUSION] = _arithmetic("Div", "")


def _per_channel(model: Onnx, name: str, rank: int, layout: Format) -> str:
    """A vector as [C, 1, 1] where channels are dimension 1; as it is where they are last."""
    if layout is not Format.NCHW:
        return name
    return model.op("Reshape", name, model.constant(np.array([-1] + [1] * (rank - 2))))


@oracle(NodeType.BIAS_ADD)
def bias_add(model: Onnx, arrays: list[AnyArray], _: Attrs, layout: Format) -> str:
    return model.op("Add", "x0", _per_channel(model, "x1", arrays[0].ndim, layout))


@oracle(NodeType.FULL_CONNECTION)
def full_connection(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    x, weight = arrays[:2]
    axis = attrs.get("axis", 0 if attrs.get("use_axis") else None)
    kept = () if axis is None else x.shape[: axis % x.ndim]
    rows = model.op("Reshape", "x0", model.constant(np.array([-1, weight.shape[1]])))
    y = model.op("Gemm", rows, "x1", *(["x2"] if len(arrays) == 3 else []), transB=1)
    if axis is not None:
        y = model.op("Reshape", y, model.constant(np.array([*kept, weight.shape[0]])))
    return fused(model, y, x.dtype, attrs)


@oracle(NodeType.MATMUL_FUSION)
def matmul(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    def operand(index: int, transposed: bool) -> str:
        rank = arrays[index].ndim
        order = [*range(rank - 2), rank - 1, rank - 2]
        return model.op("Transpose", f"x{index}", perm=order) if transposed else f"x{index}"

    y = model.op("MatMul", operand(0, attrs.get("transpose_a", False)), operand(1, attrs.get("transpose_b", False)))
    return fused(model, y, arrays[0].dtype, attrs)


@oracle(NodeType.FUSED_BATCH_NORM)
def batch_norm(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    rank = arrays[0].ndim
    epsilon = attrs.get("epsilon", 1e-4)
    if layout is Format.NCHW or rank == 2:
        return model.op("BatchNormalization", "x0", "x1", "x2", "x3", "x4", epsilon=epsilon)
    there = model.op("Transpose", "x0", perm=[0, rank - 1, *range(1, rank - 1)])
    y = model.op("BatchNormalization", there, "x1", "x2", "x3", "x4", epsilon=epsilon)
    return model.op("Transpose", y, perm=[0, *range(2, rank), 1])


@oracle(NodeType.SOFTMAX)
def softmax(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    return model.op("Softmax", "x0", axis=(attrs["axis"] or (-1,))[0])


# ---- shape, reduction, elementwise -----------------------------------------------------------------------------------


@oracle(NodeType.RESHAPE)
def reshape(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Reshape", "x0", model.constant(arrays[1].astype(np.int64)))


@oracle(NodeType.TRANSPOSE)
def transpose(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Transpose", "x0", perm=[int(axis) % arrays[0].ndim for axis in arrays[1]])


@oracle(NodeType.CONCAT)
def concat(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    return model.op("Concat", *(f"x{index}" for index in range(len(arrays))), axis=attrs.get("axis", 0))


@oracle(NodeType.PAD_FUSION)
def pad(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    mode = attrs.get("padding_mode", PaddingMode.CONSTANT)
    pads = model.constant(arrays[1].T.reshape(-1).astype(np.int64))
    value = model.constant(np.array(attrs.get("constant_value", 0.0), arrays[0].dtype))
    if mode == PaddingMode.CONSTANT:
        return model.op("Pad", "x0", pads, value)
    return model.op("Pad", "x0", pads, mode="reflect")


@oracle(NodeType.SQUEEZE)
def squeeze(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    named = attrs.get("axis") or range(arrays[0].ndim)
    axes = [axis for axis in named if arrays[0].shape[axis] == 1]
    return model.op("Squeeze", "x0", model.constant(np.array(axes, np.int64)))


@oracle(NodeType.UNSQUEEZE)
def unsqueeze(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    return model.op("Unsqueeze", "x0", model.constant(np.array(attrs["axis"])))


@oracle(NodeType.SHAPE)
def shape_of(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("Cast", model.op("Shape", "x0"), to=TensorProto.INT32)


_REDUCTIONS = {
    ReduceMode.MEAN: "ReduceMean",
    ReduceMode.MAX: "ReduceMax",
    ReduceMode.MIN: "ReduceMin",
    ReduceMode.PROD: "ReduceProd",
    ReduceMode.SUM: "ReduceSum",
    ReduceMode.SUM_SQUARE: "ReduceSumSquare",
    ReduceMode.ASUM: "ReduceL1",
    ReduceMode.ALL: "ReduceMin",
    ReduceMode.L2: "ReduceL2",
}


@oracle(NodeType.REDUCE_FUSION)
def reduce(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    x, axes = arrays[0], arrays[1].reshape(-1).astype(np.int64)
    if attrs.get("reduce_to_end"):
        axes = np.arange(axes[0] % x.ndim, x.ndim)
    mode = attrs.get("mode", ReduceMode.MEAN)
    name = "x0"
    if mode == ReduceMode.ALL:
        zero = model.constant(np.array(0, x.dtype))
        true = name if x.dtype == np.bool_ else model.op("Not", model.op("Equal", "x0", zero))
        name = model.op("Cast", true, to=TensorProto.INT32)
    elif x.dtype.kind in "iu":
        name = model.op("Cast", name, to=TensorProto.INT64)
    y = model.op(_REDUCTIONS[mode], name, model.constant(axes), keepdims=int(attrs.get("keep_dims", False)))
    y = model.op("Cast", y, to=element_type(x.dtype))
    if attrs.get("reduce_to_end") and attrs.get("coeff"):
        y = model.op("Mul", y, model.constant(np.array(attrs["coeff"], x.dtype)))
    return y


@oracle(NodeType.CAST)
def cast(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    dtype = DTYPES[int(arrays[1].reshape(-1)[0]) - 1]
    return model.op("Cast", "x0", to=element_type(dtype))


# ---- convolution -----------------------------------------------------------------------------------------------------


def _image(model: Onnx, layout: Format) -> str:
    return "x0" if layout is Format.NCHW else model.op("Transpose", "x0", perm=[0, 3, 1, 2])


def _as_given(model: Onnx, y: str, layout: Format) -> str:
    return y if layout is Format.NCHW else model.op("Transpose", y, perm=[0, 2, 3, 1])


def _pads(attrs: Attrs, name: str) -> dict[str, Any]:
    mode = attrs.get("pad_mode", PadMode.PAD)
    if mode == PadMode.PAD:
        top, bottom, left, right = attrs.get(name) or (0, 0, 0, 0)
        return {"pads": [top, left, bottom, right]}
    return {"auto_pad": "SAME_UPPER" if mode == PadMode.SAME else "VALID"}


def _window(attrs: Attrs) -> dict[str, Any]:
    return {
        "strides": list(attrs.get("stride") or (1, 1)),
        "dilations": list(attrs.get("dilation") or (1, 1)),
        "group": attrs.get("group", 1),
        **_pads(attrs, "pad_list"),
    }


@oracle(NodeType.CONV2D_FUSION)
def conv2d(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    weight = arrays[1] if layout is Format.NCHW else np.moveaxis(arrays[1], 3, 1)
    y = model.op("Conv", _image(model, layout), model.constant(np.ascontiguousarray(weight)), "x2", **_window(attrs))
    return _as_given(model, fused(model, y, arrays[0].dtype, attrs), layout)


@oracle(NodeType.CONV2D_TRANSPOSE_FUSION)
def conv2d_transpose(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    """ONNX has the weight as [in channels, out channels / group, height, width]."""
    weight = arrays[1] if layout is Format.NCHW else np.moveaxis(arrays[1], 3, 1)
    out, inner, height, width = weight.shape
    group = attrs.get("group", 1)
    weight = weight.reshape(group, out // group, inner, height, width).swapaxes(1, 2)
    weight = np.ascontiguousarray(weight.reshape(group * inner, out // group, height, width))
    extra = list(attrs.get("output_paddings") or (0,))
    y = model.op(
        "ConvTranspose",
        _image(model, layout),
        model.constant(weight),
        "x2",
        output_padding=extra * 2 if len(extra) == 1 else extra,
        **_window(attrs),
    )
    return _as_given(model, fused(model, y, arrays[0].dtype, attrs), layout)


def _pooling(op_type: str) -> Oracle:
    def build(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
        if attrs.get("global"):
            y = model.op(f"Global{op_type}", _image(model, layout))
        else:
            y = model.op(
                op_type,
                _image(model, layout),
                kernel_shape=list(attrs["kernel_size"]),
                strides=list(attrs.get("strides") or (1, 1)),
                ceil_mode=int(attrs.get("round_mode", RoundMode.FLOOR)),
                **_pads(attrs, "pad"),
            )
        return _as_given(model, fused(model, y, arrays[0].dtype, attrs), layout)

    return build


ORACLES[NodeType.AVGPOOL_FUSION] = _pooling("AveragePool")
ORACLES[NodeType.MAX_POOL_FUSION] = _pooling("MaxPool")
