"""Networks as ONNX Runtime's quantizer and optimizers save them come in and give what ONNX Runtime gives."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import AnyArray, Graph, run_onnxruntime
from onnxruntime.quantization import QuantFormat, QuantType
from ort_tools import MICROSOFT, dynamically_quantized, optimized, statically_quantized
from tool_networks import NETWORKS

from nnrt_client import Compilation, Executor, OperationType, Runtime, Unsupported, from_onnx

pytestmark = pytest.mark.table

ATTENTION = Path(__file__).with_name("attention_exports")

Feeds = dict[str, AnyArray]


def _static(format: QuantFormat, **how: Any) -> Callable[[onnx.ModelProto, Feeds], onnx.ModelProto]:
    return lambda proto, feeds: statically_quantized(proto, feeds, format, **how)


# What the tools can be asked for.
_MADE: dict[str, Callable[[onnx.ModelProto, Feeds], onnx.ModelProto]] = {
    "float": lambda proto, feeds: proto,
    "operators": _static(QuantFormat.QOperator),
    "operators of int8 by channel": _static(QuantFormat.QOperator, activations=QuantType.QInt8, per_channel=True),
    "operators of reduced uint8": _static(QuantFormat.QOperator, weights=QuantType.QUInt8, reduce_range=True),
    "pairs": _static(QuantFormat.QDQ),
    "pairs of int8 by channel": _static(QuantFormat.QDQ, activations=QuantType.QInt8, per_channel=True),
    "pairs of reduced uint8": _static(QuantFormat.QDQ, weights=QuantType.QUInt8, reduce_range=True),
    "dynamic": lambda proto, feeds: dynamically_quantized(proto),
    "dynamic uint8 by channel": lambda proto, feeds: dynamically_quantized(
        proto, weights=QuantType.QUInt8, per_channel=True
    ),
    "dynamic of reduced range": lambda proto, feeds: dynamically_quantized(proto, reduce_range=True),
}
# Of each network what makes a difference to it. ONNX Runtime 1.23 has no ConvInteger with weights of INT8, and a static
# LSTM isn't quantized.
_HOWS = {
    "cnn": [how for how in _MADE if how not in ("dynamic", "dynamic of reduced range")],
    "decoder": ["float", "operators", "pairs of int8 by channel", "dynamic", "dynamic uint8 by channel"],
    "encoder": list(_MADE),
    "lstm": ["float", "operators", "pairs of int8 by channel", "dynamic", "dynamic uint8 by channel"],
}
_OPTIMIZED = ("float", "operators", "pairs", "dynamic", "dynamic uint8 by channel")
# How each is saved then; but for convolutions, "all" is what "extended" is.
_CASES = [
    *((name, how, None) for name, hows in _HOWS.items() for how in hows if how != "float"),
    *((name, how, "extended") for name, hows in _HOWS.items() for how in hows if how in _OPTIMIZED),
    ("cnn", "float", "basic"),
    ("cnn", "operators", "all"),
    ("cnn", "pairs", "all"),
]


@cache
def made(name: str, how: str, level: str | None) -> tuple[onnx.ModelProto, Feeds]:
    proto, feeds = NETWORKS[name]()
    proto = _MADE[how](proto, dict(feeds))
    if level is not None:
        # Which quantized images it lays out for one processor depends on the processor.
        proto = optimized(proto, level, without=() if how == "float" else ["NchwcTransformer"])
    return proto, dict(feeds)


def run(proto: onnx.ModelProto, runtime: Runtime, *all_feeds: Feeds) -> list[list[AnyArray]]:
    model = from_onnx(proto.SerializeToString())
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            return [executor.run_sync([feeds[x.desc.name] for x in model.inputs]) for feeds in all_feeds]


def last_scale(proto: onnx.ModelProto) -> float:
    """The largest step in which an output of the network is quantized; 0 where none is."""
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    wanted = {info.name for info in proto.graph.output}
    last = [node for node in proto.graph.node if node.op_type == "DequantizeLinear" and wanted & set(node.output)]
    return max((float(values[node.input[1]]) for node in last), default=0.0)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: "-".join(filter(None, case)))
def test_what_the_tools_save_gives_what_onnx_runtime_gives(
    case: tuple[str, str, str | None], each_runtime: Runtime
) -> None:
    proto, feeds = made(*case)
    shorter = {name: array[:, :-1] if case[0] != "cnn" else array[:1] for name, array in feeds.items()}
    # Quantized, a step of the output; where an LSTM is, ONNX Runtime rounds what its weights are multiplied by.
    rounds = any(node.op_type == "DynamicQuantizeLSTM" for node in proto.graph.node)
    atol = 0.03 if rounds else 1e-4 + 1.001 * last_scale(proto)
    for given, said in zip(run(proto, each_runtime, feeds, shorter), (feeds, shorter), strict=True):
        for mine, theirs in zip(given, run_onnxruntime(proto, said), strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            assert np.unique(theirs).size > 1
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_tools_write_operators_of_their_own(name: str) -> None:
    """So that the tests above are no tests of ONNX's."""
    written = {
        node.op_type
        for how in _HOWS[name]
        for level in (None, "extended")
        for node in made(name, how, level)[0].graph.node
        if node.domain == MICROSOFT or node.op_type == "SimplifiedLayerNormalization"
    }
    assert (
        written
        >= {
            "cnn": {
                "DynamicQuantizeMatMul",
                "FusedConv",
                "QGemm",
                "QLinearAdd",
                "QLinearAveragePool",
                "QLinearConcat",
                "QLinearGlobalAveragePool",
                "QLinearLeakyRelu",
                "QLinearMul",
                "QLinearSigmoid",
                "QLinearSoftmax",
                "QuickGelu",
            },
            "decoder": {
                "DynamicQuantizeMatMul",
                "FastGelu",
                "FusedMatMul",
                "QuickGelu",
                "SimplifiedLayerNormalization",
            },
            "encoder": {
                "BiasGelu",
                "FusedGemm",
                "FusedMatMul",
                "Gelu",
                "MatMulIntegerToFloat",
                "SkipLayerNormalization",
            },
            "lstm": {"DynamicQuantizeLSTM", "DynamicQuantizeMatMul"},
        }[name]
    )


def test_quantized_operators_run_on_quantized_tensors() -> None:
    proto, _ = made("cnn", "operators", None)
    model = from_onnx(proto.SerializeToString())
    written = [node.op_type for node in proto.graph.node]
    assert {OperationType.CAST, OperationType.SUB}.isdisjoint(model.operations)
    assert model.operations.count(OperationType.QUANT_DTYPE_CAST) <= sum(
        written.count(name) for name in ("QuantizeLinear", "DequantizeLinear")
    )


@pytest.mark.parametrize("path", sorted(ATTENTION.glob("*.onnx")), ids=lambda path: path.stem)
@pytest.mark.parametrize("how", ["float", "dynamic"])
def test_fused_attention_gives_what_onnx_runtime_gives(path: Path, how: str, each_runtime: Runtime) -> None:
    proto = _MADE[how](onnx.load(path), {})
    rng = np.random.default_rng(5)
    for batch, steps in ((2, 6), (3, 9)):
        mask = (np.arange(steps) < rng.integers(3, steps + 1, (batch, 1))).astype("i8")
        feeds = {
            "ids": rng.integers(0, 20, (batch, steps)),
            "mask": mask,
            "types": rng.integers(0, 2, (batch, steps)),
        }
        (given,), (theirs,) = run(proto, each_runtime, feeds)[0], run_onnxruntime(proto, feeds)
        np.testing.assert_allclose(given, theirs, rtol=1e-4, atol=1e-4)


def test_layouts_of_a_processor_are_refused_with_what_to_save_instead() -> None:
    proto, _ = made("cnn", "float", "all")
    with pytest.raises(Unsupported, match="save the model at optimization level 'extended' or below"):
        from_onnx(proto.SerializeToString())


# Operators that ONNX Runtime's tools leave between quantized ones, on their integers.
_MOVING: dict[str, tuple[Any, dict[str, Any]]] = {
    "DepthToSpace": ((), {"blocksize": 2}),
    "Gather": ((np.array([1, 0]),), {"axis": 1}),
    "GatherElements": ((np.ones((1, 2, 4, 4), "i8"),), {"axis": 1}),
    "MaxPool": ((), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "Pad": ((np.array([0, 0, 1, 0, 0, 0, 0, 2]), np.uint8(9)), {}),
    "Pad of 0": ((np.array([0, 0, 1, 0, 0, 0, 0, 2]),), {}),
    "Pad of edges": ((np.array([0, 0, 1, 0, 0, 0, 0, 2]),), {"mode": "edge"}),
    "Resize": (("", np.array([1, 1, 2, 2], "f4")), {"mode": "nearest"}),
    "Reshape": ((np.array([0, -1]),), {}),
    "Slice": ((np.array([1]), np.array([3]), np.array([3])), {}),
    "Squeeze": ((np.array([0]),), {}),
    "Tile": ((np.array([1, 2, 1, 1]),), {}),
    "Transpose": ((), {"perm": [0, 2, 3, 1]}),
}


@pytest.mark.parametrize("name", _MOVING)
def test_integers_are_moved_as_they_are(name: str, each_runtime: Runtime) -> None:
    given, attributes = _MOVING[name]
    g = Graph(17)
    params = g.constant(np.float32(1 / 128)), g.constant(np.uint8(5))
    others = g.constant(np.float32(0.3)), g.constant(np.uint8(90))
    y = g.op("QLinearSigmoid", g.input("x", [1, 4, 4, 4], np.uint8), *others, *params, domain=MICROSOFT)
    y = g.op(name.split()[0], y, *(part if isinstance(part, str) else g.constant(part) for part in given), **attributes)
    z = g.op("QLinearLeakyRelu", y, *params, *params, domain=MICROSOFT)
    # Read by another scale than it was written by, which nobody can, but a file may ask for.
    proto = g.model(y, g.op("DequantizeLinear", z, *params), g.op("DequantizeLinear", y, *others))
    feeds = {"x": np.random.default_rng(4).integers(0, 256, (1, 4, 4, 4), np.uint8)}
    (results,) = run(proto, each_runtime, feeds)
    for mine, theirs, step in zip(results, run_onnxruntime(proto, feeds), (1, 1 / 128, 0.3), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine.astype("f8"), theirs.astype("f8"), atol=1.001 * step)
        assert (np.abs(mine.astype("f8") - theirs) > 1e-5).mean() < 0.1


def test_rounded_integers_are_moved_as_onnx_rounds_them(each_runtime: Runtime) -> None:
    """Whoever reads them as integers gets halves rounded to even, and whoever reads them as real numbers need not."""
    g = Graph(17)
    params = g.constant(np.float32(1)), g.constant(np.uint8(3))
    moved = g.op("Transpose", g.op("QuantizeLinear", g.input("x", [2, 3]), *params), perm=[1, 0])
    y = g.op("QLinearLeakyRelu", moved, *params, *params, domain=MICROSOFT)
    proto = g.model(moved, g.op("Cast", moved, to=onnx.TensorProto.INT32), g.op("Cast", y, to=onnx.TensorProto.INT32))
    feeds = {"x": np.array([[0.5, 1.5, 2.5], [-0.5, 1.4, 300]], "f4")}
    (results,), theirs = run(proto, each_runtime, feeds), run_onnxruntime(proto, feeds)
    for mine, said in zip(results[:2], theirs, strict=False):
        np.testing.assert_array_equal(mine, said)
    np.testing.assert_allclose(results[2], theirs[2], atol=1)


def test_integers_that_stand_for_real_numbers_are_not_computed_with() -> None:
    g = Graph(17)
    x = g.input("x", [4], np.uint8)
    params = g.constant(np.float32(0.5)), g.constant(np.uint8(3))
    y = g.op("QLinearSigmoid", x, *params, *params, domain=MICROSOFT)
    with pytest.raises(Unsupported, match="integers that stand for real numbers; put DequantizeLinear before it"):
        from_onnx(g.model(g.op("Add", y, y)).SerializeToString())


_WINDOWED = {"num_heads": 1, "kv_num_heads": 1, "local_window_size": 4, "sliding_window_cache": 1}


@pytest.mark.parametrize(
    ("op_type", "count", "attributes", "reason"),
    [
        ("FusedMatMul", 2, {"transBatchA": 1}, "its transBatchA is 1 and its transBatchB 0; put Transpose before it"),
        ("FusedGemm", 2, {"activation": "Sinus"}, "its activation is 'Sinus' with .*; put it behind as an operator"),
        ("Attention", 2, {"num_heads": 1, "do_rotary": 1}, "its do_rotary is 1; export it with RotaryEmbedding"),
        ("MultiHeadAttention", 1, {"num_heads": 1}, "comes without keys or values; use three inputs"),
        ("GroupQueryAttention", 7, _WINDOWED, "its cache is compressed or a window .*; use one of all steps"),
        ("MatMulNBits", 3, {"K": 4, "N": 4, "block_size": 16}, "its weight is known only in a run"),
        ("BeamSearch", 2, {}, "what ONNX Runtime adds here"),
        ("EPContext", 1, {}, "compiled for one accelerator; give the model that it was compiled from"),
    ],
)
def test_refusals_name_what_is_in_the_way(op_type: str, count: int, attributes: dict[str, Any], reason: str) -> None:
    g = Graph(17)
    given = [g.input(f"x{at}", [4, 4]) for at in range(count)]
    with pytest.raises(Unsupported, match=reason):
        from_onnx(g.model(g.op(op_type, *given, domain=MICROSOFT, **attributes)).SerializeToString())
