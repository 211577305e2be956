"""Models in files: a loaded one is finished, and compiles to what the saved one compiles to."""

import os
from pathlib import Path

import numpy as np
import pytest
from networks import convolution_model, identity_model
from operators.single_node import graph_of, pairs

from nnrt_client import (
    Compilation,
    Executor,
    InvalidFile,
    InvalidPath,
    Model,
    OperationFailed,
    OperationForbidden,
    OperationType,
    QuantParam,
    Runtime,
    TensorDesc,
)
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_client.enums import DataType
from nnrt_client.model.model import parts_of
from nnrt_client.model.operations import OPERATIONS
from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.enums import DataType as HdiDataType
from nnrt_hdi.files import container
from nnrt_hdi.files.container import packed
from nnrt_hdi.files.graph_file import graph_digest, packed_graph
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import TensorSpec


def finished(model: Model, inputs: list[object], output: object) -> Model:
    model.specify_inputs_and_outputs(inputs, [output])  # type: ignore[list-item, arg-type]
    model.finish()
    return model


def test_a_loaded_model_is_the_saved_one(tmp_path: Path) -> None:
    saved = convolution_model()
    saved.save(tmp_path / "model")
    loaded = Model.load(str(tmp_path / "model"))
    assert loaded.is_finished
    assert loaded.name == saved.name
    assert graph_digest(parts_of(loaded).graph) == graph_digest(parts_of(saved).graph)
    assert [tensor.desc for tensor in loaded.inputs] == [tensor.desc for tensor in saved.inputs]
    assert [tensor.desc.shape for tensor in loaded.outputs] == [(-1, 10)]
    assert loaded.operations == saved.operations
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_it_runs_like_the_saved_one(runtime: Runtime, tmp_path: Path) -> None:
    saved = convolution_model()
    saved.save(tmp_path / "model")
    image = np.random.default_rng(1).standard_normal((2, 8, 8, 1), np.float32)
    outputs = []
    for model in (saved, Model.load(tmp_path / "model")):
        assert all(support.supported for support in model.supported_operations(runtime.device()))
        with Compilation(model, runtime.device()) as compilation:
            compilation.build()
            with Executor(compilation) as executor:
                outputs.append(executor.run_sync([image])[0])
    np.testing.assert_array_equal(outputs[0], outputs[1])


def test_quantization_is_kept(tmp_path: Path) -> None:
    model = Model("quantized")
    x = model.input((1, 4), DataType.INT8, quant=QuantParam([0.1], [-3]))
    y = model.apply(OperationType.ADD, x, x, quant=QuantParam([0.3], [5]))
    finished(model, [x], y).save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert parts_of(loaded).graph.tensors == parts_of(model).graph.tensors
    assert parts_of(loaded).graph.nodes == parts_of(model).graph.nodes


def test_it_can_not_be_changed(tmp_path: Path) -> None:
    identity_model().save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    with pytest.raises(OperationForbidden):
        loaded.add_tensor(TensorDesc())
    with pytest.raises(OperationForbidden):
        loaded.finish()


def test_an_unfinished_model_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(OperationForbidden, match="not finished"):
        Model().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_real_numbers_are_those_that_travel(tmp_path: Path) -> None:
    """An epsilon given in FLOAT64 is rounded when the graph is made, so that the daemon has the same digest."""
    model = Model()
    x = model.input((2, 4))
    y = model.apply(OperationType.LAYER_NORM, x, np.ones(4, "f4"), np.zeros(4, "f4"), epsilon=1e-5, begin_norm_axis=1)
    (node,) = parts_of(finished(model, [x], y)).graph.nodes
    assert node.attrs["epsilon"] == float(np.float32(1e-5))


def test_a_function_that_no_operation_names(tmp_path: Path) -> None:
    spec = TensorSpec(HdiDataType.FLOAT32, (1,))
    node = Node(NodeType.ACTIVATION, (0,), (1,), {"activation_type": ActivationType.SIGN}, "sign")
    container.write(tmp_path / "model", packed_graph(Graph((spec, spec), (node,), (0,), (1,))))
    with pytest.raises(InvalidFile, match="no operation becomes its node ACTIVATION 'sign'"):
        Model.load(tmp_path / "model")


@pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: NodeType(node_type).name)
def test_every_node_has_its_operation(node_type: NodeType, tmp_path: Path) -> None:
    sample = next((sample for sample in SAMPLES if sample.node_type is node_type), None)
    if sample is None:
        assert OPERATORS[node_type].sees_quantization
        return
    if node_type is NodeType.ACTIVATION:
        sample = next(row for row in SAMPLES if row.attrs == {"activation_type": ActivationType.TANH})
    graph = graph_of(node_type, pairs(sample, sample.arrays()), sample.attrs)
    container.write(tmp_path / "model", packed_graph(graph))
    if node_type in {operation.node_type for operation in OPERATIONS.values()}:
        (operation,) = Model.load(tmp_path / "model").operations
        assert OPERATIONS[operation].node_type is node_type
    else:
        with pytest.raises(InvalidFile, match=f"no operation becomes its node {node_type.name}"):
            Model.load(tmp_path / "model")


def test_operations_that_become_the_same_node(tmp_path: Path) -> None:
    model = Model()
    x = model.input((1, 4))
    y = x
    for kind in (OperationType.SIGMOID, OperationType.RELU6, OperationType.TANH, OperationType.REDUCE_MAX):
        y = model.apply(kind, y, *([[0]] if kind is OperationType.REDUCE_MAX else []))
    finished(model, [x], y).save(tmp_path / "model")
    assert Model.load(tmp_path / "model").operations == model.operations


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_others_may_read_it(tmp_path: Path) -> None:
    """As far as the umask lets them: a model is often saved by one user for another."""
    before = os.umask(0o022)
    try:
        identity_model().save(tmp_path / "file")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_paths_without_a_file(tmp_path: Path) -> None:
    model = identity_model()
    model.save(tmp_path / "file")
    for path in (tmp_path / "missing", tmp_path / "missing" / "file", tmp_path / "file" / "below", tmp_path):
        with pytest.raises(InvalidPath) as refusal:
            Model.load(path)
        assert str(path) in str(refusal.value)
    for path in (tmp_path / "missing" / "file", tmp_path / "file" / "below", tmp_path):
        with pytest.raises(InvalidPath) as refusal:
            model.save(path)
        assert str(path) in str(refusal.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_the_system_refuses(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OperationFailed, match=r"'.*pipe': it is no regular file"):
        Model.load(tmp_path / "pipe")
    with pytest.raises(OperationFailed, match=r"'.*xxx': File name too long"):
        identity_model().save(tmp_path / ("x" * 300))


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "model"
    identity_model().save(path)
    whole = path.read_bytes()
    for damaged in (b"", b"\x08\x07", whole[:-1], whole + b"\0", whole[:100] + b"?" + whole[101:]):
        path.write_bytes(damaged)
        with pytest.raises(InvalidFile, match=r"'.*model': "):
            Model.load(path)


def test_files_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "model"
    container.write(path, packed("compiled model", {}, []))
    with pytest.raises(InvalidFile, match="of kind 'compiled model'"):
        Model.load(path)


def test_more_dimensions_than_a_desc_takes(tmp_path: Path) -> None:
    """Models may have them, from legacy tensors."""
    spec = TensorSpec(HdiDataType.FLOAT32, (1,) * 11)
    node = Node(NodeType.ACTIVATION, (0,), (1,), {"activation_type": 1})
    container.write(tmp_path / "model", packed_graph(Graph((spec, spec), (node,), (0,), (1,))))
    assert Model.load(tmp_path / "model").inputs[0].desc.shape == (1,) * 11
