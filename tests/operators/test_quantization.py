"""Conversion between real and quantized tensors, and quantized nodes worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nnrt_hdi.enums import DataType, Format, NodeType, PadMode
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.tensor import UNKNOWN_DIM, QuantParam, TensorSpec, data_type_of

from .oracles.oracle import Onnx
from .quantized_values import elements
from .single_node import Pair, graph_of, infer, prepare, run
from .tflite import Tensor, run_tflite

AnyArray = NDArray[Any]
N = NodeType
INT8, UINT8, FLOAT32 = DataType.INT8, DataType.UINT8, DataType.FLOAT32
CAST, CAST_V1 = N.QUANT_DTYPE_CAST_V2, N.QUANT_DTYPE_CAST


def spec(data_type: DataType, shape: Sequence[int], *quant: tuple[float, int]) -> TensorSpec:
    return TensorSpec(data_type, tuple(shape), quant=tuple(QuantParam(*param) for param in quant))


def converted(x: TensorSpec, array: AnyArray, y: TensorSpec, axis: int = 0, node_type: NodeType = CAST) -> AnyArray:
    attrs = {"src_t": int(x.data_type), "dst_t": int(y.data_type), **({"axis": axis} if node_type is CAST else {})}
    return run(graph_of(node_type, [(x, None)], attrs, y), [array])


def of_random(x: TensorSpec, seed: int) -> AnyArray:
    random = np.random.default_rng(seed)
    if x.data_type is FLOAT32:
        return random.uniform(-8, 8, x.shape).astype(np.float32)
    return elements(random, x.shape, x.data_type)


SHAPE = (3, 4, 50)
BY_TYPE = {FLOAT32: (), INT8: ((0.0625, -3),), UINT8: ((0.03125, 131),)}
OTHER = {FLOAT32: (), INT8: ((0.04296875, 5),), UINT8: ((0.0703125, 100),)}


@pytest.mark.parametrize("node_type", [CAST, CAST_V1])
@pytest.mark.parametrize("target", BY_TYPE)
@pytest.mark.parametrize("source", BY_TYPE)
def test_every_direction_against_tflite(source: DataType, target: DataType, node_type: NodeType) -> None:
    if source == target == FLOAT32:
        return
    x, y = spec(source, SHAPE, *BY_TYPE[source]), spec(target, SHAPE, *OTHER[target])
    array = of_random(x, seed=source * 100 + target)
    wanted = run_tflite("DEQUANTIZE" if target is FLOAT32 else "QUANTIZE", [Tensor(x, array)], y)
    actual = converted(x, array, y, node_type=node_type)
    assert actual.dtype == wanted.dtype
    if target is FLOAT32:
        np.testing.assert_array_equal(actual, wanted)
    else:
        assert np.abs(actual.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("data_type", [INT8, UINT8])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_channel_against_onnx(data_type: DataType, axis: int) -> None:
    shape = (3, 4, 5)
    count = shape[axis]
    scales = np.linspace(0.01, 0.07, count).astype(np.float32)
    zero_points = np.arange(count).astype(data_type.name.lower())
    quantized = spec(data_type, shape, *zip(scales.tolist(), zero_points.tolist(), strict=True))
    real = spec(FLOAT32, shape)
    for op_type, x, y in (("QuantizeLinear", real, quantized), ("DequantizeLinear", quantized, real)):
        array = of_random(x, seed=axis + 1)
        model = Onnx([array])
        name = model.op(op_type, "x0", model.constant(scales), model.constant(zero_points), axis=axis)
        (wanted,), _ = model.run([name])
        np.testing.assert_allclose(converted(x, array, y, axis), wanted, rtol=1e-6)


def test_between_channels_and_whole() -> None:
    """Requantized from one parameter per channel to one for all, and back."""
    per_channel, whole = spec(INT8, (2, 3), (0.5, 0), (0.25, 10)), spec(UINT8, (2, 3), (0.25, 100))
    array = np.array([[1, -2, 50], [10, 12, -10]], np.int8)
    there = converted(per_channel, array, whole)
    np.testing.assert_array_equal(there, [[102, 96, 200], [100, 102, 80]])
    np.testing.assert_array_equal(converted(whole, there, per_channel), array)


def test_halves_limits_and_what_is_no_number() -> None:
    """round(r / scale + zero point) with halves away from zero, then clamped; not a number is 0, the zero point."""
    real = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
    x = spec(FLOAT32, real.shape)
    wanted = [1, -1, 2, 3, -3, 127, -128, 127, -128, 0]
    np.testing.assert_array_equal(converted(x, real, spec(INT8, real.shape, (1.0, 0))), wanted)
    wanted = [4, 3, 5, 6, 1, 255, 0, 255, 0, 3]
    np.testing.assert_array_equal(converted(x, real, spec(UINT8, real.shape, (1.0, 3))), wanted)


@pytest.mark.parametrize("data_type", [DataType.FLOAT16, DataType.FLOAT64])
def test_other_real_types(data_type: DataType) -> None:
    real, quantized = spec(data_type, (4,)), spec(INT8, (4,), (0.25, 1))
    array = np.array([-1.25, 0, 0.5, 31.5], real.numpy_dtype)
    stored = converted(real, array, quantized)
    np.testing.assert_array_equal(stored, [-4, 1, 3, 127])
    np.testing.assert_array_equal(converted(quantized, stored, real), array)


def test_a_tensor_of_zeros_has_scale_0() -> None:
    zeros, real = spec(INT8, (3,), (0.0, 0)), spec(FLOAT32, (3,))
    array = np.array([0, 5, -5], np.int8)
    np.testing.assert_array_equal(converted(zeros, array, real), [0, 0, 0])
    np.testing.assert_array_equal(converted(real, np.array([0, 1, np.inf], np.float32), zeros), [0, 0, 0])
    (added,) = run_add(zeros, array, spec(INT8, (3,), (0.5, 1)), np.array([1, 3, 5], np.int8), (0.25, 2))
    np.testing.assert_array_equal(added, [2, 6, 10])


def run_add(a: TensorSpec, x: AnyArray, b: TensorSpec, y: AnyArray, out: tuple[float, int]) -> list[AnyArray]:
    graph = graph_of(N.ADD_FUSION, [(a, None), (b, None)], {}, spec(a.data_type, a.shape, out))
    return [run(graph, [x, y])]


def test_application_numbers_and_parameters_of_the_input() -> None:
    """A device takes the application interface's numbers, and the parameters that a real input carries."""
    x = spec(FLOAT32, (2,), (0.5, 1))
    attrs = {"src_t": 11, "dst_t": 2}
    output = infer(CAST, [(x, None)], attrs)
    assert (output.data_type, output.quant) == (INT8, x.quant)
    result = run(graph_of(CAST, [(x, None)], attrs), [np.array([1, -1], np.float32)])
    np.testing.assert_array_equal(result, [3, -1])


def test_padding_is_the_zero_point() -> None:
    x = spec(UINT8, (3,), (0.5, 7))
    paddings: Pair = (TensorSpec(DataType.INT64, (1, 2)), np.array([[1, 2]]))
    array = np.array([0, 7, 255], np.uint8)
    for value, padded in ((0.0, 7), (2.0, 11)):
        graph = graph_of(N.PAD_FUSION, [(x, None), paddings], {"constant_value": value}, replace(x, shape=(6,)))
        np.testing.assert_array_equal(run(graph, [array]), [padded, 0, 7, 255, padded, padded])


def test_what_is_moved_keeps_its_parameters_or_gets_others() -> None:
    x = spec(INT8, (2, 2), (0.5, 1))
    array, shape = np.array([[1, 3], [-5, 127]], np.int8), np.array([4])
    operands: list[Pair] = [(x, None), (TensorSpec(DataType.INT64, (1,)), shape)]
    assert infer(N.RESHAPE, operands, {}).quant == x.quant
    np.testing.assert_array_equal(run(graph_of(N.RESHAPE, operands, {}), [array]), array.reshape(-1))
    other = spec(UINT8, (4,), (0.25, 100))
    np.testing.assert_array_equal(run(graph_of(N.RESHAPE, operands, {}, other), [array]), [100, 104, 88, 255])


def test_a_real_operand_beside_quantized_ones() -> None:
    """It is the real number that it is."""
    x: Pair = (spec(INT8, (3,), (0.5, 1)), None)
    half: Pair = (TensorSpec(FLOAT32, ()), np.array(0.5, np.float32))
    graph = graph_of(N.MUL_FUSION, [x, half], {}, spec(INT8, (3,), (0.25, 0)))
    np.testing.assert_array_equal(run(graph, [np.array([1, 3, -5], np.int8)]), [0, 2, -6])


def test_truth_of_quantized_numbers() -> None:
    """The parameters of a truth value, which a quantized model may carry, say nothing."""
    a: Pair = (spec(INT8, (3,), (0.5, 0)), None)
    b: Pair = (spec(UINT8, (3,), (0.25, 100)), None)
    output = spec(DataType.BOOL, (3,), (-1.0, 999))
    result = run(
        graph_of(N.LESS, [a, b], {}, output), [np.array([1, 2, 3], np.int8), np.array([102, 110, 80], np.uint8)]
    )
    np.testing.assert_array_equal(result, [False, True, False])


@pytest.mark.parametrize("layout", [Format.NHWC, Format.NCHW])
def test_shapes_known_only_at_run_time(layout: Format) -> None:
    random = np.random.default_rng(7)
    shape, weight_shape = ((1, 6, 7, 3), (4, 3, 3, 3)) if layout is Format.NHWC else ((1, 3, 6, 7), (4, 3, 3, 3))
    x = replace(spec(INT8, shape, (0.05, 3)), format=layout)
    weight = replace(spec(INT8, weight_shape, *((0.01 * (at + 1), 0) for at in range(4))), format=layout)
    operands: list[Pair] = [
        (x, None),
        (weight, elements(random, weight_shape, INT8)),
        (TensorSpec(DataType.INT32, (4,)), random.integers(-999, 999, 4).astype(np.int32)),
    ]
    attrs, image = {"pad_mode": PadMode.SAME}, elements(random, shape, INT8)
    known = replace(infer_real(operands, attrs), data_type=INT8, quant=(QuantParam(0.1, -5),))
    wanted = run(graph_of(N.CONV2D_FUSION, operands, attrs, known), [image])
    unknown = [(x.with_shape((UNKNOWN_DIM,) * 4), None), *operands[1:]]
    actual = run(graph_of(N.CONV2D_FUSION, unknown, attrs, known.with_shape((UNKNOWN_DIM,) * 4)), [image])
    np.testing.assert_array_equal(actual, wanted)


def infer_real(operands: Sequence[Pair], attrs: dict[str, Any]) -> TensorSpec:
    real: list[Pair] = [(replace(operand, data_type=FLOAT32, quant=()), None) for operand, _ in operands]
    return infer(N.CONV2D_FUSION, real, attrs)


def test_real_numbers_count_for_the_limit_of_a_tensor() -> None:
    x = spec(INT8, (100,), (0.5, 0))
    graph = graph_of(N.ABS, [(x, None)], {}, x)
    prepare(graph, max_tensor_bytes=800)
    with pytest.raises(OutOfMemory, match="800 bytes; at most 799"):
        prepare(graph, max_tensor_bytes=799)


def test_an_integer_bias_reads_as_a_real_one() -> None:
    x, weight = spec(UINT8, (1, 2), (0.5, 100)), spec(INT8, (2, 2), (0.25, 0), (0.5, 0))
    taps, image = np.array([[1, 2], [3, -4]], np.int8), np.array([[102, 98]], np.uint8)
    output = spec(UINT8, (1, 2), (0.125, 10))
    results = []
    for bias in (np.array([8, -4], np.int32), np.array([1, -1], np.float32)):
        operands: list[Pair] = [(x, None), (weight, taps), (TensorSpec(data_type_of(bias.dtype), (2,)), bias)]
        results.append(run(graph_of(N.FULL_CONNECTION, operands, {}, output), [image]))
    # 1 * 0.25 - 1 * 0.5 + 1 = 0.75 and 1.5 + 2 - 1 = 2.5, in steps of 0.125 from 10.
    np.testing.assert_array_equal(results, [[[16, 30]]] * 2)
