"""Convolutions and pooling."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import Call, Operation, operation, refuse
from nnrt_client.model.operations.parameter import Parameter, activation, boolean, choice, integer, ints, padding
from nnrt_hdi.enums import DataType, Format, NodeType, RoundMode
from nnrt_hdi.graph import AttrValue
from nnrt_hdi.ops.convolution import ImageShape
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec


def _window(type: OperationType) -> tuple[Parameter, ...]:
    """Declare the parameters that all convolutions have: strides, padding, dilation, activation."""
    name = type.name
    return (
        ints("stride", TensorType[f"{name}_STRIDES"], 2),
        *padding("pad_list", TensorType[f"{name}_PAD"], TensorType[f"{name}_PAD_MODE"]),
        ints("dilation", TensorType[f"{name}_DILATION"], 2),
        activation(TensorType[f"{name}_ACTIVATION_TYPE"]),
    )


def _pool(type: OperationType, node_type: NodeType) -> Operation:
    name = type.name
    return operation(
        type,
        node_type,
        ints("kernel_size", TensorType[f"{name}_KERNEL_SIZE"], 2),
        ints("strides", TensorType[f"{name}_STRIDE"], 2),
        *padding("pad", TensorType[f"{name}_PAD"], TensorType[f"{name}_PAD_MODE"]),
        choice("round_mode", TensorType[f"{name}_ROUND_MODE"], RoundMode, DataType.INT32),
        boolean("global", TensorType[f"{name}_GLOBAL"]),
        activation(TensorType[f"{name}_ACTIVATION_TYPE"]),
        # NNRt always sends NCHW here. The layout is that of the input.
        fixed={"format": Format.NCHW},
    )


def _image(name: str, spec: TensorSpec) -> ImageShape:
    if spec.rank != 4:
        refuse(f"{name} {spec} has rank {spec.rank}; use rank 4")
    return ImageShape.of(spec)


def _kernel(call: Call) -> tuple[ImageShape, dict[str, AttrValue]]:
    kernel = _image("weight", call.inputs[1].spec)
    return kernel, {"kernel_size": (kernel.height, kernel.width), "out_channel": kernel.batch}


def _convolution(call: Call) -> dict[str, AttrValue]:
    kernel, attrs = _kernel(call)
    group = call.integer("group", 1)
    return {**attrs, "in_channel": UNKNOWN_DIM if kernel.channels == UNKNOWN_DIM else kernel.channels * group}


def _depthwise(call: Call) -> dict[str, AttrValue]:
    channels = _image("x", call.inputs[0].spec).channels
    _, attrs = _kernel(call)
    if channels == UNKNOWN_DIM:
        refuse(f"the channels of x {call.inputs[0].spec} are its groups, so they must be known")
    return {**attrs, "group": channels, "in_channel": channels}


OPERATIONS = (
    operation(
        OperationType.CONV2D,
        NodeType.CONV2D_FUSION,
        *_window(OperationType.CONV2D),
        integer("group", TensorType.CONV2D_GROUP),
        inputs=3,
        derive=_convolution,
    ),
    operation(
        OperationType.DEPTHWISE_CONV2D_NATIVE,
        NodeType.CONV2D_FUSION,
        *_window(OperationType.DEPTHWISE_CONV2D_NATIVE),
        inputs=3,
        derive=_depthwise,
    ),
    operation(
        OperationType.CONV2D_TRANSPOSE,
        NodeType.CONV2D_TRANSPOSE_FUSION,
        *_window(OperationType.CONV2D_TRANSPOSE),
        integer("group", TensorType.CONV2D_TRANSPOSE_GROUP),
        ints("output_paddings", TensorType.CONV2D_TRANSPOSE_OUTPUT_PADDINGS, 1, 2),
        inputs=3,
        derive=_convolution,
    ),
    _pool(OperationType.MAX_POOL, NodeType.MAX_POOL_FUSION),
    _pool(OperationType.AVG_POOL, NodeType.AVGPOOL_FUSION),
)
