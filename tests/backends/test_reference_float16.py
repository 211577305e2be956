"""Half precision on the reference backend: every FLOAT32 tensor is rounded, nothing else is."""

from typing import Any

import numpy as np
import pytest
from loaded import loaded
from numpy.typing import NDArray
from operators.oracles.oracle import Onnx

from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, PadMode
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import TensorSpec, data_type_of

AnyArray = NDArray[Any]
N = NodeType
FINE = 1 + 2.0**-12  # A FLOAT32 that FLOAT16 rounds to 1.


def run(graph: Graph, *inputs: AnyArray, enable_float16: bool = True) -> list[AnyArray]:
    config = ModelConfig(enable_float16=enable_float16)
    return loaded("reference").prepare(graph, config, lambda _: None).run(inputs, Cancellation())


def spec_of(array: AnyArray, layout: Format = Format.NONE) -> TensorSpec:
    return TensorSpec(data_type_of(array.dtype), array.shape, layout)


# ---- against an oracle -----------------------------------------------------------------------------------------------


def network(image: AnyArray, weight: AnyArray, bias: AnyArray, dense: AnyArray) -> Graph:
    """Convolution, ReLU, flattening, matrix product, softmax."""
    shape = np.array([image.shape[0], -1])
    f32 = DataType.FLOAT32
    batch, height, width, channels = image.shape[0], image.shape[1], image.shape[2], weight.shape[0]
    map_spec = TensorSpec(f32, (batch, height, width, channels), Format.NHWC)
    tensors = (
        *(spec_of(array, Format.NHWC if array is image else Format.NONE) for array in (image, weight, bias)),
        map_spec,
        map_spec,
        spec_of(shape),
        TensorSpec(f32, (batch, height * width * channels)),
        spec_of(dense),
        TensorSpec(f32, (batch, dense.shape[1])),
        TensorSpec(f32, (batch, dense.shape[1])),
    )
    nodes = (
        Node(N.CONV2D_FUSION, (0, 1, 2), (3,), {"pad_mode": PadMode.SAME}),
        Node(N.ACTIVATION, (3,), (4,), {"activation_type": ActivationType.RELU}),
        Node(N.RESHAPE, (4, 5), (6,)),
        Node(N.MATMUL_FUSION, (6, 7), (8,)),
        Node(N.SOFTMAX, (8,), (9,), {"axis": (-1,)}),
    )
    constants = {1: Constant.of(weight), 2: Constant.of(bias), 5: Constant.of(shape), 7: Constant.of(dense)}
    return Graph(tensors, nodes, (0,), (3, 8, 9), constants)


def oracle(image: AnyArray, weight: AnyArray, bias: AnyArray, dense: AnyArray) -> list[AnyArray]:
    """The network in ONNX Runtime, with a cast to FLOAT16 and back around every operator."""
    onnx = Onnx([image, weight, bias, dense])

    def half(name: str) -> str:
        return onnx.op("Cast", onnx.op("Cast", name, to=10), to=1)

    def shape(*sizes: int) -> str:
        return onnx.constant(np.array(sizes))

    x, w, b, d = (half(f"x{at}") for at in range(4))
    x, w = onnx.op("Transpose", x, perm=[0, 3, 1, 2]), onnx.op("Transpose", w, perm=[0, 3, 1, 2])
    convolved = onnx.op("Transpose", half(onnx.op("Conv", x, w, b, pads=[1, 1, 1, 1])), perm=[0, 2, 3, 1])
    flat = onnx.op("Reshape", half(onnx.op("Relu", convolved)), shape(image.shape[0], -1))
    product = half(onnx.op("MatMul", flat, d))
    results, name = onnx.run((convolved, product, half(onnx.op("Softmax", product, axis=-1))))
    assert name == "onnxruntime"
    return results


def test_network_against_onnx_runtime() -> None:
    random = np.random.default_rng(5)
    arrays = [
        random.standard_normal(shape, np.float32) * scale
        for shape, scale in (((2, 6, 6, 3), 1.0), ((4, 3, 3, 3), 0.3), ((4,), 1.0), ((144, 10), 0.1))
    ]
    arrays = [np.asarray(array, np.float32) for array in arrays]
    actual, wanted = run(network(*arrays), arrays[0]), oracle(*arrays)
    precise = run(network(*arrays), arrays[0], enable_float16=False)
    for result, reference, single in zip(actual, wanted, precise, strict=True):
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, result.astype(np.float16))
        # Sums in another order may be rounded to the neighbour.
        np.testing.assert_allclose(result, reference, rtol=2**-9, atol=2**-10)
        assert np.mean(result == reference) > 0.9
        assert np.mean(result == single) < 0.2, "half precision can be told from single precision"


# ---- by hand ---------------------------------------------------------------------------------------------------------


def sum_graph(dtype: str, constant: Any) -> Graph:
    """y = x + constant."""
    array = np.array(constant, dtype)
    specs = TensorSpec(data_type_of(array.dtype), (-1,)), spec_of(array), TensorSpec(data_type_of(array.dtype), (-1,))
    return Graph(specs, (Node(N.ADD_FUSION, (0, 1), (2,)),), (0,), (2,), {1: Constant.of(array)})


@pytest.mark.parametrize(
    ("x", "constant", "wanted"),
    [
        (FINE, 0, 1),  # the input is rounded
        (0, FINE, 1),  # the constant
        (1, 2**-12, 1),  # the result
        (2048, 1, 2048),  # halves to even
        (2050, 1, 2052),
        (65504, 0, 65504),  # the largest there is
        (65519, 0, 65504),
        (65520, 0, np.inf),
        (-60000, -60000, -np.inf),
        (2**-25, 0, 0),  # half the smallest
        (2**-24, 0, 2**-24),
        (np.nan, 0, np.nan),
        (np.inf, 0, np.inf),
    ],
)
def test_float32_is_rounded(x: float, constant: float, wanted: float) -> None:
    (output,) = run(sum_graph("f4", [constant]), np.array([x], np.float32))
    assert output.dtype == np.float32
    np.testing.assert_array_equal(output, np.array([wanted], np.float32))


@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "i8", "u1"])
def test_other_types_are_untouched(dtype: str) -> None:
    x = np.array([1, 100, 123], dtype) if dtype != "f8" else np.array([FINE, 1e300, 1 / 3])
    graph = sum_graph(dtype, [4])
    with_half, without = (run(graph, x, enable_float16=half)[0] for half in (True, False))
    assert with_half.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(with_half, without)


def test_an_input_that_is_an_output() -> None:
    """It is a tensor like any other; the caller's array stays as it was."""
    spec = TensorSpec(DataType.FLOAT32, (1,))
    graph = Graph((spec, spec), (Node(N.ACTIVATION, (0,), (1,), {"activation_type": 1}),), (0,), (0, 1))
    x = np.array([FINE], np.float32)
    outputs = run(graph, x)
    assert [output.tolist() for output in outputs] == [[1], [1]]
    assert x[0] == np.float32(FINE)
    assert all(output.flags.writeable and not np.shares_memory(output, x) for output in outputs)


def test_what_is_computed_between_is_not_rounded() -> None:
    """A kernel has FLOAT32 for what it does: 2048 ones and one more are 2049, and 2049 - 2048 is 1."""
    x = np.ones(2050, np.float32)
    x[-1] = -2048
    spec, axes = spec_of(x), np.array([0])
    graph = Graph(
        (spec, spec_of(axes), TensorSpec(DataType.FLOAT32, ())),
        (Node(N.REDUCE_FUSION, (0, 1), (2,), {"mode": 4}),),
        (0,),
        (2,),
        {1: Constant.of(axes)},
    )
    assert run(graph, x)[0] == 1


@pytest.mark.parametrize("is_constant", [True, False])
def test_a_shape_is_not_rounded(is_constant: bool) -> None:
    """4097 has no FLOAT16, and as FLOAT32 it may be a shape."""
    sizes = np.array([4097], np.float32)
    graph = Graph(
        (spec_of(sizes), TensorSpec(DataType.FLOAT32, (4097 if is_constant else -1,))),
        (Node(N.CONSTANT_OF_SHAPE, (0,), (1,), {"value": (FINE,)}),),
        () if is_constant else (0,),
        (1,),
        {0: Constant.of(sizes)} if is_constant else {},
    )
    (output,) = run(graph, *([] if is_constant else [sizes]))
    assert output.shape == (4097,)
    assert set(output.tolist()) == {1.0}
