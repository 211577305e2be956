"""Model.apply: whole operations from Python values, all or nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnrt_client.enums import DataType, Format, FuseType, OperationType, PadMode, TensorType
from nnrt_client.model.model import Model, ModelTensor, parts_of
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi import enums as hdi
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES
from nnrt_hdi.ops import inferred_graph


def state(model: Model) -> Any:
    """Everything that a failed call may not change."""
    tensors = [(record.desc.copy(), record.type, record.data is None) for record in parts_of(model).tensors]
    return tensors, model.operations, model.inputs, model.outputs, model.is_finished


def digits() -> tuple[Model, ModelTensor, ModelTensor]:
    """A small network of every family, built by `apply`."""
    model, random = Model(), np.random.default_rng(7)

    def weights(*shape: int) -> Any:
        return random.normal(size=shape).astype(np.float32)

    image = model.input((1, 8, 8, 1), format=Format.NHWC, name="image")
    x = model.apply(
        OperationType.CONV2D, image, weights(4, 3, 3, 1), weights(4), pad_mode=PadMode.SAME, activation=FuseType.RELU
    )
    x = model.apply(OperationType.MAX_POOL, x, kernel_size=(2, 2), strides=(2, 2), name="pool")
    x = model.apply(OperationType.BATCH_NORM, x, *(np.abs(weights(4)) for _ in range(4)))
    x = model.apply(OperationType.ADD, 1, x)
    x = model.apply(OperationType.RESHAPE, x, (1, -1))
    x = model.apply(OperationType.FULL_CONNECTION, x, weights(10, 64), weights(10))
    x = model.apply(OperationType.REDUCE_MEAN, x, 0, keep_dims=True)
    return model, image, model.apply(OperationType.SOFTMAX, x, axis=-1, name="scores")


def test_apply() -> None:
    model, image, scores = digits()
    model.specify_inputs_and_outputs([image], [scores])
    model.finish()
    graph = parts_of(model).graph
    assert inferred_graph(graph).tensors == graph.tensors
    assert scores.desc == TensorDesc(DataType.FLOAT32, (1, 10), name="scores")
    assert [node.name for node in graph.nodes] == [
        "Conv2D:0",
        "pool",
        "BatchNorm:2",
        "Add:3",
        "Reshape:4",
        "FullConnection:5",
        "ReduceMean:6",
        "scores",
    ]
    assert [graph.tensors[node.outputs[0]].name.split(":")[0] for node in graph.nodes] == [
        "Tensor", "pool", *["Tensor"] * 5, "scores"
    ]  # fmt: skip


def test_apply_and_add_operation_make_the_same_graph() -> None:
    applied, added = Model(), Model()
    for model in (applied, added):
        model.input((2, 3)), model.input((2, 3))
    applied.apply(OperationType.ADD, *(ModelTensor(index, applied) for index in range(2)), activation=FuseType.RELU)
    activation = added.add_tensor(TensorDesc(DataType.INT8))
    added.set_tensor_type(activation, TensorType.ADD_ACTIVATIONTYPE)
    added.set_tensor_data(activation, b"\x01")
    added.add_operation(OperationType.ADD, [activation], [0, 1], [added.input((2, 3))])
    for model in (applied, added):
        model.specify_inputs_and_outputs([0, 1], [3])
        model.finish()
    assert parts_of(applied).graph.nodes == parts_of(added).graph.nodes
    assert parts_of(applied).graph.tensors == parts_of(added).graph.tensors


@pytest.mark.parametrize(
    ("value", "like", "data_type"),
    [
        (2, DataType.FLOAT16, DataType.FLOAT16),
        (2.5, DataType.FLOAT64, DataType.FLOAT64),
        (2, DataType.INT8, DataType.INT8),
        ([[1], [2]], DataType.FLOAT32, DataType.FLOAT32),
        (np.float32(2), DataType.FLOAT32, DataType.FLOAT32),
        (np.zeros(3, np.float64), DataType.FLOAT32, DataType.FLOAT64),
    ],
)
def test_data_type_of_an_operand(value: Any, like: DataType, data_type: DataType) -> None:
    model = Model()
    model.apply(OperationType.ADD, value, model.input((2, 3), like))
    assert parts_of(model).tensors[1].desc.data_type is data_type


@pytest.mark.parametrize(
    ("value", "data_type"), [((1, -1), DataType.INT32), (np.array([3, 2]), DataType.INT64), (4, DataType.INT32)]
)
def test_data_type_of_an_index(value: Any, data_type: DataType) -> None:
    model = Model()
    model.apply(OperationType.RESHAPE, model.input((-1, 3)), value)
    assert parts_of(model).tensors[1].desc.data_type is data_type


@pytest.mark.parametrize(
    ("value", "data_type"),
    [(True, DataType.BOOL), (3, DataType.INT32), (2**40, DataType.INT64), (0.5, DataType.FLOAT32)],
)
def test_data_type_of_a_constant(value: Any, data_type: DataType) -> None:
    assert Model().constant(value, name="c").desc == TensorDesc(data_type, name="c")


def test_apply_writes_the_output_it_is_given() -> None:
    model = Model()
    x, y = model.input((2, 3)), model.add_tensor(TensorDesc(DataType.FLOAT32, (2, -1), name="y"))
    assert model.apply(OperationType.RELU, x, output=y) == y
    assert model.apply(OperationType.ABS, x, output=[y.index]) == y
    declared = model.apply(OperationType.SHAPE, x, output=TensorDesc(DataType.INT64, (2,), name="dims"), name="other")
    assert declared.desc == TensorDesc(DataType.INT64, (2,), name="dims")


def add(x: ModelTensor, *operands: Any, **more: Any) -> Any:
    return x.model.apply(OperationType.ADD, x, *operands, **more)


NOT_APPLIED: dict[str, tuple[Callable[[ModelTensor, ModelTensor], Any], str]] = {
    "keyword": (lambda x, i: add(x, 1, axis=0), r"^ADD: it has no parameter 'axis'; it has activation$"),
    "value": (lambda x, i: add(x, 1, activation=7), "it is 7; use one of"),
    "enum of the device": (
        lambda x, i: add(x, 1, activation=hdi.ActivationType.RELU),
        "it is RELU of nnrt_hdi.enums.ActivationType; use nnrt_client.enums.FuseType",
    ),
    "ragged": (lambda x, i: add(x, [[1], [2, 3]]), "ADD operand 1: .*give rows of equal length"),
    "text": (lambda x, i: add(x, "one"), "ADD operand 1: 'one' is no number"),
    "large": (lambda x, i: add(i, 300), "ADD operand 1: 300 can't be held by INT8"),
    "fraction": (lambda x, i: add(i, 0.5), "ADD operand 1: 0.5 can't be held by INT8"),
    "empty": (lambda x, i: add(x, []), r"ADD operand 1: dimension 0 of shape \[0\] is 0"),
    "shapes": (lambda x, i: add(x, [1, 2], name="sum"), "^ADD 'sum': a .* do not broadcast"),
    "declared": (lambda x, i: add(x, 1, output=TensorDesc(DataType.FLOAT32, (9,), name="y")), "'y' is declared"),
    "output index": (lambda x, i: add(x, 1, output=99), "tensor 99 does not exist"),
    "output is input": (lambda x, i: add(x, 1, output=x), "both input and output"),
    "outputs": (lambda x, i: add(x, 1, output=[x, x]), "it has 2 outputs; give 1"),
    "other model": (lambda x, i: add(x, Model().input((2, 3))), "belongs to another model"),
    "operation": (lambda x, i: x.model.apply(0, x), "0 is no operation type"),  # type: ignore[call-overload]
    "operands": (lambda x, i: x.model.apply(OperationType.ADD), r"it has 0 inputs; give 2 \(a, b\)"),
    "count": (
        lambda x, i: x.model.apply(OperationType.MAX_POOL, x, kernel_size=[2]),
        r"MAX_POOL parameter kernel_size \(MAX_POOL_KERNEL_SIZE\): it has 1 values; give 2",
    ),
}


@pytest.mark.parametrize(("call", "message"), NOT_APPLIED.values(), ids=NOT_APPLIED)
def test_nothing_is_added_on_an_error(call: Callable[[ModelTensor, ModelTensor], Any], message: str) -> None:
    model = Model()
    x, i = model.input((2, 3)), model.input((2,), DataType.INT8)
    before = state(model)
    with pytest.raises(InvalidParameter, match=message):
        call(x, i)
    assert state(model) == before


def test_numbers_beside_a_condition_have_the_type_of_the_choices() -> None:
    model = Model()
    condition, x = model.input((2,), DataType.BOOL), model.input((2,), DataType.FLOAT16)
    assert model.apply(OperationType.WHERE, condition, x, 0.0).desc.data_type is DataType.FLOAT16


def test_large_operands_decide_no_shapes() -> None:
    """They travel by digest, so the other end could not follow."""
    model = Model()
    shape = np.ones(INLINE_CONSTANT_BYTES // 8 + 1, np.int64)
    with pytest.raises(NnrtError):
        model.apply(OperationType.RESHAPE, model.input((1,)), shape)
