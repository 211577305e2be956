"""The ONNX models that the ONNX Runtime backend makes of graphs: layouts, weights, quantization, precision."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from net import AnyArray, Net
from nnrt_backend_onnxruntime import support
from nnrt_backend_onnxruntime.processor import integer_kernels
from nnrt_backend_onnxruntime.session import open_session
from nnrt_onnx_lowering.lowering import LOWERINGS
from nnrt_onnx_lowering.single_nodes import support_key
from onnxruntime_graphs import (
    backend,
    lowered,
    op_types,
    optimized,
    prepare,
    reference,
    require_close,
    run,
    run_lowered,
)

from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, PadMode
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import QuantParam

N = NodeType
RELU6 = {"activation_type": ActivationType.RELU6}
TO_NCHW, TO_NHWC = np.array([0, 3, 1, 2]), np.array([0, 2, 3, 1])


def residual_network(layout: Format, batch: int = 2, size: int = 8) -> Graph:
    """Convolutions with all that likes to come between them: activation, sum, pooling, concatenation, padding."""
    net = Net(layout)
    axis = 3 if layout is Format.NHWC else 1
    shape = (batch, size, size, 3) if layout is Format.NHWC else (batch, 3, size, size)
    x = net.conv(net.input(*shape), 4, **RELU6)
    y = net.op(N.ACTIVATION, net.conv(x, 4), activation_type=ActivationType.SWISH)
    y = net.op(N.ADD_FUSION, x, y)
    y = net.op(N.MUL_FUSION, y, net.weights(*((4,) if axis == 3 else (4, 1, 1))))
    y = net.op(N.CONCAT, y, net.op(N.BIAS_ADD, x, net.weights(4)), axis=axis)
    y = net.op(N.MAX_POOL_FUSION, y, kernel_size=(2, 2), strides=(2, 2))
    pads = np.zeros((4, 2), np.int32)
    pads[1 if axis == 3 else 2] = 1, 2
    y = net.op(N.PAD_FUSION, y, net.constant(pads))
    y = net.op(N.SOFTMAX, net.conv(y, 4), axis=(axis,))
    mean = net.op(N.REDUCE_FUSION, y, net.constant(np.array([1, 2] if axis == 3 else [2, 3])), keep_dims=True)
    y = net.op(N.SUB_FUSION, y, mean)
    return net.graph(net.conv(y, 5))


def image(graph: Graph, seed: int = 1) -> AnyArray:
    shape = [2 if dim == -1 else dim for dim in graph.input_specs[0].shape]
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_every_node_type_is_lowered_in_the_module_of_its_family() -> None:
    families = {kind: lowering.function.__module__.rpartition(".")[2] for kind, lowering in LOWERINGS.items()}
    assert families == {kind: operator.family for kind, operator in OPERATORS.items()}


def test_nhwc_is_transposed_where_it_comes_in_and_goes_out_only() -> None:
    graph = residual_network(Format.NHWC)
    made = op_types(lowered(graph).model)
    assert made.count("Transpose") == 2
    assert made[0] == made[-1] == "Transpose"
    require_close(run(graph, image(graph)), reference(graph, image(graph)))


def test_nchw_is_not_transposed() -> None:
    graph = residual_network(Format.NCHW)
    assert "Transpose" not in op_types(lowered(graph).model)
    require_close(run(graph, image(graph)), reference(graph, image(graph)))


def test_transposes_of_an_import_from_onnx_cancel() -> None:
    """An importer that has NHWC operators only turns every image before and after each of them."""
    net = Net(Format.NCHW)
    y = net.input(1, 3, 8, 8)
    for channels in (4, 5):
        net.layout = Format.NHWC
        y = net.conv(net.op(N.TRANSPOSE, y, net.constant(TO_NHWC)), channels)
        y = net.op(N.TRANSPOSE, y, net.constant(TO_NCHW))
        net.layout = Format.NCHW
        y = net.op(N.ACTIVATION, y, activation_type=ActivationType.RELU)
    graph = net.graph(y)
    assert op_types(lowered(graph).model) == ["Conv", "Relu", "Conv", "Relu"]
    require_close(run(graph, image(graph)), reference(graph, image(graph)))


def test_an_image_of_one_pixel_is_not_transposed_but_reshaped() -> None:
    net = Net()
    y = net.op(N.AVGPOOL_FUSION, net.conv(net.input(1, 8, 8, 3), 4), kernel_size=(8, 8))
    graph = net.graph(net.op(N.FULL_CONNECTION, net.op(N.FLATTEN, y), net.weights(5, 4)))
    assert op_types(lowered(graph).model).count("Transpose") == 1


def test_weights_are_not_copied() -> None:
    """Neither into the model nor beside it, unless their order is another."""
    net = Net(Format.NCHW)
    graph = net.graph(net.conv(net.input(1, 64, 4, 4), 64))
    made = lowered(graph)
    (weight,) = made.weights.values()
    data = next(constant.data for constant in graph.constants.values() if constant.size_bytes == weight.nbytes)
    assert data is not None
    assert np.shares_memory(weight, data)
    assert made.model.ByteSize() < 4096


# The flags of /proc/cpuinfo that count, the types of activations and weights, and the entries of a session.
PROCESSORS = {
    "Zen 5": ("sse2 avx2 avx512f avx512bw avx512vl avx_vnni avx512_vnni", (DataType.UINT8, DataType.INT8), "00"),
    "Ice Lake": ("sse2 avx2 avx512f avx512bw avx512vl avx512_vnni", (DataType.UINT8, DataType.INT8), "00"),
    "Sapphire Rapids": ("sse2 avx2 avx512_vnni amx_tile amx_int8", (DataType.UINT8, DataType.INT8), "00"),
    "Alder Lake": ("sse2 avx2 avx_vnni", (DataType.UINT8, DataType.INT8), "00"),
    "Skylake server": ("sse2 avx2 avx512f avx512bw avx512vl", (DataType.UINT8, None), "01"),
    "Zen 2": ("sse2 avx avx2 fma", (DataType.UINT8, None), "01"),
    "Graviton 3": ("fp asimd asimdhp asimddp i8mm", (None, None), "10"),
    "Cortex-A72": ("fp asimd evtstrm", (None, None), "01"),
    "unknown": ("", (None, None), "01"),
}


def quantized_network(data_type: DataType, weight_type: DataType = DataType.INT8) -> Graph:
    net = Net()
    middle = 128 if weight_type is DataType.UINT8 else 0
    x = net.input(1, 8, 8, 16, data_type=data_type, quant=(QuantParam(0.05, 3),))
    for scale in (0.1, 0.2):
        weight = (net.random.integers(-127, 128, (16, 3, 3, 16)) + middle).astype(weight_type.name.lower())
        bias = net.random.integers(-1000, 1000, 16).astype(np.int32)
        quant = tuple(QuantParam(0.01 * (1 + channel % 3), middle) for channel in range(16))
        spec = net.spec((1, 8, 8, 16), data_type, (QuantParam(scale, 1),))
        operands = x, net.constant(weight, quant), net.constant(bias)
        x = net.op(N.CONV2D_FUSION, *operands, outputs=[spec], pad_mode=PadMode.SAME, **RELU6)
    return net.graph(x)


@pytest.mark.parametrize("weight_type", [DataType.INT8, DataType.UINT8], ids=lambda data_type: data_type.name)
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT8], ids=lambda data_type: data_type.name)
def test_quantized_networks_run_on_integer_kernels(data_type: DataType, weight_type: DataType) -> None:
    graph = quantized_network(data_type, weight_type)
    kernels = op_types(optimized(graph))
    assert kernels.count("QLinearConv") == 2
    assert not {"Conv", "FusedConv", "DequantizeLinear", "QuantizeLinear"} & set(kernels)
    dtype = graph.input_specs[0].numpy_dtype
    x = np.random.default_rng(2).integers(0, 256, (1, 8, 8, 16)).astype(dtype)
    (actual,), (wanted,) = run(graph, x), reference(graph, x)
    assert np.abs(actual.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT8], ids=lambda data_type: data_type.name)
def test_products_with_a_scale_per_column_run_on_integer_kernels(data_type: DataType) -> None:
    net = Net()
    x = net.input(2, 3, 16, data_type=data_type, quant=(QuantParam(0.05, 3),))
    weight = net.random.integers(-127, 128, (16, 8)).astype(np.int8)
    columns = net.constant(weight, tuple(QuantParam(0.01 * (1 + column), 0) for column in range(8)))
    spec = net.spec((2, 3, 8), data_type, (QuantParam(0.5, 1),))
    graph = net.graph(net.op(N.MATMUL_FUSION, x, columns, outputs=[spec]))
    assert op_types(optimized(graph)).count("QLinearMatMul") == 1
    given = np.random.default_rng(2).integers(0, 100, (2, 3, 16)).astype(graph.input_specs[0].numpy_dtype)
    (actual,), (wanted,) = run(graph, given), reference(graph, given)
    assert np.abs(actual.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("processor", PROCESSORS)
def test_integer_kernels_are_those_that_a_processor_has(processor: str) -> None:
    flags, types, entries = PROCESSORS[processor]
    chosen = integer_kernels(frozenset(flags.split()))
    assert (chosen.activations, chosen.weights) == types
    assert chosen.entries == {"session.qdqisint8allowed": entries[0], "session.x64quantprecision": entries[1]}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT8], ids=lambda data_type: data_type.name)
def test_a_quantized_network_is_the_same_for_each_processor(data_type: DataType, processor: str) -> None:
    """In whatever types its tensors are kept."""
    flags, _, _ = PROCESSORS[processor]
    graph = quantized_network(data_type, DataType.UINT8)
    x = np.random.default_rng(2).integers(0, 256, (1, 8, 8, 16)).astype(graph.input_specs[0].numpy_dtype)
    made = lowered(graph, integer_kernels(frozenset(flags.split())))
    (actual,) = run_lowered(made, x)
    (wanted,) = reference(graph, x)
    assert np.abs(actual.astype(int) - wanted).max() <= 1


def test_largest_products_do_not_saturate() -> None:
    """Pairs of them overflow 16 bits, in which processors without wide sums add them."""
    net = Net()
    x = net.input(1, 4, 4, 64, data_type=DataType.UINT8, quant=(QuantParam(1 / 256, 0),))
    weight = net.constant(np.full((8, 3, 3, 64), 127, np.int8), (QuantParam(1 / 256, 0),))
    bias = net.constant(np.zeros(8, np.int32))
    spec = net.spec((1, 2, 2, 8), DataType.UINT8, (QuantParam(2, 0),))
    graph = net.graph(net.op(N.CONV2D_FUSION, x, weight, bias, outputs=[spec], pad_mode=PadMode.VALID))
    (actual,) = run(graph, np.full((1, 4, 4, 64), 255, np.uint8))
    # 576 products of 255 / 256 and 127 / 256 are 284.63, which is 142 steps of 2.
    assert (actual == 142).all()


def test_quantized_elements_that_are_only_moved_come_out_as_they_went_in() -> None:
    net = Net(Format.NCHW)
    quant = (QuantParam(0.1, 5),)
    x = net.input(2, 3, 2, 2, data_type=DataType.INT8, quant=quant)
    one = net.constant(np.array([[[[-128]], [[0]], [[127]]]], np.int8), quant)
    spec = net.spec((2, 3, 2, 2), DataType.INT8, quant)
    y = net.op(N.TRANSPOSE, net.op(N.MAXIMUM, x, one, outputs=[spec]), net.constant(TO_NHWC))
    graph = net.graph(x, net.op(N.RESHAPE, x, net.constant(np.array([2, 12]))), y)
    given = np.arange(-128, 128, 11)[:24].astype(np.int8).reshape(2, 3, 2, 2)
    for actual, wanted in zip(run(graph, given), reference(graph, given), strict=True):
        assert actual.dtype == np.int8
        np.testing.assert_array_equal(actual, wanted)


def test_float16_halves_the_weights_and_costs_precision() -> None:
    graph = residual_network(Format.NHWC)
    halved = lowered(graph, float16=True)
    stored = [np.dtype(np.float16)] * len(halved.weights)
    assert [array.dtype for array in halved.weights.values()] == stored
    (actual,), (wanted,) = run(graph, image(graph), enable_float16=True), run(graph, image(graph))
    assert actual.dtype == np.float32
    assert 1e-6 < np.abs(actual - wanted).max() < 0.05


def test_float16_is_rounded_only_where_it_comes_out() -> None:
    """The square of 300 is beyond what FLOAT16 holds."""
    net = Net()
    x = net.input(1, 2, data_type=DataType.FLOAT16)
    y = net.op(N.SQRT, net.op(N.RESHAPE, net.op(N.SQUARE, x), net.constant(np.array([2, 1]))))
    graph = net.graph(y, net.op(N.CONCAT, net.op(N.TRANSPOSE, x, net.constant(np.array([1, 0]))), y, axis=0))
    assert op_types(lowered(graph).model).count("Cast") == 4
    given = np.array([[300, 0.1]], np.float16)
    root, both = run(graph, given)
    assert root.dtype == both.dtype == np.float16
    np.testing.assert_array_equal(root, given.T)
    np.testing.assert_array_equal(both, np.concatenate([given.T, given.T]))


def test_an_integer_is_made_of_float16_as_it_is_stored() -> None:
    net = Net()
    x = net.input(1, data_type=DataType.FLOAT16)
    y = net.op(N.ADD_FUSION, x, net.constant(np.ones(1, np.float16)))
    cast = net.op(N.CAST, y, net.constant(np.array(DataType.INT32.value, np.int32)))
    (actual,) = run(net.graph(cast), np.array([2048], np.float16))
    np.testing.assert_array_equal(actual, [2048])


@pytest.mark.parametrize("size", [(1, 8, 8), (3, 5, 9), (0, 8, 8)], ids=str)
def test_one_model_for_images_of_any_size(size: tuple[int, int, int]) -> None:
    graph = residual_network(Format.NHWC, batch=-1, size=-1)
    x = np.random.default_rng(3).standard_normal((*size, 3)).astype(np.float32)
    require_close(run(graph, x), reference(graph, x))


def test_supported_says_what_prepare_does() -> None:
    net = Net()
    x = net.input(1, 4, 4, 2, data_type=DataType.FLOAT64)
    weight, bias = net.constant(np.ones((2, 1, 1, 2))), net.constant(np.ones(2))
    y = net.op(N.CONV2D_FUSION, net.op(N.ABS, x), weight, bias)
    graph = net.graph(y)
    first, second = backend().supported(graph)
    assert first.supported
    assert second.reason == "ONNX Runtime has no Conv kernel for FLOAT64"
    with pytest.raises(Unsupported, match="CONV2D_FUSION node 1: ONNX Runtime has no Conv kernel for FLOAT64"):
        prepare(graph)


def test_supported_needs_no_large_constants() -> None:
    graph = residual_network(Format.NHWC)
    absent = {
        at: constant if constant.shape_value is not None else replace(constant, data=None)
        for at, constant in graph.constants.items()
    }
    bare = replace(graph, constants=absent)
    assert all(support.supported for support in backend().supported(bare))


def test_zoneout_is_refused() -> None:
    """The only operator that ONNX can't express for a value of its attributes."""
    net = Net()
    shapes = ((1, 8, 3), (1, 8, 2), (1, 16), (1, 1, 2), (1, 1, 2))
    operands = net.input(4, 1, 3), *(net.weights(*shape) for shape in shapes)
    outputs = [net.spec((4, 1, 2)), net.spec((1, 1, 2)), net.spec((1, 1, 2))]
    graph = net.graph(net.op(N.LSTM, *operands, outputs=outputs, zoneout_cell=0.5))
    assert "no zoneout" in backend().supported(graph)[0].reason


def test_nodes_are_asked_about_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph costs one session, and not one for each node."""
    opened = []

    def counting(*arguments: Any) -> Any:
        opened.append(arguments)
        return open_session(*arguments)

    monkeypatch.setattr(support, "open_session", counting)
    device, graph = backend(), residual_network(Format.NHWC)
    assert all(answer.supported for answer in device.supported(graph))
    assert len(graph.nodes) > 10
    assert len(opened) == 1
    device.supported(graph)
    assert len(opened) == 1, "answers are kept"


@pytest.mark.parametrize("refused_at", [(0,), (3,), (6,), (2, 3), (0, 5), tuple(range(7))])
def test_a_node_that_is_refused_among_others(refused_at: tuple[int, ...]) -> None:
    """Each gets the answer that it gets by itself."""
    net = Net()
    everywhere: dict[str, Any] = {"global": True}
    outputs = [
        net.op(N.AVGPOOL_FUSION, net.input(1, -1, -1, 2 + index, data_type=DataType.INT32), **everywhere)
        if index in refused_at
        else net.op(N.ACTIVATION, net.input(2 + index), activation_type=ActivationType.SWISH)
        for index in range(7)
    ]
    graph = net.graph(*outputs)
    answers = backend().supported(graph)
    assert tuple(index for index, answer in enumerate(answers) if not answer.supported) == refused_at
    assert {answer.reason for answer in answers if answer.reason} == {answers[refused_at[0]].reason}
    assert "no INT32 kernel for windows of unknown size" in answers[refused_at[0]].reason


def test_answers_are_kept() -> None:
    device = backend()
    graph = residual_network(Format.NHWC)
    assert device.supported(graph) == device.supported(graph)
    assert device.prepare(graph, ModelConfig(), lambda _: None).outputs == (graph.output_specs)


@pytest.mark.parametrize(
    "node_type", [N.CONV2D_FUSION, N.MAX_POOL_FUSION, N.AVGPOOL_FUSION], ids=lambda kind: kind.name
)
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(1, 2, 1), (1, 3, 1), (2, 1, 1), (3, 2, 1), (3, 1, 2), (2, 3, 1), (2, 5, 2)]
)
def test_same_padding_of_images_of_any_size(node_type: NodeType, kernel: int, stride: int, dilation: int) -> None:
    """Whatever the size turns out to be: as in the reference backend, or refused before there is one."""
    net = Net()
    x = net.input(1, -1, 6, 2)
    if node_type is N.CONV2D_FUSION:
        y = net.conv(x, 3, kernel, stride=(stride, stride), dilation=(dilation, dilation))
    else:
        y = net.op(node_type, x, kernel_size=(kernel, kernel), strides=(stride, stride), pad_mode=PadMode.SAME)
    graph = net.graph(y)
    if not backend().supported(graph)[0].supported:
        assert kernel > 1 and stride > 1 and (dilation > 1 or stride > kernel)
        with pytest.raises(Unsupported, match="whose height and width are known"):
            prepare(graph)
        return
    model = prepare(graph)
    for height in range(1, 10):
        given = net.random.standard_normal((1, height, 6, 2)).astype(np.float32)
        require_close(model.run([given], Cancellation()), reference(graph, given))


def test_what_pooling_and_transposed_convolutions_can_not_do() -> None:
    net = Net()
    everywhere: dict[str, Any] = {"global": True}
    pooled = net.op(N.AVGPOOL_FUSION, net.input(1, -1, -1, 2, data_type=DataType.INT32), **everywhere)
    operands = net.input(1, 4, 4, 2), net.weights(3, 2, 2, 2), net.weights(3)
    attrs: dict[str, Any] = {"pad_mode": PadMode.SAME, "stride": (3, 3), "output_paddings": (2,)}
    larger = net.op(N.CONV2D_TRANSPOSE_FUSION, *operands, **attrs)
    first, second = backend().supported(net.graph(pooled, larger))
    assert "no INT32 kernel for windows of unknown size" in first.reason
    assert "reduce output_paddings" in second.reason


def test_a_shape_of_rank_0() -> None:
    net = Net()
    graph = net.graph(net.op(N.RESHAPE, net.input(-1, 2), net.constant(np.array(-1))))
    assert run(graph, np.ones((3, 2), np.float32))[0].shape == (6,)


def test_answers_are_kept_under_short_names() -> None:
    """However long a question is; and each under its own."""
    spec = Net().spec((1, 4), DataType.INT8)
    graphs = []
    for axis in (3, 4):
        net = Net()
        params = tuple(QuantParam(0.5 + at, 0) for at in range(1000))
        x = net.input(1, 1000, data_type=DataType.INT8, quant=params)
        graphs.append(net.graph(net.op(N.SQUEEZE, x, outputs=[spec], axis=(axis,) * 1000)))
    keys = {support_key(graph, 0) for graph in (*graphs, *graphs)}
    assert [len(key) for key in keys] == [32, 32]


def test_blocks_of_pixels_are_onnxs_own_where_channels_come_first() -> None:
    """A Transpose takes half as long again as its kernel; of images with channels last it would take two more."""
    for node_type, channels in ((N.DEPTH_TO_SPACE, 12), (N.SPACE_TO_DEPTH, 3)):
        net = Net(Format.NCHW)
        graph = net.graph(net.op(node_type, net.input(-1, channels, 4, -1), block_size=2))
        (made,) = op_types(lowered(graph).model)
        assert made == {N.DEPTH_TO_SPACE: "DepthToSpace", N.SPACE_TO_DEPTH: "SpaceToDepth"}[node_type]
        x = np.random.default_rng(0).standard_normal((2, channels, 4, 6)).astype(np.float32)
        require_close(run(graph, x), reference(graph, x))
    net = Net(Format.NHWC)
    assert op_types(lowered(net.graph(net.op(N.DEPTH_TO_SPACE, net.input(1, 4, 4, 12), block_size=2))).model) == [
        "Reshape",
        "Transpose",
        "Reshape",
    ]


def test_two_bounds_are_one_clip() -> None:
    net = Net()
    graph = net.graph(net.op(N.CLIP, net.input(40), min=-1.0, max=2.0))
    assert op_types(lowered(graph).model) == ["Clip"]
    x = np.array([np.nan, np.inf, -np.inf, 0.5] * 10, np.float32)
    require_close(run(graph, x), reference(graph, x))


@pytest.mark.parametrize("shape", [(2, 8, 100, 100), (-1, 8, -1, -1)])
def test_the_largest_of_many_numbers_is_found_without_keys(shape: tuple[int, ...]) -> None:
    """Keys are made of none of them, unless one is not a number."""
    net = Net()
    graph = net.graph(net.op(N.ARGMAX_FUSION, net.input(*shape), axis=1))
    x = image(graph) if -1 not in shape else np.random.default_rng(0).standard_normal((2, 8, 9, 7)).astype(np.float32)
    x.reshape(-1)[::7] = np.inf
    require_close(run(graph, x), [np.argmax(x, 1)])
    searched = [node.input[0] for node in lowered(graph).model.graph.node if node.op_type == "ArgMax"]
    assert "input_1" in searched
    x.reshape(-1)[5::11] = np.nan
    require_close(run(graph, x), [np.argmax(x, 1)])
    assert np.array_equal(reference(graph, x)[0], run(graph, x)[0])


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("axis", range(4))
def test_the_largest_of_what_lies_in_another_order(axis: int, keep_dims: bool) -> None:
    net = Net()
    moved = net.op(N.TRANSPOSE, net.input(2, 3, 4, 5), net.constant(TO_NHWC))
    graph = net.graph(net.op(N.ARGMAX_FUSION, moved, axis=axis, keep_dims=keep_dims))
    x = image(graph)
    require_close(run(graph, x), [np.argmax(x.transpose(TO_NHWC), axis, keepdims=keep_dims)])


def test_positions_of_a_run_that_cut_nothing() -> None:
    """Their only entry is for a new dimension."""
    net = Net()
    x, begin = net.input(3, 2), net.input(1, data_type=DataType.INT64)
    one = net.constant(np.array([1]))
    graph = net.graph(net.op(N.STRIDED_SLICE, x, begin, one, one, new_axis_mask=1))
    given = image(graph)
    require_close(run(graph, given, np.array([0])), [given[np.newaxis]])
