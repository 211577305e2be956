"""Promises of `from_onnx` beside the numbers: names, dimensions, errors, fusion."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import Graph, run_imported, run_onnxruntime

from nnrt_client import DataType, Format, InvalidFile, InvalidParameter, Model, OperationType, Unsupported, from_onnx
from nnrt_client.model.model import parts_of


def imported(graph: Graph, *outputs: str, **options: object) -> Model:
    return from_onnx(graph.model(*outputs).SerializeToString(), **options)  # type: ignore[arg-type]


def test_inputs_and_outputs_keep_names_and_symbolic_dimensions() -> None:
    g = Graph()
    image = g.input("image", ["batch", 3, None, 8])
    model = imported(g, g.op("Relu", image), g.op("Neg", image))
    (x,) = model.inputs
    assert (x.desc.name, x.desc.shape, x.desc.format) == ("image", (-1, 3, -1, 8), Format.NCHW)
    assert [y.desc.name for y in model.outputs] == ["y0", "y1"]
    assert model.is_finished


def test_shapes_are_fixed_at_import() -> None:
    g = Graph()
    y = g.op("Relu", g.input("x", ["batch", 3]))
    model = imported(g, y, shapes={"x": (4, 3)})
    assert model.inputs[0].desc.shape == model.outputs[0].desc.shape == (4, 3)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (4, 5)}, r"gives \[4, 5\] for input 'x', which is \[\?, 3\]"),
        ({"x": (4,)}, r"gives \[4\]"),
        ({"z": (1,)}, r"shapes names \['z'\]; the inputs of the model are 'x'"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    g = Graph()
    y = g.op("Relu", g.input("x", ["batch", 3]))
    with pytest.raises(InvalidParameter, match=message):
        imported(g, y, shapes=shapes)


def test_dimensions_below_zero_are_known_only_in_a_run() -> None:
    """So ONNX Runtime takes them, and files of applications have them; two of them are not the same."""
    g = Graph()
    y = g.op("Relu", g.input("x", [-1, 3, -1]))
    (x,) = imported(g, y).inputs
    assert x.desc.shape == (-1, 3, -1)
    assert imported(g, y, shapes={"x": (2, 3, 4)}).outputs[0].desc.shape == (2, 3, 4)
    feeds = {"x": np.ones((2, 3, 5), "f4")}
    np.testing.assert_array_equal(run_imported(imported(g, y), feeds), run_onnxruntime(g.model(y), feeds))


def test_inputs_that_are_always_the_same_are_constants() -> None:
    g = Graph()
    x, factor = g.input("x", ["n", 3]), g.input("factor", [1])
    y = g.op("Mul", g.op("Add", x, g.input("shift", [3])), factor)
    model = imported(g, y, constants={"factor": 2, "shift": np.array([1, 2, 3], "f4")})
    assert [tensor.desc.name for tensor in model.inputs] == ["x"]
    (given,) = run_imported(model, {"x": np.ones((2, 3), "f4")})
    np.testing.assert_array_equal(given, [[4, 6, 8]] * 2)


def test_an_input_with_a_value_of_its_own_is_frozen_to_another() -> None:
    """Such a value counts only where the input is not given."""
    g = Graph()
    y = g.op("Mul", g.input("x", [2]), g.input("factor", []))
    proto = g.model(y)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(5, "f4"), "factor"))
    model = from_onnx(proto.SerializeToString(), constants={"factor": 3.0})
    np.testing.assert_array_equal(run_imported(model, {"x": np.ones(2, "f4")}), [[3, 3]])


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"z": 1}, r"constants names \['z'\]; the inputs of the model are 'x', 'rate'"),
        ({"rate": 1.5}, r"constant for input 'rate': 1\.5 is float64; give int64"),
        ({"rate": np.int32(1)}, "is int32; give int64"),
        ({"rate": 2**70}, "'rate': 1180591620717411303424 is"),
        ({"rate": "high"}, "'high' is no tensor of int64"),
        ({"rate": [1, 2]}, r"it has the shape \[2\]; give \[\]"),
        ({"x": np.ones((2, 4), "f4")}, r"it has the shape \[2, 4\]; give \[\?, 3\]"),
    ],
)
def test_constants_that_do_not_fit_are_refused(constants: dict[str, object], message: str) -> None:
    g = Graph()
    y = g.op("Mul", g.input("x", ["n", 3]), g.op("Cast", g.input("rate", [], np.int64), to=1))
    with pytest.raises(InvalidParameter, match=message):
        imported(g, y, constants=constants)


def test_one_error_lists_every_node_that_is_in_the_way() -> None:
    g = Graph()
    x = g.input("x", [2, 3])
    a = g.op("Det", x, name="first")
    b = g.op("MaxPool", g.input("volume", [1, 1, 4, 4, 4]), kernel_shape=[2, 2, 2], name="second")
    c = g.op("Relu", a)
    d = g.op("NonZero", c, name="behind the first")
    with pytest.raises(Unsupported) as caught:
        imported(g, b, d)
    lines = str(caught.value).split("\n")
    assert lines[0] == "the ONNX model: 3 parts of it can't be imported:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "Det node 'first'",
        "MaxPool node 'second'",
        "NonZero node 'behind the first'",
    ]
    assert "3 dimensions" in lines[2]


def test_nodes_may_stand_in_any_order() -> None:
    """As ONNX Runtime's converter to float16 leaves them; nodes that read from each other are an error."""
    g = Graph()
    x = g.input("x", [2, 3])
    y = g.op("Neg", g.op("Exp", g.op("Abs", x)))
    proto = g.model(y)
    in_order = from_onnx(proto.SerializeToString())
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes[::-1])
    assert [node.type for node in parts_of(from_onnx(proto.SerializeToString())).graph.nodes] == [
        node.type for node in parts_of(in_order).graph.nodes
    ]
    proto.graph.node[-1].input[0] = nodes[-1].output[0]
    with pytest.raises(InvalidFile, match="which no node before it writes"):
        from_onnx(proto.SerializeToString())


def test_einsum_of_unknown_dimensions_is_a_matrix_product() -> None:
    """Of one letter on each side, so that nothing has to be reshaped."""
    g = Graph()
    q, k = (g.input(name, ["batch", name, 2, 3]) for name in "qk")
    model = imported(g, g.op("Einsum", q, k, equation="bihd,bjhd->bhij"))
    assert model.operations == (OperationType.TRANSPOSE, OperationType.TRANSPOSE, OperationType.MATMUL)
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 4, 2, 3)).astype("f4"), rng.normal(size=(2, 5, 2, 3)).astype("f4")
    (y,) = run_imported(model, {"q": a, "k": b})
    np.testing.assert_allclose(y, np.einsum("bihd,bjhd->bhij", a, b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk->ik", "has 2 terms, but there are 1 inputs"),
        ("ijk->ij", r"'ijk' in its equation 'ijk->ij' is no 2 labels"),
        ("i1->i", "'i1' in its equation 'i1->i' is no 2 labels"),
        ("ij->ik", "has labels twice, or that no input has"),
        ("ij->ii", "has labels twice, or that no input has"),
        ("...ijk->...", "is no 2 labels"),
    ],
)
def test_equations_that_say_nothing(equation: str, message: str) -> None:
    g = Graph()
    with pytest.raises(Unsupported, match=message):
        imported(g, g.op("Einsum", g.input("x", [2, 3]), equation=equation))


def test_recurrences_whose_steps_only_a_run_knows_are_refused() -> None:
    g = Graph()
    weights = (g.constant(np.ones((1, 9, size), "f4")) for size in (4, 3))
    y, _ = g.op("GRU", g.input("x", ["steps", 2, 4]), *weights, outputs=2, hidden_size=3)
    with pytest.raises(Unsupported, match=r"NNRt has no GRU, .* but x is float32\[\?, 2, 4\]; fix its steps"):
        imported(g, y)


def test_recurrences_of_more_steps_than_an_operation_has_outputs() -> None:
    rng = np.random.default_rng(3)
    g = Graph()
    weights = [g.constant(rng.normal(size=(1, 3, size)).astype("f4")) for size in (2, 3)]
    y, last = g.op("RNN", g.input("x", [450, "n", 2]), *weights, outputs=2, hidden_size=3)
    proto = g.model(y, last)
    feeds = {"x": rng.normal(size=(450, 2, 2)).astype("f4")}
    for mine, theirs in zip(run_imported(imported(g, y, last), feeds), run_onnxruntime(proto, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    y, _ = g.op("RNN", g.input("long", [2000, 1, 2]), *weights, outputs=2, hidden_size=3)
    with pytest.raises(Unsupported, match=r"each of the 2000 steps .* use 1\.\.1000"):
        imported(g, y)


def test_nodes_that_no_output_needs_are_not_in_the_way() -> None:
    g = Graph()
    x = g.input("x", [2, 3])
    g.op("Det", x)
    assert imported(g, g.op("Relu", x)).operations == (OperationType.RELU,)


@pytest.mark.parametrize(
    ("bounds", "operations"),
    [
        ((0, 6), (OperationType.ADD,)),
        ((0, None), (OperationType.ADD,)),
        ((0, 5), (OperationType.ADD, OperationType.CLIP)),
        ((-1, 6), (OperationType.ADD, OperationType.CLIP)),
    ],
)
def test_activations_are_fused_into_what_only_they_read(
    bounds: tuple[float, float | None], operations: tuple[OperationType, ...]
) -> None:
    g = Graph()
    low, high = ("" if bound is None else g.constant(np.float32(bound)) for bound in bounds)
    total = g.op("Add", g.input("x", [4]), g.constant(np.float32(3)))
    clipped = g.op("Clip", total, low, high)
    model = imported(g, clipped)
    assert model.operations == operations
    assert model.outputs[0].desc.name == clipped
    feeds = {"x": np.array([-9, -1, 2, 9], "f4")}
    np.testing.assert_array_equal(run_imported(model, feeds), run_onnxruntime(g.model(clipped), feeds))


def test_bounds_may_stand_between_the_operation_and_its_activation() -> None:
    """As exporters write them: constants are nodes, each right in front of its reader."""
    g = Graph()
    total = g.op("Add", g.input("x", [4]), g.constant(np.float32(3)))
    low, high = (g.op("Constant", value_float=bound) for bound in (0.0, 6.0))
    assert imported(g, g.op("Clip", total, low, high)).operations == (OperationType.ADD,)


def test_what_others_read_is_not_fused() -> None:
    g = Graph()
    total = g.op("Add", g.input("x", [4]), g.constant(np.float32(3)))
    assert imported(g, total, g.op("Relu", total)).operations == (OperationType.ADD, OperationType.RELU)


def test_inputs_and_constants_that_are_outputs_are_copied() -> None:
    g = Graph()
    x = g.input("x", [2])
    alias, doubled, fixed = (
        g.op("Identity", x),
        g.op("Identity", x),
        g.op("Identity", g.constant(np.array([1.5], "f4"))),
    )
    model = imported(g, alias, doubled, fixed)
    assert [y.desc.name for y in model.outputs] == [alias, doubled, fixed]
    given = np.array([1, 2], "f4")
    for mine, theirs in zip(run_imported(model, {"x": given}), (given, given, [1.5]), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_shape_arithmetic_becomes_one_reshape() -> None:
    """The last dimension split in two, whatever the two in front of it are."""
    g = Graph()
    x = g.input("x", ["a", "b", 12])
    shape = g.op("Shape", x)
    front = g.op("Slice", shape, g.constant([0]), g.constant([2]))
    target = g.op("Concat", front, g.constant([3]), g.constant([4]), axis=0)
    model = imported(g, g.op("Reshape", g.op("Exp", x), target))
    assert model.operations == (OperationType.EXP, OperationType.RESHAPE)
    assert model.outputs[0].desc.shape == (-1, -1, 3, 4)


def test_dimensions_that_only_a_run_knows_are_computed_there() -> None:
    """Rows and columns both become others: nothing says in advance which."""
    g = Graph()
    x, y = g.input("x", ["a", "b"]), g.input("y", ["c", "d"])
    sizes = g.op("Concat", *(g.op("Shape", g.op("Transpose", z)) for z in (x, y)), axis=0)
    column, row = g.op("Reshape", x, g.constant([-1, 1])), g.op("Reshape", y, g.constant([1, -1]))
    model = imported(g, g.op("Reshape", g.op("MatMul", column, row), sizes))
    assert OperationType.SHAPE in model.operations
    feeds = {"x": np.arange(6, dtype="f4").reshape(2, 3), "y": np.arange(4, dtype="f4").reshape(4, 1)}
    (result,) = run_imported(model, feeds)
    assert result.shape == (3, 2, 1, 4)


def test_masks_of_any_length() -> None:
    """As exporters write a causal mask: ranges compared, and expanded to the batch."""
    g = Graph()
    x = g.input("x", ["batch", "length"])
    length = g.op("Gather", g.op("Shape", x), g.constant(1))
    steps = g.op("Range", g.constant(0), length, g.constant(1))
    mask = g.op("LessOrEqual", g.op("Unsqueeze", steps, g.constant([0])), g.op("Unsqueeze", steps, g.constant([1])))
    batch = g.op("Slice", g.op("Shape", x), g.constant([0]), g.constant([1]))
    wide = g.op("Concat", batch, *(g.op("Unsqueeze", length, g.constant([0])) for _ in range(2)), axis=0)
    proto = g.model(g.op("Cast", g.op("Expand", mask, wide), to=1))
    model = from_onnx(proto.SerializeToString())
    for size in ((1, 2), (3, 4)):
        feeds = {"x": np.zeros(size, "f4")}
        np.testing.assert_array_equal(run_imported(model, feeds), run_onnxruntime(proto, feeds))


def branches() -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """The negative and the absolute value of what is outside."""
    return tuple(  # type: ignore[return-value]
        helper.make_graph(
            [helper.make_node(op_type, ["x"], ["inner"])], op_type, [], [helper.make_empty_tensor_value_info("inner")]
        )
        for op_type in ("Neg", "Abs")
    )


def test_a_branch_is_taken_where_the_condition_is_known() -> None:
    g = Graph()
    g.input("x", [2])
    then, other = branches()
    taken = g.op("If", g.constant(np.array(False)), then_branch=then, else_branch=other)
    assert imported(g, taken).operations == (OperationType.ABS,)
    with pytest.raises(Unsupported, match="NNRt has no branches"):
        unknown = g.op("If", g.input("condition", [], np.bool_), then_branch=then, else_branch=other)
        imported(g, unknown)


@pytest.mark.parametrize(
    ("comparison", "number", "is_taken"),
    [
        ("Greater", 5, True),
        ("Less", 7, True),
        ("GreaterOrEqual", 7, False),
        ("LessOrEqual", 5, False),
        ("Equal", 6, True),
    ],
)
def test_a_branch_is_taken_where_sizes_say_which(comparison: str, number: int, is_taken: bool) -> None:
    """Once the size is known; a size that may be any is at least not below 0."""
    g = Graph()
    x = g.input("x", ["n"])
    size = g.op("Gather", g.op("Shape", x), g.constant(np.array(0)))
    then, other = branches()
    compared = g.op(comparison, size, g.constant(np.array(number)))
    y = g.op("If", compared, then_branch=then, else_branch=other)
    wanted = OperationType.NEG if is_taken else OperationType.ABS
    assert imported(g, y, shapes={"x": (6,)}).operations == (wanted,)
    with pytest.raises(Unsupported, match=r"it follows from the shape of input 'x'; .* \(--shape x=N\)"):
        imported(g, y)
    never = g.op("If", g.op("Less", size, g.constant(np.array(0))), then_branch=then, else_branch=other)
    assert imported(g, never).operations == (OperationType.ABS,)


def test_a_branch_is_taken_where_an_input_is_always_the_same() -> None:
    g = Graph()
    g.input("x", [2])
    then, other = branches()
    is_high = g.op("Equal", g.op("Cast", g.input("rate", [1], np.int32), to=7), g.constant(np.array(16000)))
    y = g.op("If", is_high, then_branch=then, else_branch=other)
    assert imported(g, y, constants={"rate": 16000}).operations == (OperationType.NEG,)
    assert imported(g, y, constants={"rate": 8000}).operations == (OperationType.ABS,)
    with pytest.raises(Unsupported, match=r"follows from input 'rate'; freeze .* \(--constant rate=16000\)"):
        imported(g, y)


def test_a_condition_on_elements_names_nothing_to_type() -> None:
    g = Graph()
    then, other = branches()
    total = g.op("ReduceSum", g.input("x", [100]))
    y = g.op("If", g.op("Greater", total, g.constant(np.array([0], "f4"))), then_branch=then, else_branch=other)
    with pytest.raises(Unsupported, match=r"follows from the elements of input 'x'$"):
        imported(g, y)


def test_functions_of_the_model_are_replaced_by_their_bodies() -> None:
    g = Graph()
    x = g.input("x", [2, 3])
    g.nodes.append(helper.make_node("Scaled", [x], ["y"], domain="mine", factor=2.0))
    model = g.model("y")
    constant = helper.make_node("Constant", [], ["f"])
    factor = onnx.AttributeProto(name="value_float", type=onnx.AttributeProto.FLOAT, ref_attr_name="factor")
    constant.attribute.append(factor)
    body = [constant, helper.make_node("Mul", ["a", "f"], ["b"])]
    opsets = [helper.make_opsetid("", g.opset)]
    model.functions.append(helper.make_function("mine", "Scaled", ["a"], ["b"], body, opsets, ["factor"]))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    (y,) = run_imported(from_onnx(model.SerializeToString()), {"x": np.ones((2, 3), "f4")})
    np.testing.assert_array_equal(y, np.full((2, 3), 2, "f4"))


def test_functions_that_call_themselves_are_refused() -> None:
    g = Graph()
    x = g.input("x", [2])
    g.nodes.append(helper.make_node("Loop", [x], ["y"], domain="mine"))
    model = g.model("y")
    body = [helper.make_node("Loop", ["a"], ["b"], domain="mine")]
    model.functions.append(helper.make_function("mine", "Loop", ["a"], ["b"], body, [helper.make_opsetid("mine", 1)]))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(InvalidFile, match="go deeper than"):
        from_onnx(model.SerializeToString())


def test_weights_are_the_bytes_of_the_file_and_no_copy() -> None:
    g = Graph()
    weight = np.random.default_rng(1).normal(size=(8, 600)).astype("f4")
    model = imported(g, g.op("MatMul", g.input("x", [2, 8]), g.constant(weight)))
    (held,) = (c.data for c in parts_of(model).graph.constants.values() if c.size_bytes == weight.nbytes)
    owner: object = held
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    assert isinstance(owner, bytes)
    assert len(owner) > weight.nbytes, "those of the whole file"
    np.testing.assert_array_equal(held, weight)


def test_a_quantized_result_is_of_8_bits() -> None:
    g = Graph()
    scale, point = g.constant(np.float32(0.1)), g.constant(np.int8(3))
    x = g.op("DequantizeLinear", g.op("QuantizeLinear", g.input("x", [2, 3]), scale, point), scale, point)
    y = g.op("QuantizeLinear", g.op("Add", x, x), scale, point)
    model = imported(g, y)
    assert model.operations == (OperationType.QUANT_DTYPE_CAST, OperationType.ADD)
    assert model.outputs[0].desc.data_type is DataType.INT8


@pytest.mark.slow
def test_without_onnx_the_client_works_and_names_the_extra() -> None:
    program = """
import sys
sys.modules["onnx"] = None  # as if it were not installed
import nnrt_client
try:
    nnrt_client.from_onnx("model.onnx")
except nnrt_client.Unsupported as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "nnrt[onnx]" in done.stdout
