"""Programs that are made to do harm: each is refused with an error that says where, or does none.

ONNX Runtime runs in this process.
"""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from mutation import mutate
from nnrt_backend_onnxruntime.programs import tensors as part_tensors
from nnrt_backend_onnxruntime.programs.analysis import analyse_model
from nnrt_backend_onnxruntime.programs.loading import compute
from nnrt_backend_onnxruntime.programs.skeleton import MOST_DEPTH, MOST_NODES, MOST_SKELETON_BYTES, inline_functions
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from part import examples
from program_models import CASES, OPSET, parsed, weights

from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, PreparedModel, load_backend
from nnrt_hdi.errors import InvalidFile, NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.part import Part

MOST_BYTES = 1 << 20
CONFIG = ModelConfig(max_tensor_bytes=MOST_BYTES)
# What loading may add to the memory of this process.
ROOM_KIB = 200_000

Change = Callable[[onnx.ModelProto], Any]


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = load_backend("onnxruntime", {"threads": "1"})
    backend.start(1 << 34, accepts_programs=True)
    yield backend
    backend.close()


def loaded(backend: Backend, model: onnx.ModelProto | bytes, *parts: bytes) -> PreparedModel:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return backend.load_program("onnx", [Part.of(data), *map(Part.of, parts)], CONFIG, lambda _: None)


def plain() -> onnx.ModelProto:
    """A model with a weight, a constant, a graph in a graph, and a function."""
    model: onnx.ModelProto = parsed(
        """
        f (float[2, N] x, bool which) => (float[M, K] y) {
            c = Constant <value = float[2] {1.0, 2.0}> ()
            s = Unsqueeze (c, axis)
            m = MatMul (w, x)
            a = Add (m, s)
            y = If (which) <
                then_branch = one () => (float[A, B] p) {
                    k = Constant <value = float[2, 1] {1.0, 2.0}> ()
                    p = Add (a, k)
                },
                else_branch = other () => (float[C, D] q) { q = Transpose (a) }
            >
        }
        """,
        weights("w", 2, 2),
        numpy_helper.from_array(np.array([1]), "axis"),
    )
    function = helper.make_function(
        "own",
        "spare",
        ["x"],
        ["y"],
        [
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(2, "f4"))),
            helper.make_node("Add", ["x", "k"], ["y"]),
        ],
        [helper.make_opsetid("", OPSET)],
    )
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def test_the_model_to_be_changed_is_taken(backend: Backend) -> None:
    model = loaded(backend, plain())
    x = np.ones((2, 3), "f4")
    assert model.run([x, np.array(True)], Cancellation())[0].shape == (2, 3)
    model.close()


def folds(model: onnx.ModelProto) -> bool:
    return analyse_model(model, compute).folding_is_bounded


# ---- nothing but computing


def tensors(model: onnx.ModelProto) -> dict[str, TensorProto]:
    """One in each place where a tensor may be."""
    branch = next(entry.g for entry in model.graph.node[-1].attribute if entry.name == "then_branch")
    sparse = model.graph.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, "f4"), "sparse"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, "i8"), "indices"))
    return {
        "initializer": model.graph.initializer[0],
        "attribute": model.graph.node[0].attribute[0].t,
        "inner graph": branch.node[0].attribute[0].t,
        "inner initializer": branch.initializer.add(name="unused", data_type=TensorProto.FLOAT, float_data=[1]),
        "function": model.functions[0].node[0].attribute[0].t,
        "sparse values": sparse.values,
        "sparse indices": sparse.indices,
    }


@pytest.mark.parametrize("place", tensors(plain()))
@pytest.mark.parametrize("location", ["/etc/hostname", "../../etc/hostname", "weights", "", "*/_ORT_MEM_ADDR_/*"])
@pytest.mark.parametrize("is_marked", [True, False])
def test_names_no_file(backend: Backend, tmp_path: Path, place: str, location: str, is_marked: bool) -> None:
    model = plain()
    tensor = tensors(model)[place]
    tensor.CopyFrom(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 2]))
    tensor.external_data.add(key="location", value=location)
    if is_marked:
        tensor.data_location = TensorProto.EXTERNAL
    if place == "function":
        model.graph.node.append(helper.make_node("spare", ["y"], ["z"], domain="own"))
    with pytest.raises(InvalidFile, match=r"none of the parts|not in the model"):
        loaded(backend, model)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"offset": "4"}, "16 bytes from 4 on in a part of 16"),
        ({"offset": "-4"}, "16 bytes from -4 on"),
        ({"offset": "99999999999999999999"}, "from 99999999999999999999 on"),
        ({"offset": "x"}, "no numbers"),
        ({"length": "12"}, "12 bytes from 0 on"),
        ({"length": "-1"}, "-1 bytes"),
        ({"basepath": "/"}, "none of the parts"),
        ({"location": "0" * 64}, "none of the parts"),
    ],
)
def test_data_lie_inside_of_a_part(backend: Backend, entries: dict[str, str], said: str) -> None:
    part = np.ones((2, 2), "f4").tobytes()
    model = plain()
    model.graph.initializer[0].CopyFrom(
        TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    )
    for key, value in {"location": Part.of(part).sha256.hex(), **entries}.items():
        model.graph.initializer[0].external_data.add(key=key, value=value)
    with pytest.raises(InvalidFile, match=said):
        loaded(backend, model, part)


FOREIGN = [
    ("EPContext", "com.microsoft"),
    ("Snpe", "com.microsoft"),
    ("NoSuchThing", "com.microsoft"),
    ("Conv", "com.microsoft.nchwc"),
    ("Conv", "com.ms.internal.nhwc"),
    ("Adam", "ai.onnx.preview.training"),
    ("ReadFile", "ai.onnx.contrib"),
    ("ATen", "org.pytorch.aten"),
]


@pytest.mark.parametrize(("op_type", "domain"), FOREIGN, ids=lambda value: value)
@pytest.mark.parametrize("place", ["graph", "inner graph", "function"])
def test_has_no_other_operators(backend: Backend, op_type: str, domain: str, place: str) -> None:
    model = plain()
    branch = next(entry.g for entry in model.graph.node[-1].attribute if entry.name == "then_branch")
    nodes = {"graph": model.graph.node, "inner graph": branch.node, "function": model.functions[0].node}[place]
    nodes.append(helper.make_node(op_type, [], ["z"], domain=domain, main_context=1, ep_cache_context="/etc/hostname"))
    model.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(Unsupported, match=f"{op_type} node 'z': the operator '{domain}.{op_type}'"):
        loaded(backend, model)


def test_configures_nothing(backend: Backend, tmp_path: Path) -> None:
    model = plain()
    written = tmp_path / "written"
    model.metadata_props.add(
        key="ort_config", value=f'{{"session_options": {{"optimized_model_filepath": "{written}"}}}}'
    )
    loaded(backend, model).close()
    assert not written.exists()
    with pytest.raises(NnrtError):
        backend.load_program(
            "onnx",
            [Part.of(model.SerializeToString())],
            ModelConfig(extensions={"session.optimized_model_filepath": str(written).encode()}),
            lambda _: None,
        )
    assert not written.exists()


# ---- no more than is sound


def grown(change: Change) -> onnx.ModelProto:
    model = plain()
    change(model)
    return model


def nested(model: onnx.ModelProto) -> None:
    branch = next(entry.g for entry in model.graph.node[-1].attribute if entry.name == "then_branch")
    for _ in range(MOST_DEPTH + 1):
        inner = onnx.GraphProto()
        inner.CopyFrom(branch)
        branch.node.append(helper.make_node("If", ["which"], ["z"], then_branch=inner, else_branch=onnx.GraphProto()))
        del inner.node[:]
        branch = next(entry.g for entry in branch.node[-1].attribute if entry.name == "then_branch")


def calls(*pairs: tuple[str, str], times: int = 1) -> Change:
    """Functions that call others."""

    def change(model: onnx.ModelProto) -> None:
        for name, called in pairs:
            names = ["x", *(f"v{at}" for at in range(times - 1)), "y"]
            nodes = [
                helper.make_node(called, [given], [made], domain="own" if called != "Abs" else "")
                for given, made in pairwise(names)
            ]
            opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("own", 1)]
            model.functions.append(helper.make_function("own", name, ["x"], ["y"], nodes, opsets))
        model.graph.node.append(helper.make_node(pairs[0][0], ["y"], ["z"], domain="own"))

    return change


def repeats(size_bytes: int, name_bytes: int = 1, names: int = 1) -> Change:
    """A function with a constant, and with an input that it reads several times, which is called 1,000 times."""

    def change(model: onnx.ModelProto) -> None:
        constant = numpy_helper.from_array(np.zeros(size_bytes, np.uint8))
        body = [helper.make_node("Constant", [], ["c"], value=constant), helper.make_node("Sum", ["x"] * names, ["y"])]
        opsets = [helper.make_opsetid("", OPSET)]
        model.functions.append(helper.make_function("own", "large", ["x"], ["y"], body, opsets))
        long = "n" * name_bytes
        model.graph.node.append(helper.make_node("Relu", ["m"], [long]))
        model.graph.node.extend(helper.make_node("large", [long], [f"z{at}"], domain="own") for at in range(1000))

    return change


LAUGHS = tuple((f"f{at}", f"f{at + 1}" if at < 9 else "Abs") for at in range(10))
CHAIN = tuple((f"f{at}", f"f{at + 1}" if at < 30 else "Abs") for at in range(31))


def renamed_weight(model: onnx.ModelProto, **fields: Any) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 2], **fields)
    model.graph.initializer[0].CopyFrom(tensor)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (nested, f"more than {MOST_DEPTH} graphs in each other"),
        (calls(("f", "f")), "function 'f' calls itself"),
        (calls(("f", "g"), ("g", "f")), "calls itself"),
        (calls(*LAUGHS, times=10), f"more than {MOST_NODES} nodes"),
        (calls(*CHAIN), f"called by {MOST_DEPTH} others"),
        (repeats(1 << 20), "with functions in the places of their calls it may have"),
        (repeats(1, name_bytes=1000, names=1000), "with functions in the places of their calls it may have"),
        (lambda model: model.functions.append(model.functions[0]), "two functions of one name"),
        (lambda model: model.graph.initializer.append(model.graph.initializer[0]), "two initializers of one name"),
        (lambda model: model.training_info.add(), "training"),
        (
            lambda model: model.graph.node.insert(0, model.graph.node.pop(3)),
            "'[ms]' is not there yet; make it, and sort the nodes",
        ),
        (lambda model: renamed_weight(model, raw_data=b"1234"), "do not make up its shape"),
        (lambda model: renamed_weight(model, raw_data=b"1" * 20), "do not make up its shape"),
        (lambda model: renamed_weight(model), "do not make up its shape"),
        (lambda model: model.graph.initializer[0].dims.extend([1 << 40]), "do not make up its shape"),
        (lambda model: model.graph.initializer[0].dims.extend([-1]), "it has the shape"),
        (lambda model: model.graph.initializer[0].dims.extend([1] * 40), "it has the shape"),
        (
            lambda model: model.graph.initializer.add(name="s", data_type=TensorProto.STRING, dims=[1 << 40]),
            "do not make up its shape",
        ),
        (lambda model: model.graph.initializer.add(name="s", data_type=99, dims=[1], raw_data=b"1"), "data type 99"),
    ],
)
def test_is_out_of_proportion(backend: Backend, change: Change, said: str) -> None:
    before = peak_kib()
    with pytest.raises(InvalidFile, match=said):
        loaded(backend, grown(change))
    assert peak_kib() - before < ROOM_KIB


def test_names_in_functions_are_their_own(backend: Backend) -> None:
    """Whatever version of onnx puts them in the places of their calls."""
    model = parsed("f (float[N] x) => (float[M] z, float[K] w) { a = Neg (x) y = Abs (a) w = Add (a, y) }")
    body = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Add", ["a", "x"], ["y"])]
    model.functions.append(helper.make_function("own", "clash", ["x"], ["y"], body, [helper.make_opsetid("", OPSET)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node.append(helper.make_node("clash", ["a"], ["b"], domain="own"))
    model.graph.node.append(helper.make_node("clash", ["y"], ["c"], domain="own"))
    model.graph.node.append(helper.make_node("Sub", ["b", "c"], ["z"]))
    prepared = loaded(backend, model)
    x = np.array([1, -2], "f4")
    z, w = (result.astype(np.float64) for result in prepared.run([x], Cancellation()))
    np.testing.assert_allclose(z, (np.exp(-x) - x) - (np.exp(abs(x)) + abs(x)), rtol=1e-5)
    np.testing.assert_array_equal(w, abs(x) - x)
    prepared.close()


def call_of(inputs: list[str], given: list[str], body: onnx.NodeProto) -> Change:
    """A function of these inputs that is given others."""

    def change(model: onnx.ModelProto) -> None:
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("own", 1)]
        model.functions.append(helper.make_function("own", "odd", inputs, ["y"], [body], opsets))
        model.graph.node.append(helper.make_node("odd", given, ["z"], domain="own"))

    return change


def branching(called: str) -> onnx.NodeProto:
    """A choice between calls."""
    graphs = [
        helper.make_graph(
            [helper.make_node(called, ["x"], [name], domain="own")],
            name,
            [],
            [helper.make_empty_tensor_value_info(name)],
        )
        for name in ("p", "q")
    ]
    return helper.make_node("If", ["which"], ["y"], then_branch=graphs[0], else_branch=graphs[1])


@pytest.mark.parametrize(
    "change",
    [
        call_of(["x"], ["a", "m", "s"], helper.make_node("Abs", ["x"], ["y"])),
        call_of(["x", "w"], ["a"], helper.make_node("Add", ["x", "w"], ["y"])),
        call_of(["x", "which"], ["a", "which"], branching("odd")),
        call_of(["x"], ["a"], helper.make_node("Abs", ["nowhere"], ["y"])),
    ],
    ids=["more inputs", "fewer inputs", "itself in a graph", "of nothing"],
)
def test_functions_that_are_called_wrongly_are_refused(backend: Backend, change: Change) -> None:
    before = peak_kib()
    with pytest.raises(InvalidFile):
        loaded(backend, grown(change))
    assert peak_kib() - before < ROOM_KIB


def test_is_too_long(backend: Backend) -> None:
    with pytest.raises(InvalidFile, match="without its large tensors"):
        loaded(backend, bytes(MOST_SKELETON_BYTES + 1))


@pytest.mark.parametrize(
    "data", [b"", b"\x08", b"\x08\x0a", b"nonsense", onnx.ModelProto(ir_version=9).SerializeToString()]
)
def test_is_no_model(backend: Backend, data: bytes) -> None:
    with pytest.raises(NnrtError):
        loaded(backend, data)


def test_has_no_parts(backend: Backend) -> None:
    with pytest.raises(InvalidFile, match="no parts"):
        backend.load_program("onnx", [], CONFIG, lambda _: None)
    with pytest.raises(Unsupported, match="this device takes 'onnx'"):
        backend.load_program("tflite", [Part.of(b"x")], CONFIG, lambda _: None)


def test_a_sparse_tensor_is_as_large_as_a_dense_one(backend: Backend) -> None:
    model = plain()
    sparse = model.graph.sparse_initializer.add(dims=[1 << 20, 1 << 20])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, "f4"), "sparse"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, "i8"), "indices"))
    with pytest.raises(OutOfMemory, match="sparse tensor 'sparse': dense it has"):
        loaded(backend, model)


def test_sparse_tensors_have_one_limit_together(backend: Backend) -> None:
    model = plain()
    for at in range(3):
        sparse = model.graph.sparse_initializer.add(dims=[MOST_BYTES // 8])
        sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, "f4"), f"sparse{at}"))
        sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, "i8"), "indices"))
    with pytest.raises(OutOfMemory, match="sparse tensor 'sparse2': dense it has 524288 bytes; 0 are left"):
        loaded(backend, model)


def test_tensors_that_share_a_part_are_bounded(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime copies it for each of them."""
    monkeypatch.setattr(part_tensors, "MOST_SHARED_BYTES", 1 << 20)
    part = Part.of(bytes(1 << 18))
    model = plain()
    for at in range(8):
        tensor = model.graph.initializer.add(name=f"w{at}", data_type=TensorProto.BOOL, dims=[1 << 18])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=part.sha256.hex())
        model.graph.node.append(helper.make_node("Xor", ["which", f"w{at}"], [f"z{at}"]))
        model.graph.output.append(helper.make_tensor_value_info(f"z{at}", TensorProto.BOOL, [1 << 18]))
    with pytest.raises(InvalidFile, match="tensor 'w5': its data, and those of tensors before it"):
        loaded(backend, model, bytes(1 << 18))
    for added in (model.graph.initializer, model.graph.node, model.graph.output):
        del added[-3:]
    loaded(backend, model, bytes(1 << 18)).close()


# ---- no more than it may compute


def bomb(text: str, *initializers: onnx.TensorProto) -> onnx.ModelProto:
    model: onnx.ModelProto = parsed(f"f (float[1] x) => (float[M] y) {{ {text} }}", *initializers)
    return model


def whole(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


LONG = whole("long", 1 << 30)
KNOWN_BOMBS = {
    "ConstantOfShape": bomb("big = ConstantOfShape (long) y = Add (x, big)", LONG),
    "Expand": bomb("big = Expand (x, long) y = Relu (big)", LONG),
    "Tile": bomb("big = Tile (x, long) y = Relu (big)", LONG),
    "Range": bomb(
        "l = Constant <value = int64 {1073741824}> () z = Constant <value = int64 {0}> ()"
        " o = Constant <value = int64 {1}> () r = Range (z, l, o) big = Cast <to = 1> (r) y = Add (x, big)"
    ),
    "Pad": bomb("big = Pad (x, pads) y = Relu (big)", whole("pads", 0, 1 << 30)),
    "RandomNormal": bomb("big = RandomNormal <shape = [1073741824]> () y = Add (x, big)"),
    "Resize": parsed(
        "f (float[1, 1, 2, 2] x) => (float[A, B, C, D] y) { y = Resize (x, , , sizes) }",
        whole("sizes", 1, 1, 1 << 15, 1 << 15),
    ),
    # How long it is is an element of something that is computed.
    "elements": bomb(
        """
        ones = ConstantOfShape <value = int64[1] {1073741824}> (one)
        cubes = Mul (ones, ones)
        big = ConstantOfShape (cubes)
        y = Add (x, big)
        """,
        whole("one", 1),
    ),
    "inner": bomb(
        """
        zero = Constant <value = float[1] {0.0}> ()
        more = Greater (x, zero)
        which = Squeeze (more)
        y = If (which) <
            then_branch = big () => (float[A] p) {
                l = Constant <value = int64[1] {1073741824}> ()
                p = ConstantOfShape (l)
            },
            else_branch = small () => (float[B] q) { q = Neg (x) }
        >
        """
    ),
}


@pytest.mark.parametrize("name", KNOWN_BOMBS)
def test_shapes_say_that_it_is_too_large(backend: Backend, name: str) -> None:
    before = peak_kib()
    with pytest.raises(OutOfMemory, match=f"at most {MOST_BYTES} are allowed"):
        loaded(backend, KNOWN_BOMBS[name])
    assert peak_kib() - before < ROOM_KIB


HIDDEN_BOMBS = {
    "NonZero": bomb(
        """
        big = ConstantOfShape (most)
        where = NonZero (big)
        again = Tile (where, times)
        count = Shape (again)
        huge = ConstantOfShape (count)
        flat = Squeeze (huge)
        y = Add (x, flat)
        """,
        whole("most", 1000),
        whole("times", 1, 1000),
    ),
    "products": bomb(
        "c0 = ConstantOfShape <value = float[1] {0.001}> (square) "
        + " ".join(f"c{at + 1} = MatMul (c{at}, c{at})" for at in range(200))
        + " flat = ReduceSum <keepdims = 0> (c200) y = Add (x, flat)",
        whole("square", 500, 500),
    ),
    "many": bomb(
        "c0 = ConstantOfShape (length) "
        + " ".join(f"c{at + 1} = Add (c{at}, c{at})" for at in range(200))
        + " most = ReduceMax <keepdims = 0> (c200) y = Add (x, most)",
        whole("length", 250_000),
    ),
}


@pytest.mark.parametrize("name", HIDDEN_BOMBS)
def test_constants_are_not_computed_without_bound(backend: Backend, name: str) -> None:
    before = peak_kib()
    assert not folds(HIDDEN_BOMBS[name])
    loaded(backend, HIDDEN_BOMBS[name]).close()
    assert peak_kib() - before < ROOM_KIB


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sound_models_are_optimized_as_usual(case: Any) -> None:
    assert folds(inline_functions(case.model))


def test_lengths_that_are_computed_are_known(backend: Backend) -> None:
    """As exporters write them of fixed shapes: the length is an element of a shape."""
    model = parsed(
        """
        f (float[4, 6] x) => (float[A] y) {
            shape = Shape (x)
            at = Constant <value = int64 {1}> ()
            zero = Constant <value = int64 {0}> ()
            one = Constant <value = int64 {1}> ()
            length = Gather (shape, at)
            twice = Add (length, length)
            positions = Range (zero, twice, one)
            many = Unsqueeze (twice, zero)
            wide = ConstantOfShape <value = int64[1] {3}> (many)
            sums = Add (positions, wide)
            real = Cast <to = 1> (sums)
            least = ReduceMin <keepdims = 0> (x)
            y = Add (real, least)
        }
        """
    )
    assert folds(model)
    prepared = loaded(backend, model)
    assert prepared.outputs[0].shape == (12,)
    assert prepared.run([np.zeros((4, 6), "f4")], Cancellation())[0].tolist() == list(range(3, 15))
    prepared.close()


def test_a_run_that_asks_for_too_much_fails_alone(backend: Backend) -> None:
    model = loaded(backend, bomb("length = Cast <to = 7> (x) big = ConstantOfShape (length) y = Relu (big)"))
    with pytest.raises(OutOfMemory):
        model.run([np.full(1, 2.0**40, "f4")], Cancellation())
    with pytest.raises(OutOfMemory, match="output 'y': it has 4194304 bytes; at most 1048576 are allowed"):
        model.run([np.full(1, 2.0**20, "f4")], Cancellation())
    assert model.run([np.full(1, 3, "f4")], Cancellation())[0].tolist() == [0, 0, 0]
    model.close()


def test_declared_shapes_are_not_believed(backend: Backend) -> None:
    model = bomb(
        "big = ConstantOfShape (long) r = Relu (big) y = Slice (r, zero, one)", LONG, whole("zero", 0), whole("one", 1)
    )
    for name in ("big", "r"):
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]))
    with pytest.raises(OutOfMemory):
        loaded(backend, model)


def test_a_run_is_refused_by_the_shapes_of_its_inputs(backend: Backend) -> None:
    model = loaded(
        backend,
        parsed("f (float[N, 1] x, float[1, M] z) => (float y) { p = Mul (x, z) y = ReduceSum <keepdims = 0> (p) }"),
    )
    small, large = np.ones((8, 1), "f4"), np.ones((1 << 10, 1), "f4")
    assert model.run([small, small.T], Cancellation())[0] == 64
    with pytest.raises(OutOfMemory, match="tensor 'p': it needs 4194304 bytes; at most 1048576 are allowed"):
        model.run([large, large.T], Cancellation())
    model.close()


@pytest.mark.parametrize(
    "text",
    [
        "f (int32[N] x, int32[N] z) => (int32[N] y) { y = Div (x, z) }",
        "f (int64[N] x, int64[N] z) => (int64[N] y) { y = Div (x, z) }",
        "f (int32[N] x, int32[N] z) => (int32[N] y) { m = Constant <value = int32 {-1}> () y = Div (x, m) }",
        # Of what onnx doesn't know the type of.
        """
        f (int32[N] x, int32[N] z) => (int32[N] y) {
            times = Constant <value = int64 {1}> ()
            yes = Constant <value = bool {1}> ()
            a, b = Loop (times, yes, x, z) <body = one (int64 at, bool on, int32[N] p, int32[N] q) =>
                (bool again, int32[N] r, int32[N] s) { again = Identity (on) r = Div (p, q) s = Identity (q) }>
            y = Div (a, b)
        }
        """,
    ],
)
def test_the_lowest_integer_may_be_divided_by_minus_one(backend: Backend, text: str) -> None:
    """Which ends the process, where ONNX Runtime lets the processor do it."""
    model = loaded(backend, parsed(text))
    dtype = model.inputs[0].numpy_dtype
    lowest = np.iinfo(dtype.name).min
    x, z = np.array([lowest, 7, -8], dtype), np.array([-1, -1, -1], dtype)
    twice = "Loop" in text
    assert model.run([x, z], Cancellation())[0].tolist() == ([lowest, 7, -8] if twice else [lowest, -7, 8])
    assert 0 not in model.reads_in_place
    model.close()


# ---- what nobody thought of


def test_asks_of_nothing_what_it_is(backend: Backend) -> None:
    """onnx's inference, which is native code, takes for granted that inputs are there and have types."""
    encode = 'LabelEncoder <keys_int64s = [1], values_strings = ["a"]>'
    for text in (
        f"f (int64[N] x) => (string[N] y) {{ y = ai.onnx.ml.{encode} (z) }}",
        f"f (int64[N] x) => (string[N] y) {{ y = ai.onnx.ml.{encode} () }}",
        f"f (int64[N] x) => (string[N] y) {{ z = com.microsoft.Gelu (x) y = ai.onnx.ml.{encode} (z) }}",
    ):
        with pytest.raises((InvalidFile, Unsupported)):
            loaded(backend, parsed(text))


def test_attributes_are_what_they_say(backend: Backend) -> None:
    """A constant that says that it is numbers made ONNX Runtime crash in the run."""
    model = CASES[8].model
    assert CASES[8].name == "sequences"
    for kind, field in ((AttributeProto.INTS, "t"), (AttributeProto.TENSOR, "i"), (AttributeProto.TENSOR, "")):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        attribute = changed.graph.node[2].attribute[0]
        if field != "t":
            attribute.ClearField("t")
        if field == "i":
            attribute.i = 1
        attribute.type = kind
        with pytest.raises(InvalidFile, match="Constant node 'first': its attribute 'value' is not of the type"):
            loaded(backend, changed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 400, 50))
def test_chance_finds_no_way(seed: int) -> None:
    backend = load_backend("onnxruntime", {"threads": "1"})
    for rng in (Random(number) for number in range(seed, seed + examples(50))):  # noqa: S311
        case = rng.choice(CASES)
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutate(rng, model)
        try:
            prepared = loaded(backend, model)
        except NnrtError:
            continue
        feed = rng.choice(case.feeds)
        inputs = [
            array
            if (array := feed.get(spec.name)) is not None
            and spec.accepts(array.shape)
            and array.dtype == spec.numpy_dtype
            else np.zeros([min(dim, 99) if dim >= 0 else 2 for dim in spec.shape], spec.numpy_dtype)
            for spec in prepared.inputs
        ]
        with suppress(NnrtError):
            prepared.run(inputs, Cancellation(time.monotonic() + 1))
        prepared.close()
    backend.close()


# ---- the way around


def test_a_cache_is_no_way_around(backend: Backend) -> None:
    model = loaded(backend, plain())
    parts = model.export()
    model.close()
    with pytest.raises(Unsupported, match="--accept-programs"):
        backend.restore(parts, CONFIG)
    accepting = ModelConfig(max_tensor_bytes=MOST_BYTES, accepts_programs=True)
    backend.restore(parts, accepting).close()
    bad = plain()
    bad.graph.node.append(helper.make_node("EPContext", [], ["z"], domain="com.microsoft"))
    with pytest.raises(InvalidFile, match="EPContext"):
        backend.restore([parts[0], Part.of(bad.SerializeToString())], accepting)
    with pytest.raises(InvalidFile):
        backend.restore([Part.of(bytes(parts[0].data) + b"x"), *parts[1:]], accepting)
    with pytest.raises(InvalidFile):
        backend.restore(parts[:1], accepting)


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
