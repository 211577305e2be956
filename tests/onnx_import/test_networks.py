"""Whole networks: those that onnx brings along, and small ones of the kinds that matter."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from daemon_process import DaemonProcess
from onnx_models import LIGHT, AnyArray, Graph, run_onnxruntime, with_weights
from part import part

from nnrt_client import Compilation, Executor, Model, OperationType, Runtime, from_onnx


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_networks_of_onnx_are_imported(path: Path) -> None:
    model = from_onnx(path)
    proto = onnx.load(path)
    initializers = {tensor.name for tensor in proto.graph.initializer}
    inputs = [info.name for info in proto.graph.input if info.name not in initializers]
    assert [tensor.desc.name for tensor in model.inputs] == inputs
    assert [tensor.desc.name for tensor in model.outputs] == [info.name for info in proto.graph.output]
    assert model.inputs[0].desc.shape == (1, 3, 224, 224)


@pytest.mark.parametrize("name", part(sorted(path.stem for path in LIGHT.glob("*.onnx")), str, lambda name: ()))
@pytest.mark.slow
def test_networks_of_onnx_give_what_onnx_runtime_gives(name: str, both_runtimes: list[Runtime]) -> None:
    proto = with_weights(onnx.load(LIGHT / f"{name}.onnx"))
    model = from_onnx(proto.SerializeToString())
    (given,) = model.inputs
    feeds = {given.desc.name: np.random.default_rng(2).normal(size=given.desc.shape or ()).astype("f4")}
    (expected,) = run_onnxruntime(proto, feeds)
    assert np.unique(expected).size > expected.size / 2
    for runtime in both_runtimes:
        (y,) = through_a_daemon(model, runtime, feeds)
        np.testing.assert_allclose(y, expected, rtol=1e-2, atol=1e-4 * np.abs(expected).max())


@pytest.fixture
def both_runtimes(shared_daemon: DaemonProcess, onnxruntime_daemon: DaemonProcess) -> Iterator[list[Runtime]]:
    with Runtime([shared_daemon.address]) as reference, Runtime([onnxruntime_daemon.address]) as fast:
        yield [reference, fast]


def through_a_daemon(model: Model, runtime: Runtime, feeds: dict[str, AnyArray]) -> list[Any]:
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            return executor.run_sync([feeds[tensor.desc.name] for tensor in model.inputs])


def transformer() -> onnx.ModelProto:
    """An encoder block with symbolic batch and sequence, as exporters write it: shapes are computed in the graph."""
    rng = np.random.default_rng(1)
    width, heads = 16, 4
    g = Graph()
    x = g.input("tokens", ["batch", "sequence"], np.int64)
    table = g.constant(rng.normal(size=(50, width)).astype("f4"))
    embedded = g.op("Gather", table, x)
    shape = g.op("Shape", x)
    batch, sequence = (
        g.op("Unsqueeze", g.op("Gather", shape, g.constant(np.int64(at))), g.constant([0])) for at in (0, 1)
    )
    parts = []
    for _ in range(3):
        weight = g.constant(rng.normal(size=(width, width)).astype("f4") / 4)
        bias = g.constant(rng.normal(size=width).astype("f4"))
        projected = g.op("Add", g.op("MatMul", embedded, weight), bias)
        split = g.op("Concat", batch, sequence, g.constant([heads]), g.constant([width // heads]), axis=0)
        parts.append(g.op("Transpose", g.op("Reshape", projected, split), perm=[0, 2, 1, 3]))
    q, k, v = parts
    scores = g.op("Div", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.constant(np.float32(2)))
    attention = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
    merged = g.op("Concat", batch, sequence, g.constant([width]), axis=0)
    context = g.op("Reshape", g.op("Transpose", attention, perm=[0, 2, 1, 3]), merged)
    one, zero = g.constant(np.ones(width, "f4")), g.constant(np.zeros(width, "f4"))
    normed = g.op("LayerNormalization", g.op("Add", context, embedded), one, zero)
    hidden = g.op("Gelu", g.op("MatMul", normed, g.constant(rng.normal(size=(width, 32)).astype("f4") / 4)))
    out = g.op("MatMul", hidden, g.constant(rng.normal(size=(32, width)).astype("f4") / 4))
    return g.model(g.op("LayerNormalization", g.op("Add", out, normed), one, zero))


def test_transformer_block_of_any_batch_and_length(each_runtime: Runtime) -> None:
    proto = transformer()
    model = from_onnx(proto.SerializeToString())
    # Where a shape is known but for one or two dimensions that an operand has, no run computes it.
    assert OperationType.SHAPE not in model.operations
    assert model.inputs[0].desc.shape == (-1, -1)
    for size in ((1, 3), (2, 7)):
        feeds = {"tokens": np.random.default_rng(2).integers(0, 50, size)}
        (y,) = through_a_daemon(model, each_runtime, feeds)
        np.testing.assert_allclose(y, run_onnxruntime(proto, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 2, 3), ("steps", "batch", 3)], ids=str)
def test_lstm_in_both_directions(each_runtime: Runtime, shape: tuple[int | str, ...]) -> None:
    rng = np.random.default_rng(3)
    g = Graph()
    x = g.input("x", shape)
    w, r = (g.constant(rng.normal(size=(2, 16, size)).astype("f4")) for size in (3, 4))
    y, h, c = g.op(
        "LSTM",
        x,
        w,
        r,
        g.constant(rng.normal(size=(2, 32)).astype("f4")),
        outputs=3,
        hidden_size=4,
        direction="bidirectional",
    )
    proto = g.model(g.op("Relu", y), h, c)
    feeds = {"x": rng.normal(size=(5, 2, 3)).astype("f4")}
    for mine, theirs in zip(
        through_a_daemon(from_onnx(proto.SerializeToString()), each_runtime, feeds),
        run_onnxruntime(proto, feeds),
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


class Quantizing(Graph):
    """A graph with QuantizeLinear and DequantizeLinear around its operators."""

    def pair(self, x: str, scale: float, zero_point: int) -> str:
        params = self.constant(np.float32(scale)), self.constant(np.uint8(zero_point))
        return str(self.op("DequantizeLinear", self.op("QuantizeLinear", x, *params), *params))

    def weight(self, array: AnyArray, scales: AnyArray, axis: int = 0) -> str:
        params = self.constant(scales.astype("f4")), self.constant(np.zeros(scales.shape, array.dtype))
        return str(self.op("DequantizeLinear", self.constant(array), *params, axis=axis))


def quantized_cnn() -> onnx.ModelProto:
    rng = np.random.default_rng(4)
    g = Quantizing()
    x = g.pair(g.input("image", ["n", 3, 8, 8]), 0.02, 128)
    scales = rng.uniform(0.005, 0.01, 4)
    weight = g.weight(rng.integers(-127, 128, (4, 3, 3, 3), np.int8), scales)
    bias = g.weight(rng.integers(-1000, 1000, 4, np.int32), 0.02 * scales)
    y = g.pair(g.op("Relu", g.op("Conv", x, weight, bias, pads=[1, 1, 1, 1], strides=[2, 2])), 0.05, 0)
    y = g.pair(g.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.05, 0)
    y = g.pair(g.op("Flatten", y), 0.05, 0)
    dense = g.weight(rng.integers(-127, 128, (10, 16), np.int8), rng.uniform(0.01, 0.02, 10))
    y = g.pair(g.op("Gemm", y, dense, transB=1), 0.1, 120)
    return g.model(y)


def test_quantized_network_runs_on_quantized_tensors(each_runtime: Runtime) -> None:
    proto = quantized_cnn()
    model = from_onnx(proto.SerializeToString())
    assert model.operations == (
        OperationType.QUANT_DTYPE_CAST,
        OperationType.CONV2D,
        OperationType.MAX_POOL,
        OperationType.RESHAPE,
        OperationType.FULL_CONNECTION,
        OperationType.QUANT_DTYPE_CAST,
    )
    feeds = {"image": np.random.default_rng(5).normal(size=(2, 3, 8, 8)).astype("f4")}
    (y,) = through_a_daemon(model, each_runtime, feeds)
    (expected,) = run_onnxruntime(proto, feeds)
    # A step of the output where a half is rounded the other way, or a sum ends beside it.
    assert np.abs(y - expected).max() <= 0.1 + 1e-6
    assert (np.abs(y - expected) > 1e-5).mean() < 0.05


def test_qlinear_operators(each_runtime: Runtime) -> None:
    rng = np.random.default_rng(6)
    g = Graph()
    x = g.input("x", [1, 2, 6, 6], np.uint8)
    sx, zx, sy, zy = (g.constant(value) for value in (np.float32(0.03), np.uint8(100), np.float32(0.2), np.uint8(130)))
    weight, bias = rng.integers(-127, 128, (3, 2, 3, 3), np.int8), rng.integers(-500, 500, 3, np.int32)
    scales = g.constant(np.array([0.01, 0.02, 0.03], "f4"))
    zeros = g.constant(np.zeros(3, np.int8))
    y = g.op("QLinearConv", x, sx, zx, g.constant(weight), scales, zeros, sy, zy, g.constant(bias))
    proto = g.model(g.op("DequantizeLinear", y, sy, zy))
    feeds = {"x": rng.integers(0, 256, (1, 2, 6, 6), np.uint8)}
    model = from_onnx(proto.SerializeToString())
    # The scales and zero points are brought to their type and shape here, not in each run.
    assert model.operations == (
        OperationType.CAST,
        OperationType.SUB,
        OperationType.MUL,
        OperationType.QUANT_DTYPE_CAST,
        OperationType.CONV2D,
        OperationType.QUANT_DTYPE_CAST,
    )
    (mine,) = through_a_daemon(model, each_runtime, feeds)
    (theirs,) = run_onnxruntime(proto, feeds)
    assert np.abs(mine - theirs).max() <= 0.2 + 1e-6
    assert (np.abs(mine - theirs) > 1e-5).mean() < 0.05


def test_sums_of_integers_are_exact(each_runtime: Runtime) -> None:
    """Those of 576 products are above 2^24, from where on FLOAT32 has even numbers only."""
    rng = np.random.default_rng(7)
    g = Graph()
    x = g.input("x", [1, 64, 5, 5], np.uint8)
    weight, bound = rng.integers(200, 256, (2, 64, 3, 3), np.uint8), 1 << 24
    proto = g.model(g.op("ConvInteger", x, g.constant(weight)))
    feeds = {"x": rng.integers(200, 256, (1, 64, 5, 5), np.uint8)}
    (mine,) = through_a_daemon(from_onnx(proto.SerializeToString()), each_runtime, feeds)
    (theirs,) = run_onnxruntime(proto, feeds)
    assert theirs.min() > bound
    assert (theirs % 2).any()
    np.testing.assert_array_equal(mine, theirs)


def test_integers_are_convolved_once_where_float32_holds_every_sum() -> None:
    """The largest weight times all of them would be beyond 2^24; what each channel has together is not."""
    g = Graph()
    x = g.input("x", [1, 64, 5, 5], np.uint8)
    weight = np.random.default_rng(8).integers(-127, 128, (2, 64, 3, 3), np.int8)
    model = from_onnx(g.model(g.op("ConvInteger", x, g.constant(weight))).SerializeToString())
    assert model.operations.count(OperationType.CONV2D) == 1


def test_sums_of_integers_that_are_read_as_real_numbers_are_no_integers_before(each_runtime: Runtime) -> None:
    rng = np.random.default_rng(9)
    g = Graph()
    x = g.input("x", [1, 64, 5, 5], np.uint8)
    sums = g.op("ConvInteger", x, g.constant(rng.integers(200, 256, (2, 64, 3, 3), np.uint8)))
    proto = g.model(g.op("Cast", sums, to=onnx.TensorProto.FLOAT))
    model = from_onnx(proto.SerializeToString())
    assert OperationType.ROUND not in model.operations
    feeds = {"x": rng.integers(0, 256, (1, 64, 5, 5), np.uint8)}
    (mine,), (theirs,) = through_a_daemon(model, each_runtime, feeds), run_onnxruntime(proto, feeds)
    np.testing.assert_array_equal(mine, theirs)
