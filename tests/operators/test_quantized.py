"""Quantized operators against the integer kernels of TensorFlow Lite."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nnrt_client.conformance.cases.quantized import params_of, real
from nnrt_hdi.enums import (
    ActivationType,
    CoordinateTransformMode,
    DataType,
    NearestMode,
    NodeType,
    PaddingMode,
    PadMode,
    ReduceMode,
    ResizeMethod,
)
from nnrt_hdi.tensor import QuantParam, TensorSpec, data_type_of

from .quantized_values import elements
from .single_node import Pair, graph_of, infer, run
from .tflite import Tensor, run_tflite

AnyArray = NDArray[Any]
Record = Callable[[str, str, float, float], None]
N, A = NodeType, ActivationType
INT8, UINT8 = DataType.INT8, DataType.UINT8
PER_TENSOR, PER_CHANNEL = "per tensor", "per channel"


@dataclass(frozen=True)
class Given:
    """An operand of random elements, but none below `least`, that stand for real numbers between bounds."""

    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0
    least: int = -128


Arrange = Callable[[list[Tensor], TensorSpec], list[Tensor | None]]


@dataclass(frozen=True, eq=False)
class Row:
    """A node and the builtin operator that is the same.

    `output` is how the output is quantized: "range" to what comes out, "same" as the first operand, or a scale and
    the zero point for int8. `arrange` makes TensorFlow Lite's operands of ours.
    """

    node_type: NodeType
    operator: str
    operands: Sequence[Given | AnyArray]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    output: str | tuple[float, int] = "range"
    data_types: Sequence[DataType] = (INT8, UINT8)
    has_weight: bool = False
    arrange: Arrange = lambda operands, _: list(operands)
    exact: bool = False


def depthwise(operands: list[Tensor], _: TensorSpec) -> list[Tensor | None]:
    """[1, height, width, channels], with channels as the last dimension."""
    x, weight, bias = operands
    assert weight.array is not None
    turned = np.ascontiguousarray(weight.array.transpose(3, 1, 2, 0))
    return [x, replace(weight, spec=weight.spec.with_shape(turned.shape), array=turned, axis=3), bias]


def transposed(operands: list[Tensor], output: TensorSpec) -> list[Tensor | None]:
    x, weight, bias = operands
    return [constant(output.shape), weight, x, bias]


def constant(values: Any) -> Tensor:
    array = np.array(values, np.int32)
    return Tensor(TensorSpec(DataType.INT32, array.shape), array, True)


def ints(*values: Any) -> AnyArray:
    return np.array(values, np.int32)


IMAGE = Given((2, 9, 8, 4), -2, 3)
SAME, VALID = {"pad_mode": PadMode.SAME}, {"pad_mode": PadMode.VALID}
RELU, RELU6 = {"activation_type": A.RELU}, {"activation_type": A.RELU6}


def convolutions() -> Iterator[Row]:
    def row(
        node_type: NodeType, operator: str, weight: tuple[int, ...], attrs: Any, options: Any, arrange: Any = None
    ) -> Row:
        operands = [IMAGE, Given(weight), Given(weight[:1])]
        table = {"CONV_2D": "Conv2D", "DEPTHWISE_CONV_2D": "DepthwiseConv2D", "TRANSPOSE_CONV": "TransposeConv"}
        options = {"options_of": table[operator] + "Options", **options}
        extra = {"arrange": arrange} if arrange else {}
        return Row(node_type, operator, operands, attrs, options, has_weight=True, **extra)

    conv, turned = N.CONV2D_FUSION, N.CONV2D_TRANSPOSE_FUSION
    by_1, by_2 = {"strideW": 1, "strideH": 1}, {"strideW": 2, "strideH": 2}
    yield row(conv, "CONV_2D", (6, 3, 3, 4), VALID, {"padding": 1, **by_1})
    yield row(conv, "CONV_2D", (5, 3, 2, 4), {**SAME, **RELU}, {"padding": 0, **by_1, "fusedActivationFunction": 1})
    yield row(
        conv,
        "CONV_2D",
        (6, 3, 3, 4),
        {**VALID, **RELU6, "stride": (2, 2)},
        {"padding": 1, **by_2, "fusedActivationFunction": 3},
    )
    yield row(
        conv,
        "DEPTHWISE_CONV_2D",
        (4, 3, 3, 1),
        {**SAME, "group": 4},
        {"padding": 0, **by_1, "depthMultiplier": 1},
        depthwise,
    )
    yield row(
        conv,
        "DEPTHWISE_CONV_2D",
        (8, 3, 3, 1),
        {**VALID, "group": 4, "stride": (2, 2)},
        {"padding": 1, **by_2, "depthMultiplier": 2},
        depthwise,
    )
    yield row(turned, "TRANSPOSE_CONV", (5, 3, 3, 4), {**SAME, "stride": (2, 2)}, {"padding": 0, **by_2}, transposed)
    yield row(turned, "TRANSPOSE_CONV", (5, 3, 3, 4), {**VALID, "stride": (2, 2)}, {"padding": 1, **by_2}, transposed)


def products() -> Iterator[Row]:
    full = {"options_of": "FullyConnectedOptions"}
    dense = [Given((5, 40), -1, 3), Given((7, 40)), Given((7,))]
    yield Row(N.FULL_CONNECTION, "FULLY_CONNECTED", dense, {}, full, has_weight=True)
    activated = {**full, "fusedActivationFunction": 1}
    yield Row(N.FULL_CONNECTION, "FULLY_CONNECTED", dense, RELU, activated, has_weight=True)
    for adjoint in (False, True):
        b = (3, 6, 8) if adjoint else (3, 8, 6)
        yield Row(
            N.MATMUL_FUSION,
            "BATCH_MATMUL",
            [Given((3, 5, 8), -2, 1), Given(b, -1, 3)],
            {"transpose_b": adjoint},
            {"options_of": "BatchMatMulOptions", "adjY": adjoint},
            data_types=(INT8,),
        )


def pools() -> Iterator[Row]:
    for node_type, operator in ((N.AVGPOOL_FUSION, "AVERAGE_POOL_2D"), (N.MAX_POOL_FUSION, "MAX_POOL_2D")):
        for size, mode, padding in ((2, VALID, 1), (3, SAME, 0)):
            attrs = {"kernel_size": (size, size), "strides": (2, 2), **mode}
            window = {"filterWidth": size, "filterHeight": size, "strideW": 2, "strideH": 2, "padding": padding}
            options = {"options_of": "Pool2DOptions", **window}
            is_exact = node_type is N.MAX_POOL_FUSION
            yield Row(node_type, operator, [IMAGE], attrs, options, "same", exact=is_exact)


def of_one() -> Iterator[Row]:
    x = [Given((3, 5, 7), -6, 8)]
    for kind, operator, output in (
        (A.RELU, "RELU", "range"),
        (A.RELU6, "RELU6", "range"),
        (A.RELU1, "RELU_N1_TO_1", "range"),
        (A.TANH, "TANH", (2.0**-7, 0)),
        (A.SIGMOID, "LOGISTIC", (2.0**-8, -128)),
        (A.HSWISH, "HARD_SWISH", "range"),
    ):
        yield Row(N.ACTIVATION, operator, x, {"activation_type": kind}, {}, output)
    leaky = {"options_of": "LeakyReluOptions", "alpha": 0.125}
    yield Row(N.ACTIVATION, "LEAKY_RELU", x, {"activation_type": A.LEAKY_RELU, "alpha": 0.125}, leaky)
    yield Row(N.ACTIVATION, "ELU", x, {"activation_type": A.ELU, "alpha": 1.0}, {"options_of": ""}, data_types=(INT8,))
    yield Row(N.ABS, "ABS", x, {}, {"options_of": "AbsOptions"}, data_types=(INT8,))
    yield Row(N.RSQRT, "RSQRT", [Given((4, 6), 0, 20)], {}, {}, data_types=(INT8,))
    yield Row(N.SOFTMAX, "SOFTMAX", x, {}, {"options_of": "SoftmaxOptions", "beta": 1.0}, (2.0**-8, -128))
    yield Row(N.LOG_SOFTMAX, "LOG_SOFTMAX", x, {"axis": -1}, {"options_of": "LogSoftmaxOptions"}, (2.0**-4, 127))
    yield Row(
        N.L2_NORMALIZE_FUSION, "L2_NORMALIZATION", x, {"axis": (-1,)}, {"options_of": "L2NormOptions"}, (2.0**-7, 0)
    )


def of_two() -> Iterator[Row]:
    a, b = Given((2, 3, 4), -3, 2), Given((2, 3, 4), -1, 5)
    for node_type, name in ((N.ADD_FUSION, "Add"), (N.SUB_FUSION, "Sub"), (N.MUL_FUSION, "Mul")):
        table = {"options_of": f"{name}Options"}
        yield Row(node_type, name.upper(), [a, b], {}, table)
        yield Row(node_type, name.upper(), [a, Given((4,), -2, 2)], RELU, {**table, "fusedActivationFunction": 1})
    yield Row(N.SQUARED_DIFFERENCE, "SQUARED_DIFFERENCE", [a, b], data_types=(INT8,))
    divisor = Given((2, 3, 4), 0, 1.5, least=20)
    yield Row(N.DIV_FUSION, "DIV", [a, divisor], {}, {"options_of": "DivOptions"}, data_types=(UINT8,))
    for node_type, operator in ((N.MAXIMUM, "MAXIMUM"), (N.MINIMUM, "MINIMUM")):
        same = Given((2, 3, 4), -3, 2)
        yield Row(node_type, operator, [a, same], {}, {"options_of": "MaximumMinimumOptions"}, "same", exact=True)
    yield Row(N.PRELU_FUSION, "PRELU", [IMAGE, Given((4,))], arrange=prelu)


def prelu(operands: list[Tensor], _: TensorSpec) -> list[Tensor | None]:
    x, weight = operands
    assert weight.array is not None
    return [x, replace(weight, spec=weight.spec.with_shape((1, 1, 4)), array=weight.array.reshape(1, 1, 4))]


def folds() -> Iterator[Row]:
    for mode, operator in (
        (ReduceMode.MEAN, "MEAN"),
        (ReduceMode.SUM, "SUM"),
        (ReduceMode.MAX, "REDUCE_MAX"),
        (ReduceMode.MIN, "REDUCE_MIN"),
        (ReduceMode.PROD, "REDUCE_PROD"),
    ):
        output = "same" if mode in (ReduceMode.MAX, ReduceMode.MIN) else "range"
        data_types = (INT8,) if mode is ReduceMode.PROD else (INT8, UINT8)
        x = Given((2, 3, 4, 5), 0, 2) if mode is ReduceMode.PROD else Given((2, 3, 4, 5), -2, 3)
        options = {"options_of": "ReducerOptions", "keepDims": True}
        yield Row(
            N.REDUCE_FUSION, operator, [x, ints(1, 2)], {"mode": mode, "keep_dims": True}, options, output, data_types
        )


def shapes() -> Iterator[Row]:
    a, b = Given((2, 3, 4), -3, 2), Given((2, 5, 4), -1, 5)
    joined = {"options_of": "ConcatenationOptions", "axis": 1}
    yield Row(N.CONCAT, "CONCATENATION", [a, b], {"axis": 1}, joined, data_types=(UINT8,))
    yield Row(N.CONCAT, "CONCATENATION", [a, Given((2, 5, 4), -3, 2)], {"axis": 1}, joined, "same", exact=True)
    yield Row(N.PAD_FUSION, "PAD", [a, ints((0, 0), (1, 2), (0, 1))], {}, {}, "same", exact=True)
    yield Row(
        N.PAD_FUSION, "MIRROR_PAD", [a, ints((0, 0), (1, 2), (0, 1))], {"padding_mode": PaddingMode.REFLECT},
        {"options_of": "MirrorPadOptions", "mode": 0}, "same", exact=True,
    )  # fmt: skip
    yield Row(N.TRANSPOSE, "TRANSPOSE", [a, ints(2, 0, 1)], {}, {}, "same", exact=True)
    yield Row(N.RESHAPE, "RESHAPE", [a, ints(4, 6)], {}, {"options_of": "ReshapeOptions"}, "same", exact=True)


def resizes() -> Iterator[Row]:
    size = {"new_height": 13, "new_width": 5, "coordinate_transform_mode": CoordinateTransformMode.HALF_PIXEL}
    for method, name in ((ResizeMethod.LINEAR, "Bilinear"), (ResizeMethod.NEAREST, "NearestNeighbor")):
        operator = {"Bilinear": "RESIZE_BILINEAR", "NearestNeighbor": "RESIZE_NEAREST_NEIGHBOR"}[name]
        options = {"options_of": f"Resize{name}Options", "halfPixelCenters": True}
        # TensorFlow Lite takes the nearest pixel of a half as the one behind it.
        attrs = {**size, "method": method, "nearest_mode": NearestMode.ROUND_HALF_UP}
        yield Row(N.RESIZE, operator, [IMAGE], attrs, options, "same", arrange=resized)


def resized(operands: list[Tensor], output: TensorSpec) -> list[Tensor | None]:
    return [operands[0], constant(output.shape[1:3])]


ROWS = [*resizes(), *convolutions(), *products(), *pools(), *of_one(), *of_two(), *folds(), *shapes()]


def cases() -> Iterator[Any]:
    for number, row in enumerate(ROWS):
        for data_type in row.data_types:
            # TensorFlow Lite has parameters per channel for int8 weights only.
            for granularity in (PER_TENSOR, PER_CHANNEL) if row.has_weight and data_type is INT8 else (PER_TENSOR,):
                name = f"{row.operator}-{number}-{data_type.name}-{granularity.replace(' ', '-')}"
                yield pytest.param(row, data_type, granularity, zlib.crc32(name.encode()), id=name)


def given_tensors(row: Row, data_type: DataType, granularity: str, seed: int) -> list[Tensor]:
    random = np.random.default_rng(seed)
    tensors: list[Tensor] = []
    for at, given in enumerate(row.operands):
        if isinstance(given, np.ndarray):
            tensors.append(Tensor(TensorSpec(data_type_of(given.dtype), given.shape), given, True))
        elif row.has_weight and at == 2:
            tensors.append(bias_tensor(random, tensors[0].spec, tensors[1].spec))
        elif row.has_weight and at == 1:
            array = np.maximum(elements(random, given.shape, data_type), -127 if data_type is INT8 else 0)
            count = given.shape[0] if granularity == PER_CHANNEL else 1
            scales = random.uniform(0.002, 0.02, count).astype(np.float32)
            zero_point = 0 if data_type is INT8 else 131
            quant = tuple(QuantParam(float(scale), zero_point) for scale in scales)
            tensors.append(Tensor(TensorSpec(data_type, given.shape, quant=quant), array, True))
        else:
            spec = TensorSpec(data_type, given.shape, quant=(params_of(given.low, given.high, data_type),))
            is_constant = row.operator == "PRELU" and at == 1
            array = elements(random, given.shape, data_type)
            array = np.clip(array, max(given.least, np.iinfo(array.dtype).min), None)
            tensors.append(Tensor(spec, array, is_constant))
    return tensors


def bias_tensor(random: np.random.Generator, x: TensorSpec, weight: TensorSpec) -> Tensor:
    """TensorFlow Lite's bias has parameters, which ours leaves out."""
    quant = tuple(QuantParam(float(np.float32(x.quant[0].scale * param.scale)), 0) for param in weight.quant)
    array = random.integers(-5000, 5000, weight.shape[:1]).astype(np.int32)
    return Tensor(TensorSpec(DataType.INT32, array.shape, quant=quant), array, True)


def without_params_of_bias(spec: TensorSpec) -> TensorSpec:
    return replace(spec, quant=()) if spec.data_type is DataType.INT32 else spec


def output_spec(row: Row, tensors: Sequence[Tensor], data_type: DataType) -> TensorSpec:
    """The output, quantized as the row says; the range is that of the real result."""
    reals = [real(tensor.array, tensor.spec.quant, tensor.axis) for tensor in tensors if tensor.array is not None]
    operands: list[Pair] = [
        (TensorSpec(data_type_of(array.dtype), array.shape), array if tensor.is_constant else None)
        for array, tensor in zip(reals, tensors, strict=True)
    ]
    known = infer(row.node_type, operands, row.attrs)
    if row.output == "same":
        quant = tensors[0].spec.quant[0]
    elif row.output == "range":
        result = run(
            graph_of(row.node_type, operands, row.attrs),
            [array for array, (_, value) in zip(reals, operands, strict=True) if value is None],
        )
        quant = params_of(float(result.min()), float(result.max()), data_type)
    else:
        assert isinstance(row.output, tuple)
        scale, zero_point = row.output
        quant = QuantParam(scale, zero_point if data_type is INT8 else zero_point + 128)
    return replace(known, data_type=data_type, quant=(quant,))


@pytest.mark.parametrize(("row", "data_type", "granularity", "seed"), list(cases()))
def test_agrees_with_the_integer_kernels_of_tflite(
    row: Row, data_type: DataType, granularity: str, seed: int, record_steps: Record
) -> None:
    tensors = given_tensors(row, data_type, granularity, seed)
    output = output_spec(row, tensors, data_type)
    wanted = run_tflite(row.operator, row.arrange(tensors, output), output, **row.options)
    operands: list[Pair] = [(without_params_of_bias(t.spec), t.array if t.is_constant else None) for t in tensors]
    graph = graph_of(row.node_type, operands, row.attrs, output)
    actual = run(graph, [t.array for t in tensors if t.array is not None and not t.is_constant])
    assert actual.dtype == wanted.dtype
    steps = np.abs(actual.astype(int) - wanted)
    record_steps(row.node_type.name, "tflite", float(steps.max()), float((steps == 0).mean()))
    assert steps.max() <= (0 if row.exact else 1), f"{steps.max()} steps\n{actual}\n{wanted}"
