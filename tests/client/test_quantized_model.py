"""Quantized models through the client: built by `apply`, and run by a daemon."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from operators.tflite import Tensor, run_tflite

from nnrt_client import (
    Compilation,
    DataType,
    Executor,
    FuseType,
    InvalidParameter,
    Model,
    ModelTensor,
    OperationType,
    PadMode,
    QuantParam,
    Runtime,
    TensorDesc,
)
from nnrt_client.model.model import parts_of
from nnrt_hdi import enums as hdi
from nnrt_hdi.tensor import QuantParam as ScaleAndZero
from nnrt_hdi.tensor import TensorSpec

AnyArray = NDArray[Any]
INT8 = hdi.DataType.INT8
BATCH = 2


class Network:
    """A quantized classifier of 8x8 images: every step is an output, with what it is in TensorFlow Lite."""

    def __init__(self) -> None:
        random = np.random.default_rng(11)

        def weight(*shape: int) -> AnyArray:
            return random.integers(-127, 128, shape).astype(np.int8)

        def scales(count: int) -> list[float]:
            return [float(scale) for scale in random.uniform(0.003, 0.02, count).astype(np.float32)]

        self.image_quant = QuantParam([0.03125], [-10])
        self.conv, self.conv_scales = weight(6, 3, 3, 1), scales(6)
        self.deep, self.deep_scales = weight(6, 3, 3, 1), scales(6)
        self.dense, self.dense_scales = weight(10, 4 * 4 * 6), [0.0078125]
        self.biases = [random.integers(-2000, 2000, count).astype(np.int32) for count in (6, 6, 10)]
        self.quants = [QuantParam([0.0625], [-128]), QuantParam([0.09375], [4]), QuantParam([0.25], [-7])]
        self.probability = QuantParam([2.0**-8], [-128])

    def model(self) -> Model:
        op = OperationType
        model = Model()
        image = model.input((BATCH, 8, 8, 1), name="image")
        x = model.apply(op.QUANT_DTYPE_CAST, image, src_t=DataType.FLOAT32, dst_t=DataType.INT8, quant=self.image_quant)
        weights = [
            model.constant(array, quant=QuantParam(scales, [0] * len(scales)))
            for array, scales in (
                (self.conv, self.conv_scales),
                (self.deep, self.deep_scales),
                (self.dense, self.dense_scales),
            )
        ]
        conv = model.apply(
            op.CONV2D, x, weights[0], self.biases[0],
            pad_mode=PadMode.SAME, activation=FuseType.RELU, quant=self.quants[0],
        )  # fmt: skip
        deep = model.apply(
            op.DEPTHWISE_CONV2D_NATIVE, conv, weights[1], self.biases[1], pad_mode=PadMode.SAME, quant=self.quants[1]
        )
        pool = model.apply(op.MAX_POOL, deep, kernel_size=(2, 2), strides=(2, 2), quant=self.quants[1])
        flat = model.apply(op.RESHAPE, pool, [-1, 4 * 4 * 6])
        dense = model.apply(op.FULL_CONNECTION, flat, weights[2], self.biases[2], quant=self.quants[2])
        soft = model.apply(op.SOFTMAX, dense, quant=self.probability)
        y = model.apply(op.QUANT_DTYPE_CAST, soft, src_t=DataType.INT8, dst_t=DataType.FLOAT32)
        model.specify_inputs_and_outputs([image], [x, conv, deep, pool, flat, dense, soft, y])
        model.finish()
        return model

    def expected(self, image: AnyArray, steps: list[AnyArray]) -> list[AnyArray]:
        """Each step by an integer kernel, of what the step before it gave."""
        x, conv, deep, pool, flat, dense, soft = steps[:7]
        same = {"padding": 0, "strideW": 1, "strideH": 1}
        half = {"padding": 1, "strideW": 2, "strideH": 2, "filterWidth": 2, "filterHeight": 2}
        of_x, of_conv, of_deep, of_dense = self.image_quant, *self.quants
        return [
            run_tflite("QUANTIZE", [Tensor(spec(image), image)], spec(x, of_x)),
            run_tflite(
                "CONV_2D", self.weighted(x, of_x, 0, self.conv, self.conv_scales), spec(conv, of_conv),
                options_of="Conv2DOptions", fusedActivationFunction=1, **same,
            ),
            run_tflite(
                "DEPTHWISE_CONV_2D", self.weighted(conv, of_conv, 1, self.deep, self.deep_scales, axis=3),
                spec(deep, of_deep), options_of="DepthwiseConv2DOptions", depthMultiplier=1, **same,
            ),
            run_tflite("MAX_POOL_2D", [given(deep, of_deep)], spec(pool, of_deep), options_of="Pool2DOptions", **half),
            pool.reshape(BATCH, -1),
            run_tflite(
                "FULLY_CONNECTED", self.weighted(flat, of_deep, 2, self.dense, self.dense_scales),
                spec(dense, of_dense), options_of="FullyConnectedOptions",
            ),
            run_tflite(
                "SOFTMAX", [given(dense, of_dense)], spec(soft, self.probability), options_of="SoftmaxOptions", beta=1.0
            ),
            run_tflite("DEQUANTIZE", [given(soft, self.probability)], spec(steps[7])),
        ]  # fmt: skip

    def weighted(
        self, x: AnyArray, quant: QuantParam, layer: int, weight: AnyArray, scales: list[float], axis: int = 0
    ) -> list[Tensor]:
        array = np.ascontiguousarray(weight.transpose(3, 1, 2, 0)) if axis == 3 else weight
        products = [float(np.float32(quant.scales[0] * scale)) for scale in scales]
        bias = self.biases[layer]
        return [
            given(x, quant),
            Tensor(spec(array, QuantParam(scales, [0] * len(scales))), array, True, axis),
            Tensor(spec(bias, QuantParam(products, [0] * len(scales))), bias, True),
        ]


def of_device(quant: QuantParam) -> tuple[ScaleAndZero, ...]:
    return tuple(map(ScaleAndZero, quant.scales, quant.zero_points))


def spec(array: AnyArray, quant: QuantParam | None = None) -> TensorSpec:
    kind = hdi.DataType[array.dtype.name.upper()]
    return TensorSpec(kind, array.shape, quant=of_device(quant) if quant else ())


def given(array: AnyArray, quant: QuantParam) -> Tensor:
    return Tensor(spec(array, quant), array)


def test_every_step_of_a_quantized_network(runtime: Runtime) -> None:
    network, random = Network(), np.random.default_rng(5)
    image = random.uniform(-3, 4, (BATCH, 8, 8, 1)).astype(np.float32)
    with Compilation(network.model(), runtime.devices()[0]) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            steps = [np.asarray(step) for step in executor.run_sync([image])]
    for step, wanted in zip(steps, network.expected(image, steps), strict=True):
        assert (step.dtype, step.shape) == (wanted.dtype, wanted.shape)
        if step.dtype == np.float32:
            np.testing.assert_array_equal(step, wanted)
        else:
            assert np.abs(step.astype(int) - wanted).max() <= 1
    assert (steps[-1].argmax(axis=1) == steps[5].argmax(axis=1)).all()


def test_apply_keeps_parameters_of_what_is_moved() -> None:
    model = Model()
    x = model.input((2, 3), DataType.INT8, quant=QuantParam([0.5], [1]))
    y = model.apply(OperationType.TRANSPOSE, x, (1, 0))
    assert quant_of(model, y) == (ScaleAndZero(0.5, 1),)


def test_apply_reads_plain_numbers_as_real_beside_a_quantized_tensor() -> None:
    model = Model()
    x = model.input((2, 3), DataType.UINT8, quant=QuantParam([0.5], [1]))
    y = model.apply(OperationType.MUL, x, 0.5, quant=QuantParam([0.25], [0]))
    assert y.desc == TensorDesc(DataType.UINT8, (2, 3))
    assert quant_of(model, y) == (ScaleAndZero(0.25, 0),)
    assert parts_of(model).tensors[1].desc.data_type is DataType.FLOAT32


def test_apply_takes_parameters_in_several_places() -> None:
    """By `quant`, with a desc beside `quant`, and of a tensor that has them."""
    model, quant = Model(), QuantParam([0.25], [3])
    x = model.input((4,), DataType.INT8, quant=QuantParam([0.5], [1]))
    desc = TensorDesc(DataType.UINT8, (4,))
    there = model.add_tensor(desc)
    model.set_tensor_quant_params(there, quant)
    outputs: list[ModelTensor] = [
        model.apply(OperationType.RELU, x, quant=quant),
        model.apply(OperationType.RELU, x, output=desc, quant=quant),
        model.apply(OperationType.RELU, x, output=there),
        model.apply(OperationType.RELU, x, output=[desc], quant=[quant]),
    ]
    assert [output.desc.data_type.name for output in outputs] == ["INT8", "UINT8", "UINT8", "UINT8"]
    assert [quant_of(model, output) for output in outputs] == [of_device(quant)] * 4


def test_apply_to_several_outputs() -> None:
    model = Model()
    x = model.input((4, 6), DataType.INT8, quant=QuantParam([0.5], [1]))
    parts = model.apply(OperationType.SPLIT, x, output_num=2, axis=1)
    assert [quant_of(model, part) for part in parts] == [(ScaleAndZero(0.5, 1),)] * 2
    values, indices = model.apply(OperationType.TOP_K, x, 2, quant=QuantParam([0.25], [0]))
    assert (quant_of(model, values), quant_of(model, indices)) == ((ScaleAndZero(0.25, 0),), ())


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "RELU: the output has no quantization parameters, but operands are quantized; give it some"),
        ({"output": TensorDesc(DataType.FLOAT32, (4,))}, "the output is declared FLOAT32, but operands are quantized"),
        ({"quant": QuantParam([0.5], [200])}, r"the zero point of the output is 200; use -128..127 \(INT8\)"),
        ({"quant": [QuantParam([0.5], [0])] * 2}, "quant is for 2 outputs; there are 1"),
        ({"quant": QuantParam([0.5, 0.25], [0, 0])}, "has 2 quantization parameters; use 1, or one for each of the 4"),
        ({"output": 0, "quant": QuantParam([0.5], [0])}, "a tensor that is there already; use set_tensor_quant_params"),
        ({"quant": QuantParam([0.5])}, "scales has 1, zero_points has 0"),
    ],
)
def test_outputs_that_are_refused(keywords: dict[str, Any], message: str) -> None:
    model = Model()
    x = model.input((4,), DataType.INT8, quant=QuantParam([0.5], [1]))
    with pytest.raises(InvalidParameter, match=message):
        model.apply(OperationType.RELU, x, **keywords)
    assert len(parts_of(model).tensors) == 1


def test_a_real_output_takes_no_parameters() -> None:
    model = Model()
    with pytest.raises(InvalidParameter, match=r"output 0, which is FLOAT32\[4\]; quantize an operand"):
        model.apply(OperationType.RELU, model.input((4,)), quant=QuantParam([0.5], [0]))


def test_conversion_in_the_numbers_of_the_device_interface() -> None:
    model = Model()
    x = model.input((4,))
    quant = QuantParam([0.5] * 4, [1] * 4)
    y = model.apply(OperationType.QUANT_DTYPE_CAST, x, src_t=DataType.FLOAT32, dst_t=DataType.INT8, axis=0, quant=quant)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    (node,) = parts_of(model).graph.nodes
    assert node.type is hdi.NodeType.QUANT_DTYPE_CAST_V2
    assert dict(node.attrs) == {"src_t": hdi.DataType.FLOAT32, "dst_t": hdi.DataType.INT8, "axis": 0}
    assert node.quant_type is hdi.QuantType.NONE
    other = Model()
    with pytest.raises(InvalidParameter, match="QUANT_DTYPE_CAST: parameter dst_t: 99 names no data type"):
        other.apply(OperationType.QUANT_DTYPE_CAST, other.input((4,)), src_t=11, dst_t=99)


def quant_of(model: Model, tensor: ModelTensor) -> tuple[ScaleAndZero, ...]:
    return parts_of(model).tensors[tensor.index].quant
