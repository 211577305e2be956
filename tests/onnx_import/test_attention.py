"""Attention and what decoders have around it, as ONNX Runtime computes it, with sizes known before a run or in it."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from daemon_process import DaemonProcess
from decoders import DECODERS, generated
from onnx_models import AnyArray, Graph, run_onnxruntime
from ort_tools import MICROSOFT
from samples import Sample
from samples_attention import ATTENTION, GROUPED
from test_operators import expected, graph_of

from nnrt_client import Compilation, Executor, OperationType, Runtime, Way, from_onnx, load

pytestmark = pytest.mark.table

# Dimensions of operands for the batch and for the number of steps, by their rank.
_OPEN = {1: [0], 2: [0, 1], 3: [0, 1], 4: [0, 2]}
_MASKS = {"Attention": "x3", "GroupQueryAttention": "x10"}
SAMPLES = [*ATTENTION, *GROUPED]
# A file can't declare that a tensor has no elements.
OF_KNOWN_SIZE = [
    sample for sample in SAMPLES if all(np.size(operand) for operand in sample.given if operand is not None)
]


def opened(sample: Sample) -> tuple[onnx.ModelProto, dict[str, AnyArray]]:
    """Return the sample as a model whose batch and numbers of steps are open, and what it is fed."""
    proto, feeds = graph_of(sample)
    for info in proto.graph.input:
        dims = info.type.tensor_type.shape.dim
        is_mask = info.name == _MASKS.get(sample.op_type)
        for at in range(len(dims)) if is_mask else _OPEN.get(len(dims), []) if info.name != "unused" else ():
            dims[at].Clear()
        if len(dims) > 2 and not is_mask:
            dims[0].dim_param = "batch"
    return proto, feeds


def run(proto: onnx.ModelProto, feeds: dict[str, AnyArray], runtime: Runtime) -> list[AnyArray]:
    model = from_onnx(proto.SerializeToString())
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            given: list[AnyArray] = executor.run_sync([feeds[x.desc.name] for x in model.inputs])
    return given


def require_same(mine: AnyArray, theirs: AnyArray, atol: float) -> None:
    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(mine.astype("f8"), theirs.astype("f8"), rtol=1e-2 if atol > 1e-3 else 1e-4, atol=atol)


def require_what_onnx_runtime_gives(
    sample: Sample, graph: tuple[onnx.ModelProto, dict[str, AnyArray]], runtime: Runtime
) -> None:
    given, wanted = run(*graph, runtime), expected(sample, *graph_of(sample))
    for mine, theirs in zip(given, wanted, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    if sample.op_type == "GroupQueryAttention":
        given, wanted = specified(sample, given), specified(sample, wanted)
    for mine, theirs in zip(given, wanted, strict=True):
        require_same(mine, theirs, sample.atol)


def specified(sample: Sample, outputs: list[AnyArray]) -> list[AnyArray]:
    """Return what is said of the outputs: nothing of steps behind the end of a row, and of what they give."""
    lengths, steps = sample.given[5] + 1, sample.given[0].shape[1]
    new = np.minimum(lengths, steps) if len(sample.given) < 17 else sample.given[16]
    result, key, value, *rest = outputs
    rows = range(len(lengths))
    caches = [cache[row, :, : lengths[row]] for cache in (key, value) for row in rows]
    return [*(result[row, : new[row]] for row in rows), *caches, *rest]


@pytest.mark.parametrize("sample", OF_KNOWN_SIZE, ids=str)
def test_of_known_sizes(sample: Sample, each_runtime: Runtime) -> None:
    require_what_onnx_runtime_gives(sample, graph_of(sample), each_runtime)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_of_sizes_that_only_a_run_knows(sample: Sample, each_runtime: Runtime) -> None:
    require_what_onnx_runtime_gives(sample, opened(sample), each_runtime)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_packed_heads_give_what_they_give_unpacked(count: int, has_bias: bool, each_runtime: Runtime) -> None:
    """Only other processors have them packed in ONNX Runtime."""
    rng = np.random.default_rng(3)
    parts = [rng.normal(size=(2, 3, 4, 8)).astype("f4") for _ in range(3)]
    packed, rest = np.stack(parts[3 - count :], 3), [part.reshape(2, 3, 32) for part in parts]
    g, plain = Graph(), Graph()
    bias = np.arange(96, dtype="f4") / 50
    query = [g.input("q", ["batch", "steps", 32])] if count == 2 else []
    given = [*query, g.input("packed", ["batch", "steps", 4, count, 8])]
    given += [""] * (3 - len(given)) + [g.constant(bias)] if has_bias else []
    model = g.model(g.op("MultiHeadAttention", *given, domain=MICROSOFT, num_heads=4))
    wanted = [plain.input(name, [2, 3, 32]) for name in "qkv"] + ([plain.constant(bias)] if has_bias else [])
    said = plain.model(plain.op("MultiHeadAttention", *wanted, domain=MICROSOFT, num_heads=4))
    (mine,) = run(model, {"q": rest[0], "packed": packed}, each_runtime)
    (theirs,) = run_onnxruntime(said, dict(zip("qkv", rest, strict=True)))
    require_same(mine, theirs, 1e-5)


def test_norms_of_heads_come_before_the_rotation(each_runtime: Runtime) -> None:
    """In ONNX Runtime only other processors have them as inputs; as nodes of their own all have them."""
    sample = next(sample for sample in GROUPED if sample.attributes.get("do_rotary") and sample.given[3].size)
    scales = np.linspace(0.5, 2, 16, dtype="f4"), np.linspace(2, 1, 16, dtype="f4")
    names = [f"x{at}" if operand is not None else "" for at, operand in enumerate(sample.given)]
    graphs = {is_fused: Graph() for is_fused in (True, False)}
    feeds = {name: np.asarray(value) for name, value in zip(names, sample.given, strict=True) if name}
    protos = {}
    for is_fused, g in graphs.items():
        for name, value in feeds.items():
            g.input(name, value.shape, value.dtype)
        given, weights = list(names), [g.constant(scale) for scale in scales]
        if is_fused:
            given += [""] * (14 - len(given)) + weights
        else:
            for at, weight in enumerate(weights):
                heads = g.op("Reshape", given[at], g.constant([0, 0, -1, 16]))
                normed = g.op("SimplifiedLayerNormalization", heads, weight, epsilon=1e-6)
                given[at] = g.op("Reshape", normed, g.constant([0, 0, -1]))
        y, *_ = g.op("GroupQueryAttention", *given, outputs=3, domain=MICROSOFT, **sample.attributes)
        protos[is_fused] = g.model(y)
    (mine,), (theirs,) = run(protos[True], feeds, each_runtime), run_onnxruntime(protos[False], feeds)
    require_same(mine, theirs, 1e-5)


def test_what_layers_compute_alike_is_computed_once() -> None:
    """Positions and masks follow from sizes and lengths that all layers have in common."""
    for name, proto in DECODERS.items():
        # What counts up: rows, the steps of the run, and those of the cache.
        assert from_onnx(proto().SerializeToString()).operations.count(OperationType.TOP_K) <= 3, name


def test_scores_that_no_operation_gives_go_as_a_program(onnxruntime_daemon: DaemonProcess) -> None:
    sample = next(sample for sample in GROUPED if sample.given[3] is not None and sample.given[3].size)
    proto, feeds = graph_of(replace(sample, outputs=4, attributes={**sample.attributes, "qk_output": 2}))
    # A program says before it runs how many dimensions its outputs have.
    name = proto.graph.output[3].name
    proto.graph.output[3].CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * 4))
    with load(proto.SerializeToString(), onnxruntime_daemon.address) as session:
        assert session.way is Way.PROGRAM
        assert "GroupQueryAttention node" in session.report.passed_over[Way.OPERATORS]
        outputs = session.run(feeds)
    for info, theirs in zip(proto.graph.output, run_onnxruntime(proto, feeds), strict=True):
        require_same(outputs[info.name], theirs, 1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_generate_what_they_generate_in_onnx_runtime(name: str, each_runtime: Runtime) -> None:
    proto = DECODERS[name]()
    model = from_onnx(proto.SerializeToString())
    names = [x.desc.name for x in model.inputs]
    with Compilation(model, each_runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            mine = generated(lambda feeds: executor.run_sync([feeds[name] for name in names]), proto, steps=8)
            theirs = generated(lambda feeds: run_onnxruntime(proto, feeds), proto, steps=8)
            for (given, end), (wanted, _) in zip(mine, theirs, strict=True):
                for at, (got, said) in enumerate(zip(given, wanted, strict=True)):
                    assert np.unique(said).size > 1
                    seen = slice(end if at else None)
                    require_same(got[:, :, seen], said[:, :, seen], 1e-4)
