"""Files from strangers: what is wrong with them is said, and nothing else happens."""

import os
import random
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, external_data_helper
from onnx_models import Graph, run_imported
from part import examples
from samples import SAMPLES, Sample
from samples_microsoft import FUSED, QUANTIZED
from test_operators import graph_of

from nnrt_client import InvalidFile, InvalidPath, NnrtError, OutOfMemory, Unsupported, from_onnx
from nnrt_client.model.model import parts_of
from nnrt_client.onnx_import import import_onnx, program_from_onnx
from nnrt_hdi.files.graph_file import constant_parts
from nnrt_hdi.mapped_files import mapped_file_of
from nnrt_hdi.part import Part

WEIGHT = np.random.default_rng(1).normal(size=(3, 400)).astype("f4")


def matmul() -> onnx.ModelProto:
    g = Graph()
    return g.model(g.op("MatMul", g.input("x", [2, 3]), g.constant(WEIGHT)))


def with_external_data(directory: Path, location: str = "weights.bin") -> Path:
    model = matmul()
    external_data_helper.convert_model_to_external_data(model, location=location, size_threshold=0)
    onnx.save(model, directory / "model.onnx")
    return directory / "model.onnx"


def moved(path: Path, **entries: str) -> Path:
    """The model with other entries for its external data."""
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = entries.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_are_read(tmp_path: Path) -> None:
    model = from_onnx(with_external_data(tmp_path))
    x = np.ones((2, 3), "f4")
    np.testing.assert_allclose(run_imported(model, {"x": x})[0], x @ WEIGHT, rtol=1e-5)


@pytest.mark.parametrize("beside", [False, True])
def test_large_data_stay_in_their_files(tmp_path: Path, beside: bool) -> None:
    """`load` makes the same model of a mapped file. Reading from a file that somebody has shortened raises an error."""
    g = Graph()
    weights = [np.random.default_rng(at).normal(size=(350, 350)).astype("f4") for at in range(3)]
    x = g.input("x", [2, 350])
    for array in weights:
        x = g.op("MatMul", x, g.constant(array))
    path = tmp_path / "model.onnx"
    onnx.save(g.model(x), path, save_as_external_data=beside, location="weights.bin", size_threshold=0)
    model = import_onnx(path, None, None)
    parts = list(constant_parts(parts_of(model).graph).values())
    program = program_from_onnx(path, is_mapped=True)
    assert all(mapped_file_of(part.data) for part in parts)
    assert (model.digest, program.digest) == (from_onnx(path).digest, program_from_onnx(path).digest)
    assert {array.tobytes() for array in weights} == {bytes(part.data) for part in parts}
    joined = program.parts[1]
    assert joined.size_bytes > weights[0].nbytes
    assert bytes(joined.data) == joined.piece(0, 700_000).tobytes() + joined.piece(700_000, 1 << 20).tobytes()
    assert Part.of(joined.data).sha256 == joined.sha256
    os.truncate(tmp_path / "weights.bin" if beside else path, 100)
    for part in (*parts, joined):
        with pytest.raises(InvalidFile, match="shortened"):
            part.fill(memoryview(bytearray(8)), 0)


def test_external_data_of_bytes_ask_for_a_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidPath, match="give the model by its path"):
        from_onnx(with_external_data(tmp_path).read_bytes())


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "", ".", "link", "folder/../../secret.bin"])
def test_external_data_stay_in_the_directory(tmp_path: Path, location: str) -> None:
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    (inside / "link").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(InvalidPath, match="not a file in the directory"):
        from_onnx(moved(with_external_data(inside), location=location))


def test_external_data_that_are_no_file(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for location in ("missing.bin", "folder", "pipe", "weights.bin/more", "nul\0"):
        with pytest.raises(InvalidPath, match=re.escape(repr(location))):
            from_onnx(moved(path, location=location))


@pytest.mark.parametrize(
    "entries", [{"offset": "8"}, {"offset": "-4"}, {"length": "12"}, {"offset": "many"}, {"offset": str(2**62)}]
)
def test_external_data_of_another_size(tmp_path: Path, entries: dict[str, str]) -> None:
    with pytest.raises(InvalidFile):
        from_onnx(moved(with_external_data(tmp_path), **entries))


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.onnx", tmp_path, tmp_path / "missing" / "model.onnx"):
        with pytest.raises(InvalidPath, match=str(path)):
            from_onnx(path)


@pytest.mark.parametrize("data", [b"", b"\xff", b"no model at all", onnx.ModelProto(ir_version=8).SerializeToString()])
def test_bytes_that_are_no_model(data: bytes) -> None:
    with pytest.raises(InvalidFile):
        from_onnx(data)


def test_elements_that_do_not_make_up_the_shape() -> None:
    model = matmul()
    model.graph.initializer[0].dims[0] = 2**40
    with pytest.raises(InvalidFile, match="make up its shape"):
        from_onnx(model.SerializeToString())


def test_values_out_of_order() -> None:
    model = matmul()
    model.graph.node[0].input[0] = "y"
    with pytest.raises(InvalidFile, match="reads 'y', which no node before it writes"):
        from_onnx(model.SerializeToString())


ILL_TYPED = {
    "output": ("g (float[N, 3] x) => (int64[N, 3] y) { y = Add(x, x) }", "'y' is declared INT64 and computed as FLOAT"),
    "between": (
        "g (float[3] x) => (float[3] y) <int32[3] a> { y = Relu(a) a = Abs(x) }",
        "'a' is declared INT32 and computed as FLOAT; declare it FLOAT",
    ),
    "cast": ("g (float[3] x) => (float[3] y) { y = Cast<to = 7>(x) }", "'y' is declared FLOAT and computed as INT64"),
    "behind what onnx does not know": (
        "g (float[3] x) => (float[3] y) <int32[3] b> { a = com.microsoft.Gelu(x) b = Abs(a) y = Relu(b) }",
        "'b' is declared INT32 and computed as FLOAT",
    ),
    "of what onnx does not know": (
        "g (float[3] x) => (int64[3] y) { a = Abs(x) y = com.microsoft.Gelu(a) }",
        "'y' is declared INT64 and computed as FLOAT",
    ),
    "operands": (
        "g (float[3] x) => (float[3] y) { i = Cast<to = 7>(x) y = Add(x, i) }",
        r"types of values do not go together: .*op_type:Add.* tensor\(int64\)",
    ),
    "operand that onnx does not know": (
        "g (float[3] x) => (float[3] y) { a = com.microsoft.Gelu(x) i = Cast<to = 7>(x) y = Add(i, a) }",
        r"types of values do not go together: .*op_type:Add.* tensor\(float\)",
    ),
}
WITH_DATA = "g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }"
OPSETS = '<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>'


@pytest.mark.parametrize(("text", "says"), ILL_TYPED.values(), ids=ILL_TYPED.keys())
def test_values_of_another_type_than_declared(text: str, says: str) -> None:
    """ONNX Runtime refuses them, too. A wrong shape is none of its business, and none of ours."""
    model = onnx.parser.parse_model(OPSETS + text).SerializeToString()
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match="Type Error"):
        onnxruntime.InferenceSession(model)
    with pytest.raises(InvalidFile, match=says):
        from_onnx(model)
    from_onnx(
        onnx.parser.parse_model(
            f"{OPSETS} g (float[2, 3] x) => (float[2, 4] y) {{ y = Add(x, x) }}"
        ).SerializeToString()
    )


def test_data_of_another_type_than_declared() -> None:
    """ONNX Runtime refuses it of an input that has data; the rest converters leave behind, and it takes."""
    model = onnx.parser.parse_model(OPSETS + WITH_DATA)
    half = onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT16, [3])
    model.graph.value_info.append(half)
    onnxruntime.InferenceSession(model.SerializeToString())
    from_onnx(model.SerializeToString())
    model.graph.input.append(half)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match="Type Error"):
        onnxruntime.InferenceSession(model.SerializeToString())
    with pytest.raises(InvalidFile, match="'w' is declared FLOAT16 and computed as FLOAT; declare it FLOAT"):
        from_onnx(model.SerializeToString())


@pytest.mark.parametrize(("named", "used"), [("", "ai.onnx"), ("ai.onnx", "")])
def test_both_names_of_the_standard_operators(named: str, used: str) -> None:
    model = onnx.parser.parse_model(OPSETS + WITH_DATA)
    model.opset_import[0].domain, model.graph.node[0].domain = named, used
    onnxruntime.InferenceSession(model.SerializeToString())
    from_onnx(model.SerializeToString())


def test_microsoft_operators_without_their_operator_set() -> None:
    """ONNX Runtime's optimizer for transformers does not name it."""
    model = onnx.parser.parse_model(OPSETS + ILL_TYPED["behind what onnx does not know"][0])
    del model.opset_import[1]
    with pytest.raises(InvalidFile, match="'b' is declared INT32"):
        from_onnx(model.SerializeToString())
    del model.graph.value_info[:]
    from_onnx(model.SerializeToString())


@pytest.mark.parametrize(("version", "advice"), [(6, "use 7 or later"), (99, "install a newer onnx")])
def test_operator_sets_that_are_not_known(version: int, advice: str) -> None:
    model = matmul()
    model.opset_import[0].version = version
    with pytest.raises(Unsupported, match=f"operator set {version}.*{advice}"):
        from_onnx(model.SerializeToString())


@pytest.mark.slow
def test_small_files_do_not_become_large_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """The importer leaves constants that would be too large to the device; all together have a limit, too."""
    monkeypatch.setattr("nnrt_client.onnx_import.context._FREE_BYTES", 1 << 26)
    g = Graph()
    huge = g.op("ConstantOfShape", g.constant([1 << 14, 1 << 14]))
    parts = [g.op("Expand", g.constant(np.float32(at)), g.constant([1 << 18])) for at in range(70)]
    x = g.input("x", [1])
    with pytest.raises(OutOfMemory, match="far larger"):
        from_onnx(g.model(g.op("Add", x, huge), *(g.op("Add", x, part) for part in parts)).SerializeToString())


@pytest.mark.slow
def test_functions_that_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty functions, each of which calls the next one twice."""
    monkeypatch.setattr("nnrt_client.onnx_import.context.MAX_NODES", 1 << 10)
    g = Graph()
    x = g.input("x", [1])
    g.nodes.append(onnx.helper.make_node("f0", [x], ["y"], domain="mine"))
    model = g.model("y")
    opsets = [onnx.helper.make_opsetid("mine", 1), onnx.helper.make_opsetid("", g.opset)]
    for at in range(30):
        domain, inner = ("mine", f"f{at + 1}") if at < 29 else ("", "Neg")
        body = [onnx.helper.make_node(inner, [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "b"))]
        model.functions.append(onnx.helper.make_function("mine", f"f{at}", ["a"], ["b"], body, opsets))
    model.opset_import.append(opsets[0])
    with pytest.raises(InvalidFile, match="more than 1024 nodes"):
        from_onnx(model.SerializeToString())


_NUMBERS = [0, -1, 1, 2, 7, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)]


def damage(model: onnx.ModelProto, rng: random.Random) -> None:
    """One thing in the model becomes another."""
    graph, node = model.graph, rng.choice(model.graph.node)
    match rng.randrange(7):
        case 0 if node.attribute:
            attribute = rng.choice(node.attribute)
            if attribute.ints:
                attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_NUMBERS)
                attribute.ints.extend(rng.choices(_NUMBERS, k=rng.randrange(2)))
            else:
                attribute.i = rng.choice(_NUMBERS)
                attribute.ClearField(rng.choice(["type", "ints"]))
        case 1 if node.input:
            names = [name for other in graph.node for name in (*other.input, *other.output)]
            node.input[rng.randrange(len(node.input))] = rng.choice([*names, "", "nowhere"])
        case 2 if node.input:
            del node.input[rng.randrange(len(node.input))]
        case 3 if graph.initializer:
            tensor = rng.choice(graph.initializer)
            tensor.data_type = rng.choice([tensor.data_type, rng.randrange(27)])
            tensor.dims.extend(rng.choices(_NUMBERS, k=rng.randrange(2)))
        case 4 if graph.initializer:
            tensor = rng.choice(graph.initializer)
            if tensor.data_type == TensorProto.INT64 and tensor.raw_data:
                count = len(tensor.raw_data) // 8
                tensor.raw_data = np.array(rng.choices(_NUMBERS, k=count), np.int64).tobytes()
        case 5:
            type_ = rng.choice(graph.input).type.tensor_type
            type_.elem_type = rng.choice([type_.elem_type, rng.randrange(26)])
            type_.shape.dim.add().dim_value = rng.choice(_NUMBERS)
        case 6:
            node.op_type = rng.choice(SAMPLES).op_type


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("samples", [SAMPLES, [*QUANTIZED, *FUSED]], ids=["ONNX", "ONNX Runtime"])
def test_damaged_models_are_imported_or_refused(samples: list[Sample], seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    models = [graph_of(sample)[0] for sample in samples]
    outcomes = set()
    for _ in range(examples(300)):
        model = onnx.ModelProto()
        model.CopyFrom(rng.choice(models))
        for _ in range(rng.choice([1, 1, 2, 3])):
            damage(model, rng)
        try:
            outcomes.add(type(parts_of(from_onnx(model.SerializeToString())).graph).__name__)
        except NnrtError as error:
            outcomes.add(type(error).__name__)
    assert outcomes >= {"Graph", "NotImported", "InvalidFile"}
