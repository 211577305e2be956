"""What ONNX Runtime fuses in a file, it fuses in the model that is imported from it, too.

The files are those of fusion_networks.py. Nodes are counted in what ONNX Runtime's optimizations leave, of the file and
of the graph lowered for it, on the processor at hand.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from nnrt_backend_onnxruntime.backend import create
from onnx_models import REFERENCE, AnyArray, Graph, run_imported, run_onnxruntime

from nnrt_client import Model, from_onnx
from nnrt_client.model.model import parts_of
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig
from nnrt_hdi.enums import ActivationType, NodeType, ReduceMode

pytestmark = pytest.mark.table

EXPORTS = Path(__file__).with_name("fusion_exports")
NAMES = sorted(path.stem for path in EXPORTS.iterdir())

# Nodes that go through whole tensors, and are left where a fusion is lost.
LEFT = frozenset(
    """
    BatchNormalization Cast Clip Concat Conv ConvTranspose DequantizeLinear Div DynamicQuantizeLinear Erf FusedConv
    Gather Gemm GlobalAveragePool HardSigmoid HardSwish LayerNormalization MatMul MatMulInteger Max MaxPool Mul Pow
    QLinearAdd QuantizeLinear ReduceMax ReduceMean ReduceMin Relu ReorderInput ReorderOutput Resize Round Sigmoid Slice
    Softmax Split Sqrt Sub Tanh Tile Transpose Upsample
    """.split()  # noqa: SIM905  (one name a line would take a page)
)
# NNRt counts positions from the front: indices of tokens, which are few, are brought there first.
OF_INDICES = Counter(Div=1, Mul=1, Sub=1)
# A convolution of integers is one of FLOAT32, but where a processor adds their products in 32 bits.
OF_CONVOLUTION = Counter(Conv=1, Cast=1, ReorderOutput=1, Sub=1)
# The sign of what a dynamic quantization is of is not known, and its factors are multiplied in another order.
OF_ZERO_POINTS = Counter(Cast=1, Mul=1, Sub=1)
MORE = {
    "bert-dynamo": OF_INDICES,
    "bert-torchscript": OF_INDICES,
    "bert-dynamic": OF_INDICES + OF_ZERO_POINTS,
    "gpt-dynamo": OF_INDICES,
    "gpt-torchscript": OF_INDICES,
    "vit-dynamic": OF_CONVOLUTION,
}
# Both sides round to other integers where halves meet, from layer to layer.
STEP = 0.04


@pytest.fixture(scope="module")
def backend() -> Backend:
    return create({"threads": "1"})


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def optimized_file(path: Path, folder: Path) -> Counter[str]:
    """The nodes that ONNX Runtime's optimizations leave of a file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return kinds(onnx.load(folder / "optimized.onnx"))


def optimized_import(model: Model, backend: Backend) -> Counter[str]:
    """The nodes that ONNX Runtime's optimizations leave of what the backend makes of an imported model."""
    prepared = backend.prepare(parts_of(model).graph, ModelConfig(), lambda _: None)
    made = onnx.load_from_string(bytes(prepared.export()[2].data))
    prepared.close()
    return kinds(made)


def fed(path: Path) -> dict[str, AnyArray]:
    rng = np.random.default_rng(4)
    feeds: dict[str, Any] = {}
    for entry in onnx.load(path).graph.input:
        shape = [dim.dim_value or 96 for dim in entry.type.tensor_type.shape.dim]
        if entry.name == "tokens":
            feeds[entry.name] = rng.integers(0, 100, shape)
        elif entry.name == "mask":
            feeds[entry.name] = np.ones(shape, np.int64)
        else:
            feeds[entry.name] = rng.standard_normal(shape, np.float32)
    return feeds


@pytest.mark.parametrize("name", NAMES)
def test_no_fusion_is_lost(name: str, backend: Backend, tmp_path: Path) -> None:
    path = EXPORTS / f"{name}.onnx"
    theirs, ours = optimized_file(path, tmp_path), optimized_import(from_onnx(path), backend)
    allowed = theirs + MORE.get(name, Counter())
    lost = {kind: (ours[kind], allowed[kind]) for kind in LEFT if ours[kind] > allowed[kind]}
    if name.endswith("s8s8"):
        lost.pop("QLinearAdd", None)  # Theirs are additions of FLOAT32 between conversions.
    assert not lost, f"ours and theirs: {lost}"


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_onnx_runtime(name: str, backend: Backend) -> None:
    path = EXPORTS / f"{name}.onnx"
    proto, feeds = onnx.load(path), fed(path)
    is_quantized = name.endswith(("8", "dynamic"))
    for mine, theirs in zip(run_imported(from_onnx(path), feeds, backend), run_onnxruntime(proto, feeds), strict=True):
        size = float(np.abs(theirs).max())
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=size * (STEP if is_quantized else 1e-5))


@pytest.mark.parametrize("name", ["resnet", "mobilenet"])
def test_int8_activations_run_as_uint8_ones_do(name: str, backend: Backend) -> None:
    """On x86 ONNX Runtime has slow kernels for them, or computes them in FLOAT32."""
    signed, unsigned = (
        optimized_import(from_onnx(EXPORTS / f"{name}-{kind}.onnx"), backend) for kind in ("s8s8", "u8s8")
    )
    assert signed == unsigned


def dynamically_quantized(weight: AnyArray, zero_point: AnyArray) -> Any:
    """A product as ONNX Runtime's dynamic quantization writes it, and what it is made of."""
    g = Graph()
    y, scale, point = g.op("DynamicQuantizeLinear", g.input("x", [3, 4]), outputs=3)
    product = g.op("MatMulInteger", y, g.constant(weight), point, g.constant(zero_point))
    real = g.op("Mul", g.op("Cast", product, to=1), g.op("Mul", scale, g.constant(np.float32(0.01))))
    return g.model(real, y, scale, point)


@pytest.mark.parametrize(
    ("weight", "zero_point"),
    [
        (np.arange(-128, 128, 13).astype(np.int8).reshape(4, 5), np.int8(0)),
        (np.arange(0, 256, 13).astype(np.uint8).reshape(4, 5), np.uint8(128)),
        (np.arange(0, 256, 13).astype(np.uint8).reshape(4, 5), np.uint8(3)),
        (np.arange(0, 100, 5).astype(np.uint8).reshape(4, 5), np.uint8(200)),
    ],
    ids=["INT8", "UINT8", "UINT8 off the middle", "UINT8 beside its range"],
)
@pytest.mark.parametrize("spread", [1.0, 1e-3], ids=str)
def test_dynamic_quantization_is_one_operator(
    weight: AnyArray, zero_point: Any, spread: float, backend: Backend
) -> None:
    proto = dynamically_quantized(weight, np.asarray(zero_point))
    model = from_onnx(proto.SerializeToString())
    assert optimized_import(model, backend) == Counter(DynamicQuantizeLinear=1, MatMulIntegerToFloat=1)
    for shift in (0.0, 2.0, -2.0):
        feeds = {"x": (np.random.default_rng(1).standard_normal((3, 4), np.float32) + np.float32(shift)) * spread}
        feeds = {"x": feeds["x"].astype(np.float32)}
        for mine, theirs in zip(run_imported(model, feeds, backend), run_onnxruntime(proto, feeds), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


# Changes by which it is no dynamic quantization: of which type of node, what changes, and in which one of that type.
NEARLY: list[tuple[NodeType, dict[str, Any], int]] = [
    (NodeType.CLIP, {"attrs": {"min": 0.0, "max": 200.0}}, 0),
    (NodeType.CLIP, {"attrs": {"min": 10.0, "max": 255.0}}, -1),
    (NodeType.ROUND, {"type": NodeType.FLOOR}, 0),
    (NodeType.ROUND, {"type": NodeType.CEIL}, -1),
    (NodeType.MINIMUM, {"type": NodeType.MAXIMUM}, 0),
    (NodeType.MAXIMUM, {"type": NodeType.MINIMUM}, 0),
    (NodeType.ADD_FUSION, {"attrs": {"activation_type": ActivationType.RELU6}}, 0),
    (NodeType.REDUCE_FUSION, {"attrs": {"mode": ReduceMode.MEAN}}, 0),
    (NodeType.REDUCE_FUSION, {"attrs": {"mode": ReduceMode.MEAN}}, 1),
]


@pytest.mark.parametrize(("kind", "change", "which"), NEARLY, ids=lambda given: str(getattr(given, "name", given)))
def test_what_is_nearly_a_dynamic_quantization_is_computed_as_it_is(
    kind: NodeType, change: dict[str, Any], which: int, backend: Backend
) -> None:
    weight = np.arange(-128, 128, 13).astype(np.int8).reshape(4, 5)
    graph = parts_of(from_onnx(dynamically_quantized(weight, np.zeros((), np.int8)).SerializeToString())).graph
    at = [index for index, node in enumerate(graph.nodes) if node.type is kind][which]
    nodes = list(graph.nodes)
    nodes[at] = replace(nodes[at], **change)
    changed = replace(graph, nodes=tuple(nodes))
    x = np.random.default_rng(1).standard_normal((3, 4), np.float32)
    results = []
    for device in (backend, REFERENCE):
        prepared = device.prepare(changed, ModelConfig(), lambda _: None)
        results.append(prepared.run([x], Cancellation()))
        prepared.close()
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_weight_that_a_run_gives_is_multiplied_as_it_is(backend: Backend) -> None:
    g = Graph()
    a, b = g.input("a", [3, 4], np.uint8), g.input("b", [4, 5], np.uint8)
    proto = g.model(g.op("MatMulInteger", a, b))
    feeds = {
        name: np.random.default_rng(2).integers(0, 256, shape).astype(np.uint8)
        for name, shape in (("a", (3, 4)), ("b", (4, 5)))
    }
    for mine, theirs in zip(
        run_imported(from_onnx(proto.SerializeToString()), feeds, backend), run_onnxruntime(proto, feeds), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
