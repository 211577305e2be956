"""The lowering by itself: cases of the kit on the evaluator that comes with ONNX, and what else it promises."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from net import Net
from nnrt_onnx_lowering import Engine, IntegerTypes, Lowered, NodeSupport, Operator, lower
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from part import part

from nnrt_client.conformance import Case, Level, cases
from nnrt_client.conformance.tolerance import Tolerance
from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, PadMode
from nnrt_hdi.errors import OperationFailed, OutOfMemory, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph
from nnrt_hdi.tensor import QuantParam

N = NodeType
INT8, UINT8 = DataType.INT8, DataType.UINT8
# A node that is to have another shape, or constant operands.
ONLY_KNOWN = re.compile(r"known only when the model runs|is not known")
FEW = {DataType.INT8, DataType.UINT32, DataType.FLOAT16}


class Everything(Engine):
    """An engine that takes every operator of ONNX, and computes FLOAT16 in FLOAT32."""

    name = "Everything"
    computes_float16 = False

    def takes(self, operator: Operator) -> bool:
        return True


class Halves(Everything):
    """An engine that computes FLOAT16 as such."""

    computes_float16 = True


class Few(Everything):
    """An engine of few data types, as most accelerators are."""

    name = "Few"

    def takes(self, operator: Operator) -> bool:
        taken = {np.dtype(name) for name in ("bool", "int32", "int64", "float32", "float64")}
        return operator.type == "Cast" or taken.issuperset(dtype for dtype in operator.operands if dtype is not None)


def lowered(graph: Graph, engine: Engine, *, float16: bool = False) -> Lowered:
    return lower(inferred_graph(graph), engine, float16=float16)


def run(made: Lowered, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(made.whole()).run(list(made.outputs), dict(zip(made.inputs, inputs, strict=True)))
    return made.assertions.checked([np.asarray(result) for result in results])


# ---- cases


def is_empty(case: Case) -> bool:
    return any(not array.size for inputs in case.inputs for array in inputs)


def has_uneven_pad(case: Case) -> bool:
    """Whether a pool's pads may differ, which SAME makes of a kernel that is not square."""
    attrs = case.graph.nodes[0].attrs
    pads = attrs.get("kernel_size", 0) if attrs.get("pad_mode") is PadMode.SAME else attrs.get("pad", 0)
    return len({*np.ravel(pads)}) > 1


# What the evaluator (of onnx 1.23) computes otherwise than ONNX says.
FAULTS: dict[NodeType, Callable[[Case], bool]] = {
    # ConvTranspose takes the weights of a group for those of all, and has no answer for no batches.
    N.CONV2D_TRANSPOSE_FUSION: lambda case: case.graph.nodes[0].attrs.get("group", 1) != 1 or is_empty(case),
    # Flatten asks numpy for the rest of no elements.
    N.FLATTEN: lambda case: case.is_dynamic and is_empty(case),
    # LogSoftmax is the logarithm of what may have become 0.
    N.LOG_SOFTMAX: lambda case: case.data_type is not DataType.FLOAT64,
    # LRN computes as many channels as there are batches; of FLOAT64 there is none.
    N.LRN: lambda case: case.data_type is not DataType.FLOAT64,
    # MaxPool makes NaN of a border of integers, and takes the end of a dimension for the start of the next.
    N.MAX_POOL_FUSION: lambda case: "FLOAT" not in case.data_type.name or has_uneven_pad(case),
    # GatherElements takes one element of a row for all, where there are more than 64.
    N.TOPK_FUSION: lambda case: any(max(array.shape) > 64 for inputs in case.inputs for array in inputs),
}


def by_node_type(level: Level, wanted: Callable[[Case], bool]) -> pytest.MarkDecorator:
    """The cases of a level of each node type, without those that the evaluator computes wrong."""
    groups = defaultdict(list)
    for case in filter(wanted, cases(level)):
        (node_type,) = case.node_types
        is_wrong = FAULTS.get(node_type)
        if is_wrong is None or not is_wrong(case):
            groups[node_type.name].append(case)
    return pytest.mark.parametrize("group", groups.values(), ids=groups)


def wrong(group: list[Case], engine: Engine) -> Iterator[str]:
    """What isn't as the cases want it."""
    for case in part(group, lambda case: case.name, lambda case: (case.data_type, case.is_dynamic)):
        try:
            made = lowered(case.graph, engine, float16=case.enable_float16)
        except Unsupported as error:
            if not (case.is_dynamic and ONLY_KNOWN.search(error.message)):
                yield f"{case.name}: {error}"
            continue
        for each in case.runs:
            if each.wanted is not None:
                reasons = [distance.reason for distance in case.distances(run(made, *each.inputs), each)]
                yield from (f"{case.name}: {reason}" for reason in reasons if reason)


@by_node_type(Level.OPERATORS, lambda case: not case.is_dynamic or case.data_type is DataType.FLOAT32)
def test_nodes_give_the_answers(group: list[Case]) -> None:
    assert not list(wrong(group, Everything()))


@by_node_type(Level.OPERATORS, lambda case: case.data_type in FEW and not case.is_dynamic)
def test_what_an_engine_lacks_is_computed_in_what_it_has(group: list[Case]) -> None:
    """Where that gives the same; else the message says for which operator and data type there is no kernel."""
    refused = re.compile(r"\w+ node 0: Few has no \w+ kernel for \w+$")
    assert not [what for what in wrong(group, Few()) if not refused.search(what)]


def is_right_in_halves(case: Case) -> bool:
    """A case of FLOAT16 tensors, but where the evaluator overlooks that LayerNormalization's `stash_type` is FLOAT32,
    or rounds the 1 + erf of Gelu."""
    (node_type,) = case.node_types
    if case.enable_float16 or node_type is N.LAYER_NORM_FUSION:
        return False
    return case.graph.nodes[0].attrs.get("activation_type") is not ActivationType.GELU


@by_node_type(
    Level.FLOAT16,
    lambda case: case.data_type is DataType.FLOAT16 and not case.is_dynamic and is_right_in_halves(case),
)
def test_halves_are_computed_as_such_where_that_is_enough(group: list[Case]) -> None:
    rounded = Tolerance("a node is a few operators, each of which rounds", {DataType.FLOAT16: 2.0**-6})
    assert not list(wrong([replace(case, tolerance=rounded) for case in group], Halves()))


# ---- what the result has


def network() -> Graph:
    """Rows of an input times a large constant, plus another input, of which no dimension is known; both are squared."""
    net = Net(Format.NONE)
    x, y = net.input(-1, 64), net.input(64)
    weight = net.constant(np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32))
    return net.graph(net.op(N.ADD_FUSION, net.op(N.MATMUL_FUSION, x, weight), y), net.op(N.SQUARE, y))


def operands(rows: int = 2) -> tuple[NDArray[Any], NDArray[Any]]:
    random = np.random.default_rng(rows)
    return random.standard_normal((rows, 64)).astype(np.float32), random.standard_normal(64).astype(np.float32)


def test_inputs_and_outputs_are_named_in_the_order_of_the_graph() -> None:
    made = lowered(network(), Everything())
    assert made.inputs == tuple(info.name for info in made.model.graph.input)
    assert made.outputs == tuple(info.name for info in made.model.graph.output)
    for rows in (1, 3):
        x, y = operands(rows)
        product, square = run(made, x, y)
        assert product.shape == (rows, 64)
        np.testing.assert_array_equal(square, y * y)


def test_large_weights_are_beside_the_model_or_in_it_or_where_they_are_wanted(tmp_path: Path) -> None:
    made = lowered(network(), Everything())
    ((name, array),) = made.weights.items()
    assert (array.shape, array.flags.c_contiguous) == ((64, 64), True)
    assert made.model.ByteSize() < array.nbytes < made.whole().ByteSize()
    with (tmp_path / "elements").open("wb") as file:
        file.write(bytes(64) + array.tobytes())

    def place(given: str, elements: NDArray[Any]) -> tuple[str, int]:
        assert given == name and elements is array
        return "elements", 64

    onnx.save_model(made.placed(place), tmp_path / "model")
    given = dict(zip(made.inputs, operands(), strict=True))
    from_file = ReferenceEvaluator(onnx.load_model(tmp_path / "model")).run(list(made.outputs), given)
    for pair in zip(from_file, run(made, *operands()), strict=True):
        np.testing.assert_array_equal(*pair)


def test_a_model_that_is_too_large_to_be_serialized_whole_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnrt_onnx_lowering.lowered.MOST_WHOLE_BYTES", 64 * 64 * 4)
    with pytest.raises(OutOfMemory, match=r"the model has \d+ bytes; whole it may have 16384"):
        lowered(network(), Everything()).whole()


def test_halves_are_kept_in_half_of_the_memory() -> None:
    made = lowered(network(), Halves(), float16=True)
    assert [array.dtype for array in made.weights.values()] == [np.dtype(np.float16)]
    for halved, wanted in zip(run(made, *operands()), run(lowered(network(), Everything()), *operands()), strict=True):
        assert halved.dtype == np.float32
        np.testing.assert_allclose(halved, wanted, rtol=0.01, atol=0.05)


def test_what_assertions_look_at_comes_behind_the_outputs() -> None:
    net = Net(Format.NONE)
    x, condition = net.input(3), net.input(2, data_type=DataType.BOOL)
    asserted = net.op(N.ASSERT, condition, x, outputs=[net.spec((2,), DataType.BOOL)], summarize=2)
    graph = net.graph(net.op(N.SQUARE, x), asserted)
    made, given = lowered(graph, Everything()), np.arange(3, dtype=np.float32)
    assert len(made.outputs) == len(graph.outputs) + 2
    np.testing.assert_array_equal(run(made, given, np.array([True, True]))[0], given * given)
    with pytest.raises(OperationFailed, match=r"ASSERT node 0: 1 of 2 elements .*begins with 0.0, 1.0$"):
        run(made, given, np.array([True, False]))


# ---- engines


class Plain(Everything):
    """An engine that has nothing but plain operators."""

    def takes(self, operator: Operator) -> bool:
        return operator.type not in ("Resize", "MatMulInteger", "MatMulNBits", "ConvInteger", "DynamicQuantizeLinear")


def doubled() -> Graph:
    """An image of which each row is repeated, and each column."""
    net = Net(Format.NCHW)
    x = net.input(1, 2, 3, 4)
    for axis, size in ((2, 3), (3, 4)):
        positions = net.constant(np.repeat(np.arange(size), 2))
        x = net.op(N.GATHER, x, positions, net.constant(np.array(axis)))
    return net.graph(x)


def integer_product() -> Graph:
    """UINT8 times constant integers."""
    net = Net(Format.NONE)
    wide = net.op(N.CAST, net.input(2, 5, data_type=UINT8), net.constant(np.array(DataType.INT32.value)))
    weight = net.constant(np.random.default_rng(1).integers(-128, 128, (5, 3)).astype(np.int32))
    return net.graph(net.op(N.MATMUL_FUSION, wide, weight))


@pytest.mark.parametrize(
    ("graph", "composed"),
    [(doubled(), "Resize"), (integer_product(), "MatMulInteger")],
    ids=["Resize", "MatMulInteger"],
)
def test_nodes_are_one_operator_where_the_engine_takes_it(graph: Graph, composed: str) -> None:
    (spec,) = graph.input_specs
    x = np.random.default_rng(1).integers(0, 256, spec.shape).astype(spec.numpy_dtype)
    made, plain = lowered(graph, Everything()), lowered(graph, Plain())
    assert [composed in [node.op_type for node in each.model.graph.node] for each in (made, plain)] == [True, False]
    np.testing.assert_array_equal(run(made, x)[0], run(plain, x)[0])


class Unsigned(Everything):
    """An engine whose integer kernels take UINT8, and INT8 weights."""

    integers = IntegerTypes(UINT8, INT8)


@pytest.mark.parametrize("given", [INT8, UINT8], ids=lambda data_type: data_type.name)
def test_quantized_tensors_are_of_the_types_that_the_engine_takes(given: DataType) -> None:
    """What comes and goes is of those of the graph."""
    net = Net()
    x = net.input(1, 4, 4, 2, data_type=given, quant=(QuantParam(0.5, 3),))
    weight = net.constant(np.arange(-18, 18).astype(np.int8).reshape(2, 3, 3, 2), (QuantParam(0.25, 0),))
    spec = net.spec((1, 2, 2, 2), given, (QuantParam(2.0, 5),))
    bias = net.constant(np.zeros(2, np.int32))
    graph = net.graph(net.op(N.CONV2D_FUSION, x, weight, bias, outputs=[spec], pad_mode=PadMode.VALID))
    made = lowered(graph, Unsigned())
    zeros = {node.op_type: node.input[2] for node in made.model.graph.node if node.op_type.endswith("izeLinear")}
    types = {tensor.name: tensor.data_type for tensor in made.model.graph.initializer}
    assert types[zeros["QuantizeLinear"]] == onnx.TensorProto.UINT8
    image = np.random.default_rng(1).integers(0, 128, (1, 4, 4, 2)).astype(graph.input_specs[0].numpy_dtype)
    (actual,), (wanted,) = run(made, image), run(lowered(graph, Everything()), image)
    assert actual.dtype == graph.output_specs[0].numpy_dtype
    np.testing.assert_array_equal(actual, wanted)


def test_the_engine_says_which_nodes_it_supports() -> None:
    """All at once if it can, and why it doesn't take one."""
    net = Net(Format.NONE)
    x = net.input(2, 3)
    graph = net.graph(*(net.op(node_type, x) for node_type in (N.SQUARE, N.ERF, N.SIN, N.ABS)))
    asked = []

    def load(nodes: Graph, made: Lowered, is_alone: bool) -> None:
        asked.append(len(nodes.nodes))
        assert is_alone == (asked[-1] == 1)
        ReferenceEvaluator(made.whole())
        if "Erf" in [node.op_type for node in made.model.graph.node]:
            raise Unsupported("no Erf here")

    support = NodeSupport(Everything(), load)
    assert [each.reason for each in support.of(graph)] == ["", "no Erf here", "", ""]
    assert asked == [4, 2, 1, 1, 2]
    assert [each.supported for each in support.of(graph)] == [True, False, True, True]
    assert len(asked) == 5  # Answers are kept.
