"""Oracles of activations."""

import numpy as np

from nnrt_hdi.enums import ActivationType, Format, NodeType

from .oracle import AnyArray, Attrs, Onnx, oracle, per_channel

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


@oracle(NodeType.LEAKY_RELU)
def leaky_relu(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    return model.op("LeakyRelu", "x0", alpha=attrs.get("negative_slope", 0.0))


@oracle(NodeType.PRELU_FUSION)
def prelu(model: Onnx, arrays: list[AnyArray], _: Attrs, layout: Format) -> str:
    return model.op("PRelu", "x0", per_channel(model, "x1", arrays[0].ndim, layout))


def _in_double(model: Onnx, kind: ActivationType) -> str:
    """Build FLOAT64 functions from other operators, because ONNX Runtime has their constants in single precision only.

    GELU is the tanh approximation.
    """

    def number(value: float) -> str:
        return model.constant(np.array(value, np.float64))

    if kind is ActivationType.GELU:
        cube = model.op("Mul", number(0.044715), model.op("Pow", "x0", number(3)))
        inner = model.op("Mul", number(np.sqrt(2 / np.pi)), model.op("Add", "x0", cube))
        return model.op("Mul", model.op("Mul", number(0.5), "x0"), model.op("Add", number(1), model.op("Tanh", inner)))
    clipped = model.op("Clip", model.op("Add", "x0", number(3)), number(0), number(6))
    sixth = model.op("Div", clipped, number(6))
    return sixth if kind is ActivationType.HSIGMOID else model.op("Mul", "x0", sixth)
