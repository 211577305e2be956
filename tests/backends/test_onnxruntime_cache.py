"""Compiled models of the ONNX Runtime backend: exported, restored, and refused where they are not what was exported."""

import hashlib
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from net import Net
from nnrt_backend_onnxruntime import processor
from nnrt_backend_onnxruntime.cache import KIND
from nnrt_backend_onnxruntime.model import OnnxModel
from onnx import helper, numpy_helper
from onnxruntime_graphs import backend, op_types, prepare, run
from resident_pages import resident_bytes

from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.errors import InvalidFile, OutOfMemory, SaveCacheFailed
from nnrt_hdi.files.container import packed, unpacked
from nnrt_hdi.files.unnamed_file import file_memory
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part

N = NodeType
X = np.random.default_rng(0).standard_normal((2, 8, 8, 3)).astype(np.float32)


def network(batch: int = -1) -> Graph:
    """With constants in the model, and beside it."""
    net = Net()
    y = net.conv(net.input(batch, 8, 8, 3), 32, activation_type=ActivationType.RELU)
    return net.graph(net.op(N.ACTIVATION, net.conv(y, 32), activation_type=ActivationType.SIGMOID))


def exported(model: OnnxModel) -> list[bytes]:
    return [bytes(part.data) for part in model.export()]


PARTS = exported(prepare(network()))


def restore(parts: list[bytes], **config: Any) -> Any:
    return backend().restore([Part.of(part) for part in parts], ModelConfig(**config))


def repacked(*parts: bytes, **about: Any) -> list[bytes]:
    """Parts with a header that fits them, as anybody could write it."""
    said, _ = unpacked(KIND, PARTS[0])
    digests = [hashlib.sha256(part).hexdigest() for part in parts]
    return [b"".join(packed(KIND, {**said, "parts": digests, **about}, ())), *parts]


def with_model(change: Callable[[onnx.ModelProto], None]) -> list[bytes]:
    model = onnx.load_from_string(PARTS[2])
    change(model)
    return repacked(PARTS[1], model.SerializeToString(), PARTS[3])


def test_a_restored_model_gives_what_the_exported_one_gives() -> None:
    model = restore(PARTS)
    np.testing.assert_array_equal(*model.run([X], Cancellation()), *run(network(), X))
    assert (model.inputs, model.outputs) == (prepare(network()).inputs, prepare(network()).outputs)
    assert exported(model) == PARTS
    assert model.input_ranges()[0].min_dims == (0, 8, 8, 3)


def test_packed_weights_leave_their_pages(tmp_path: Path) -> None:
    """The backend gives back the pages of weights in mapped files, also when an export has read them again."""
    memory = file_memory(tmp_path, 1 << 20)
    assert memory is not None
    weights = np.frombuffer(memory, np.float32).reshape(512, 512)
    weights[:] = 2
    net = Net()
    model = prepare(net.graph(net.op(N.MATMUL_FUSION, net.input(1, 512), net.constant(weights))))
    assert not resident_bytes(weights)
    assert sum(part.size_bytes for part in model.export()) > 1 << 20
    assert not resident_bytes(weights)
    np.testing.assert_array_equal(model.run([np.ones((1, 512), "f4")], Cancellation())[0], np.full((1, 512), 1024))


def test_what_is_restored_is_optimized_already() -> None:
    made = op_types(onnx.load_from_string(PARTS[2]))
    assert "Relu" not in made  # It is part of the convolution.
    assert len(PARTS[3]) >= 32 * 32 * 9 * 4


def test_a_restored_model_keeps_to_the_limits() -> None:
    model = restore(PARTS, max_tensor_bytes=1 << 16)
    with pytest.raises(OutOfMemory, match="at most 65536"):
        model.run([np.ones((1000, 8, 8, 3), np.float32)], Cancellation())


def test_quantized_and_asserting_models_are_restored() -> None:
    net = Net()
    condition, data = net.op(N.GREATER, x := net.input(2), net.constant(np.zeros(1, np.float32))), x
    graph = net.graph(net.op(N.ASSERT, condition, data, summarize=1))
    model = restore(exported(prepare(graph)))
    assert model.run([np.array([1, 2], np.float32)], Cancellation())[0].tolist() == [True, True]
    with pytest.raises(Exception, match="begins with -1"):
        model.run([np.array([-1, 2], np.float32)], Cancellation())


def test_as_many_parts_as_there_may_be() -> None:
    """Their sizes are more numbers than those that decide other shapes."""
    net = Net()
    parts = [net.spec((1, 2), DataType.FLOAT32)] * 200
    first = net.op(N.SPLIT, net.input(200, 2), outputs=parts, output_num=200, size_splits=(1,) * 200, axis=0)
    graph = net.graph(net.op(N.NEG, first + 199))
    x = np.arange(400, dtype=np.float32).reshape(200, 2)
    for model in (prepared := prepare(graph), restore(exported(prepared))):
        assert model.run([x], Cancellation())[0].tolist() == [[-398, -399]]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"", lambda b: b"\xff" + b[1:]])
def test_damage_is_noticed(part: int, change: Callable[[bytes], bytes]) -> None:
    parts = [*PARTS]
    parts[part] = change(parts[part])
    with pytest.raises(InvalidFile):
        restore(parts)


def test_a_model_for_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidFile, match="it has 3 parts"):
        restore(PARTS[:3])
    with pytest.raises(InvalidFile, match=r"it was made for .*1\.0\.0.*compile the model again"):
        restore(repacked(*PARTS[1:], made_for={**unpacked(KIND, PARTS[0])[0]["made_for"], "onnxruntime": "1.0.0"}))
    monkeypatch.setattr(processor, "identity", lambda: "another")
    with pytest.raises(InvalidFile, match="it was made for"):
        restore(PARTS)


def test_parts_that_do_not_belong_together_are_refused() -> None:
    other = Net()
    graph = other.graph(other.op(N.ABS, other.input(2, 2)))
    with pytest.raises(InvalidFile, match="its model has the inputs"):
        restore(repacked(exported(prepare(graph))[1], *PARTS[2:], inputs=1))
    with pytest.raises(InvalidFile, match="it has 9 inputs"):
        restore(repacked(*PARTS[1:], inputs=9))
    with pytest.raises(InvalidFile):
        restore(repacked(b"", *PARTS[2:]))


def _outside(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.external_data:
            next(entry for entry in tensor.external_data if entry.key == "offset").value = "1000000000"


def _in_a_file(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "/etc/passwd"


def _too_large(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.external_data:
            tensor.dims[0] = 1 << 40


def _negative(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.external_data:
            tensor.dims[:2] = [-tensor.dims[0], -tensor.dims[1]]


def _engine(model: onnx.ModelProto) -> None:
    node = helper.make_node("EPContext", [], ["z"], domain="com.microsoft", ep_cache_context="engine.so")
    model.graph.node.append(node)


def _foreign(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "evil"


def _function(model: onnx.ModelProto) -> None:
    model.functions.append(helper.make_function("evil", "f", ["a"], ["b"], [helper.make_node("Abs", ["a"], ["b"])], []))


def _subgraph(model: onnx.ModelProto) -> None:
    body = helper.make_graph([helper.make_node("Abs", ["a"], ["b"])], "body", [], [])
    model.graph.node.append(helper.make_node("Loop", ["", "c", "d"], ["e"], body=body))


def _attribute(model: onnx.ModelProto) -> None:
    tensor = onnx.TensorProto(name="v", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    model.graph.node.append(helper.make_node("Constant", [], ["z"], value=tensor))


def _unsound(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "nothing"


def _mistyped(model: onnx.ModelProto) -> None:
    node = model.graph.node.add(op_type="Constant", output=["z"])
    node.attribute.add(name="value", type=onnx.AttributeProto.FLOAT, f=1)


def _of_texts(model: onnx.ModelProto) -> None:
    _of_other_elements(model, onnx.TensorProto.STRING, (4,), 32)


def _of_type_that_is_not_known(model: onnx.ModelProto) -> None:
    _of_other_elements(model, onnx.TensorProto.BFLOAT16, (2,), 4)


def _of_too_many_dimensions(model: onnx.ModelProto) -> None:
    _of_other_elements(model, onnx.TensorProto.FLOAT, (1,) * 100, 4)


def _empty_and_too_large(model: onnx.ModelProto) -> None:
    _of_other_elements(model, onnx.TensorProto.FLOAT, (0, 1 << 62, 1 << 62), 0)


def _of_other_elements(model: onnx.ModelProto, data_type: int, dims: tuple[int, ...], length: int) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.external_data)
    tensor.data_type, tensor.dims[:] = data_type, dims
    del tensor.external_data[:]
    for key, value in (("location", "weights"), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


@pytest.mark.parametrize(
    "change",
    [
        _outside,
        _in_a_file,
        _too_large,
        _negative,
        _engine,
        _foreign,
        _function,
        _subgraph,
        _attribute,
        _unsound,
        _mistyped,
        _of_texts,
        _of_type_that_is_not_known,
        _of_too_many_dimensions,
        _empty_and_too_large,
    ],
    ids=lambda change: change.__name__,
)
def test_hostile_models_are_refused(change: Callable[[onnx.ModelProto], None]) -> None:
    with pytest.raises(InvalidFile):
        restore(with_model(change))


@pytest.mark.parametrize("number", [np.int32, np.int64])
def test_a_division_does_not_end_the_process(number: type[np.signedinteger[Any]]) -> None:
    """The processor refuses to divide the lowest integer by -1."""

    def change(model: onnx.ModelProto) -> None:
        (y,) = [entry.name for entry in model.graph.output]
        last = next(node for node in model.graph.node if y in node.output)
        last.output[:] = ["before"]
        lowest, minus_one = np.array(np.iinfo(number).min, number), np.array(-1, number)
        model.graph.initializer.append(numpy_helper.from_array(lowest, "lowest"))
        model.graph.initializer.append(numpy_helper.from_array(minus_one, "minus_one"))
        model.graph.node.append(helper.make_node("Div", ["lowest", "minus_one"], ["quotient"]))
        model.graph.node.append(helper.make_node("Cast", ["quotient"], ["real"], to=onnx.TensorProto.FLOAT))
        model.graph.node.append(helper.make_node("Add", ["before", "real"], [y]))

    (y,) = restore(with_model(change)).run([X], Cancellation())
    np.testing.assert_array_equal(y, np.full_like(y, np.iinfo(number).min))


def test_what_runs_is_what_was_checked() -> None:
    """The bytes begin with fields that no ONNX model has, and look like ONNX Runtime's own format."""
    disguise = bytes([9 << 3, 1, 9 << 3 | 2, 4]) + b"ORTM"
    model = restore(repacked(PARTS[1], disguise + PARTS[2], PARTS[3]))
    np.testing.assert_array_equal(*model.run([X], Cancellation()), *run(network(), X))


def test_random_damage_behind_a_sound_header() -> None:
    """Whatever is in the model: it is refused, or is a model; nothing else happens."""
    random = np.random.default_rng(1)
    for _ in range(40):
        model = bytearray(PARTS[2])
        for at in random.integers(0, len(model), 3):
            model[at] ^= 1 << random.integers(8)
        try:
            restore(repacked(PARTS[1], bytes(model), PARTS[3]))
        except InvalidFile:
            continue


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert prepare(network()).export()
    assert list(tmp_path.iterdir()) == []


def _with_more(*nodes: onnx.NodeProto, **constants: list[int]) -> list[bytes]:
    """Parts of a model that computes with shapes as well, and adds nothing that anybody sees."""

    def change(model: onnx.ModelProto) -> None:
        for name, value in constants.items():
            model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
        model.graph.node.extend(nodes)

    return with_model(change)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([helper.make_node("ConstantOfShape", ["long"], ["big"])], {"long": [1 << 29]}),
        ([helper.make_node("Expand", ["one", "long"], ["big"])], {"one": [1], "long": [1 << 29]}),
        ([helper.make_node("Tile", ["one", "long"], ["big"])], {"one": [1], "long": [1 << 29]}),
        (
            [
                helper.make_node("Mul", ["half", "half"], ["long"]),
                helper.make_node("ConstantOfShape", ["long"], ["big"]),
            ],
            {"half": [1 << 15]},
        ),
    ],
    ids=["ConstantOfShape", "Expand", "Tile", "elements"],
)
def test_what_is_restored_computes_nothing_larger(nodes: list[onnx.NodeProto], constants: dict[str, list[int]]) -> None:
    with pytest.raises(OutOfMemory, match="tensor 'big': it needs"):
        restore(_with_more(*nodes, **constants), max_tensor_bytes=1 << 30)


def test_runs_of_what_is_restored_compute_nothing_larger() -> None:
    """Of lengths that only the model has, not its graph."""
    first = onnx.load_from_string(PARTS[2]).graph.input[0].name
    parts = _with_more(
        helper.make_node("Unsqueeze", [first, "axis"], ["wide"]),
        helper.make_node("Transpose", ["wide"], ["tall"], perm=[1, 0, 2, 3, 4]),
        helper.make_node("Mul", ["wide", "tall"], ["square"]),
        axis=[0],
    )
    model = restore(parts, max_tensor_bytes=1 << 22)
    model.run([X], Cancellation())
    with pytest.raises(OutOfMemory, match="tensor 'square': it needs"):
        model.run([np.ones((100, 8, 8, 3), np.float32)], Cancellation())


def test_no_room_for_the_compiled_model(caplog: pytest.LogCaptureFixture) -> None:
    """In the temporary folder: that is what is said, once, and the model isn't compiled in another way for it."""
    model = prepare(network())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(SaveCacheFailed, match=f"can't write the model to '{tempfile.gettempdir()}', where .* left"):
            model.export()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not caplog.records
    assert exported(model) == PARTS
