"""Model against the rules of NNRt's model functions: every error, and what the graph is in the end."""

import array
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnrt_client.enums import DataType, Format, FuseType, OperationType, TensorType
from nnrt_client.model.model import Model, ModelTensor, parts_of
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi import enums as hdi
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationForbidden
from nnrt_hdi.tensor import QuantParam as ScaleAndZero

FLOATS = TensorDesc(DataType.FLOAT32, (2, 3))


def sum_model() -> Model:
    """An unfinished z = x + y: tensors 0 (x), 1 (y), 2 (the activation parameter), 3 (z)."""
    model = Model()
    for desc in (FLOATS, FLOATS, TensorDesc(DataType.INT8), FLOATS):
        model.add_tensor(desc)
    model.set_tensor_type(2, TensorType.ADD_ACTIVATIONTYPE)
    model.set_tensor_data(2, np.int8(FuseType.RELU))
    model.add_operation(OperationType.ADD, [2], [0, 1], [3])
    return model


def finished_model() -> Model:
    model = sum_model()
    model.specify_inputs_and_outputs([0, 1], [3])
    model.finish()
    return model


def state(model: Model) -> Any:
    """Everything that a failed call may not change."""
    tensors = [(record.desc.copy(), record.type, record.data is None) for record in parts_of(model).tensors]
    return tensors, model.operations, model.inputs, model.outputs, model.is_finished


def assert_refused(model: Model, call: Callable[[Model], Any], error: type[NnrtError], message: str) -> None:
    before = state(model)
    with pytest.raises(error, match=message):
        call(model)
    assert state(model) == before


CHANGES: dict[str, Callable[[Model], Any]] = {
    "add_tensor": lambda model: model.add_tensor(FLOATS),
    "set_tensor_data": lambda model: model.set_tensor_data(0, np.zeros((2, 3), np.float32)),
    "set_tensor_quant_params": lambda model: model.set_tensor_quant_params(0, QuantParam()),
    "set_tensor_type": lambda model: model.set_tensor_type(0, TensorType.TENSOR),
    "add_operation": lambda model: model.add_operation(OperationType.ADD, [], [0, 1], [3]),
    "specify": lambda model: model.specify_inputs_and_outputs([0, 1], [3]),
    "finish": lambda model: model.finish(),
    "input": lambda model: model.input((1,)),
    "constant": lambda model: model.constant(1),
    "apply": lambda model: model.apply(OperationType.RELU, 1.0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_finished_model_does_not_change(change: Callable[[Model], Any]) -> None:
    assert_refused(finished_model(), change, OperationForbidden, "the model is finished")


@pytest.mark.parametrize("index", [-1, 4, 2**32])
@pytest.mark.parametrize(
    "call",
    [
        lambda model, index: model.set_tensor_data(index, b"1234"),
        lambda model, index: model.set_tensor_quant_params(index, QuantParam()),
        lambda model, index: model.set_tensor_type(index, TensorType.TENSOR),
        lambda model, index: model.add_operation(OperationType.ADD, [], [0, index], [3]),
        lambda model, index: model.add_operation(OperationType.ADD, [], [0, 1], [index]),
        lambda model, index: model.add_operation(OperationType.ADD, [index], [0, 1], [3]),
        lambda model, index: model.specify_inputs_and_outputs([index], [3]),
        lambda model, index: model.specify_inputs_and_outputs([0], [index]),
    ],
)
def test_an_index_that_does_not_exist(call: Callable[[Model, int], Any], index: int) -> None:
    assert_refused(sum_model(), lambda model: call(model, index), InvalidParameter, f"{index} does not exist; use 0..3")


REFUSED: dict[str, tuple[Callable[[Model], Any], type[NnrtError], str]] = {
    "no desc": (lambda model: model.add_tensor(None), InvalidParameter, "give a TensorDesc"),  # type: ignore[arg-type]
    "dimension of 0": (
        lambda model: model.add_tensor(TensorDesc(shape=(1, 0))),
        InvalidParameter,
        "dimension 1 .* is 0",
    ),
    "dimension below -1": (lambda model: model.add_tensor(TensorDesc(shape=(-2,))), InvalidParameter, "is -2; use -1"),
    "too large": (
        lambda model: model.add_tensor(TensorDesc(DataType.FLOAT32, (2**20, 2**10))),
        InvalidParameter,
        "has 4294967296 bytes; use at most 4294967295",
    ),
    "no data": (lambda model: model.set_tensor_data(0, None), InvalidParameter, "data are NoneType"),  # type: ignore[arg-type]
    "empty data": (lambda model: model.set_tensor_data(0, b""), InvalidParameter, "the data are empty"),
    "data twice": (
        lambda model: model.set_tensor_data(2, np.int8(0)),
        InvalidParameter,
        "tensor 2: it has data already",
    ),
    "short data": (lambda model: model.set_tensor_data(0, b"1" * 23), InvalidParameter, "have 23 bytes; give the 24"),
    "long data": (lambda model: model.set_tensor_data(0, b"1" * 25), InvalidParameter, "have 25 bytes; give the 24"),
    "data of another type": (
        lambda model: model.set_tensor_data(0, np.zeros(6, np.int32)),
        InvalidParameter,
        "an array of int32; give one of FLOAT32, or bytes",
    ),
    "no quantization": (lambda model: model.set_tensor_quant_params(0, None), InvalidParameter, "give a QuantParam"),  # type: ignore[arg-type]
    "unknown type": (lambda model: model.set_tensor_type(0, 163), InvalidParameter, "is 163; use 0"),  # type: ignore[arg-type]
    "negative type": (lambda model: model.set_tensor_type(0, -1), InvalidParameter, "is -1; use 0"),  # type: ignore[arg-type]
    "no list": (
        lambda model: model.add_operation(OperationType.ADD, None, [0, 1], [3]),  # type: ignore[arg-type]
        InvalidParameter,
        "parameters is None; give a sequence",
    ),
    "no inputs": (
        lambda model: model.add_operation(OperationType.ADD, [], [], [3]),
        InvalidParameter,
        "are 0 inputs; give 1",
    ),
    "no outputs": (
        lambda model: model.add_operation(OperationType.ADD, [], [0], []),
        InvalidParameter,
        "are 0 outputs",
    ),
    "many inputs": (
        lambda model: model.add_operation(OperationType.CONCAT, [], [0] * 201, [3]),
        InvalidParameter,
        "there are 201 inputs; give 1 to 200",
    ),
    "parameter as input": (
        lambda model: model.add_operation(OperationType.ADD, [], [0, 2], [3]),
        InvalidParameter,
        "tensor 2: it is the parameter ADD_ACTIVATIONTYPE",
    ),
    "input as output": (
        lambda model: model.add_operation(OperationType.ADD, [], [0, 1], [1]),
        InvalidParameter,
        "tensor 1 is both input and output",
    ),
    "unknown operation": (
        lambda model: model.add_operation(109, [], [0, 1], [3]),  # type: ignore[arg-type]
        InvalidParameter,
        "109 is no operation type",
    ),
    "three inputs": (
        lambda model: model.add_operation(OperationType.ADD, [], [0, 1, 0], [3]),
        InvalidParameter,
        r"ADD: it has 3 inputs; give 2 \(a, b\)",
    ),
    "two parameters": (
        lambda model: model.add_operation(OperationType.ADD, [2, 2], [0, 1], [3]),
        InvalidParameter,
        "ADD: it has 2 parameters; give 0 to 1",
    ),
    "parameter of another operation": (
        lambda model: model.add_operation(OperationType.SUB, [2], [0, 1], [3]),
        InvalidParameter,
        "SUB: a parameter tensor is ADD_ACTIVATIONTYPE; it takes SUB_ACTIVATIONTYPE",
    ),
    "data tensor as parameter": (
        lambda model: model.add_operation(OperationType.ADD, [0], [0, 1], [3]),
        InvalidParameter,
        "ADD: a parameter tensor is TENSOR",
    ),
    "tensor of another model": (
        lambda model: model.set_tensor_type(Model().input((1,)), TensorType.TENSOR),
        InvalidParameter,
        "belongs to another model",
    ),
    "no tensor": (lambda model: model.set_tensor_type("x", TensorType.TENSOR), InvalidParameter, "'x' is no tensor"),  # type: ignore[arg-type]
    "no ends": (lambda model: model.specify_inputs_and_outputs(None, [3]), InvalidParameter, "inputs is None"),  # type: ignore[arg-type]
    "no model inputs": (lambda model: model.specify_inputs_and_outputs([], [3]), InvalidParameter, "are 0 inputs"),
    "no model outputs": (lambda model: model.specify_inputs_and_outputs([0], []), InvalidParameter, "are 0 outputs"),
    "many outputs": (
        lambda model: model.specify_inputs_and_outputs([0], [3] * 201),
        InvalidParameter,
        "are 201 outputs",
    ),
    "parameter as model input": (
        lambda model: model.specify_inputs_and_outputs([2], [3]),
        InvalidParameter,
        "parameter",
    ),
    "end twice": (lambda model: model.specify_inputs_and_outputs([0, 3], [3]), InvalidParameter, "tensor 3 is both"),
    "ends not specified": (lambda model: model.finish(), OperationForbidden, "not specified"),
    "graph of an unfinished model": (lambda model: parts_of(model).graph, OperationForbidden, "not finished"),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(call: Callable[[Model], Any], error: type[NnrtError], message: str) -> None:
    assert_refused(sum_model(), call, error, message)


@pytest.mark.parametrize(
    ("desc", "data", "message"),
    [
        (TensorDesc(DataType.INT32), np.int32(1), "it is INT32; give INT8"),
        (TensorDesc(DataType.UNKNOWN), None, "it is UNKNOWN; give INT8"),
        (TensorDesc(DataType.INT8, (2,)), np.zeros(2, np.int8), "it has 2 values; give 1"),
        (TensorDesc(DataType.INT8, (-1,)), None, "it has an unknown number of values; give 1"),
        (TensorDesc(DataType.INT8), None, "it has no data"),
        (TensorDesc(DataType.INT8, (1, 1)), np.zeros((1, 1), np.int8) + np.int8(3), r"it is 3; use one of 0 \(NONE\)"),
    ],
    ids=["data type", "unknown data type", "count", "dynamic", "no data", "value"],
)
def test_parameter_refused(desc: TensorDesc, data: Any, message: str) -> None:
    model = sum_model()
    parameter = model.add_tensor(desc)
    model.set_tensor_type(parameter, TensorType.ADD_ACTIVATIONTYPE)
    if data is not None:
        model.set_tensor_data(parameter, data)
    assert_refused(
        model,
        lambda model: model.add_operation(OperationType.ADD, [parameter], [0, 1], [3]),
        InvalidParameter,
        rf"^ADD parameter activation \(ADD_ACTIVATIONTYPE\): {message}",
    )


def test_tensors_are_counted_and_copied() -> None:
    model = Model()
    desc = TensorDesc(DataType.INT8, (2, -1), Format.NCHW, "x")
    first, second = model.add_tensor(desc), model.add_tensor(TensorDesc())
    assert (first.index, second.index) == (0, 1)
    desc.shape = (9,)
    first.desc.shape = (7,)
    assert first.desc == TensorDesc(DataType.INT8, (2, -1), Format.NCHW, "x")
    assert first == ModelTensor(0, model)
    assert first != ModelTensor(0, Model())


def test_an_unknown_dimension_counts_as_one() -> None:
    model = Model()
    model.add_tensor(TensorDesc(DataType.INT8, (-1, 2**31 - 1)))
    with pytest.raises(InvalidParameter, match="bytes; use at most"):
        model.add_tensor(TensorDesc(DataType.INT8, (-1, 2**31 - 1, 3)))


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "data",
    [
        VALUES,
        VALUES.reshape(6),
        np.asfortranarray(VALUES),
        VALUES.astype(">f4"),
        VALUES.tobytes(),
        bytearray(VALUES.tobytes()),
        memoryview(VALUES.tobytes()),
        array.array("f", range(6)),
        (ctypes.c_float * 6)(*range(6)),
    ],
    ids=["array", "flat", "Fortran order", "big-endian", "bytes", "bytearray", "memoryview", "array.array", "ctypes"],
)
def test_data(data: Any) -> None:
    model = sum_model()
    model.set_tensor_data(0, data)
    model.specify_inputs_and_outputs([1], [3])
    model.finish()
    constant = parts_of(model).graph.constants[0].data
    assert constant is not None
    assert (constant.dtype, constant.shape, constant.tolist()) == (VALUES.dtype, VALUES.shape, VALUES.tolist())
    assert not constant.flags.writeable


def test_data_are_copied() -> None:
    model, values = sum_model(), VALUES.copy()
    model.set_tensor_data(0, values)
    values[:] = 7
    model.specify_inputs_and_outputs([1], [3])
    model.finish()
    assert np.array_equal(parts_of(model).graph.constants[0].data, VALUES)  # type: ignore[arg-type]


def test_any_byte_but_0_is_true() -> None:
    model = Model()
    flags = model.add_tensor(TensorDesc(DataType.BOOL, (3,)))
    model.set_tensor_data(flags, bytes([0, 1, 2]))
    data = parts_of(model).tensors[0].data
    assert data is not None
    assert data.tolist() == [False, True, True]


@pytest.mark.parametrize("index", [0, 3])
def test_inputs_and_outputs_get_no_data(index: int) -> None:
    model = sum_model()
    model.specify_inputs_and_outputs([0, 1], [3])
    assert_refused(model, lambda model: model.set_tensor_data(index, VALUES), OperationForbidden, "input or output")


def test_a_dynamic_tensor_gets_no_data() -> None:
    model = Model()
    model.add_tensor(TensorDesc(DataType.FLOAT32, (-1, 3)))
    assert_refused(model, lambda model: model.set_tensor_data(0, VALUES), OperationForbidden, "unknown dimensions")


def test_quantization() -> None:
    model, quant = sum_model(), QuantParam([0.5], [3])
    model.set_tensor_quant_params(3, QuantParam([9.0], [9]))
    model.set_tensor_quant_params(3, quant)
    quant.scales = [7.0]
    model.specify_inputs_and_outputs([0, 1], [3])
    model.finish()
    assert parts_of(model).graph.tensors[2].quant == (ScaleAndZero(0.5, 3, 8),)
    assert parts_of(model).graph.nodes[0].quant_type is hdi.QuantType.ALL


def test_after_a_failed_quantization_a_tensor_has_none() -> None:
    model = sum_model()
    model.set_tensor_quant_params(3, QuantParam([0.5], [3]))
    with pytest.raises(InvalidParameter, match="tensor 3: scales has 1, zero_points has 0"):
        model.set_tensor_quant_params(3, QuantParam([0.5]))
    with pytest.raises(InvalidParameter, match=r"num_bits\[0\] is 4; use 8"):
        model.set_tensor_quant_params(3, QuantParam([0.5], [3], [4]))
    assert parts_of(model).tensors[3].quant == ()


def test_the_last_type_counts() -> None:
    model = sum_model()
    model.set_tensor_type(0, TensorType.ADD_ACTIVATIONTYPE)
    model.set_tensor_type(0, TensorType.TENSOR)
    model.add_operation(OperationType.ADD, [], [0, 1], [3])


def test_one_parameter_tensor_serves_several_operations() -> None:
    model = sum_model()
    last = model.add_tensor(FLOATS)
    model.add_operation(OperationType.ADD, [2], [3, 1], [last])
    assert model.operations == (OperationType.ADD, OperationType.ADD)


def test_ends_are_specified_once() -> None:
    model = sum_model()
    with pytest.raises(InvalidParameter):
        model.specify_inputs_and_outputs([0], [])
    model.specify_inputs_and_outputs([1, 0], [3])
    assert [tensor.index for tensor in model.inputs] == [1, 0]
    assert [tensor.index for tensor in model.outputs] == [3]
    assert_refused(
        model, lambda model: model.specify_inputs_and_outputs([0], [3]), OperationForbidden, "specified already"
    )


def test_an_empty_model_is_not_finished() -> None:
    assert_refused(Model(), lambda model: model.finish(), OperationForbidden, "has no tensors")
    model = Model()
    x, y = model.input((1,)), model.input((1,))
    model.specify_inputs_and_outputs([x], [y])
    assert_refused(model, lambda model: model.finish(), OperationForbidden, "has no operations")


def test_graph() -> None:
    """Parameters and tensors that nobody uses are gone, the rest is renumbered."""
    model = Model("sums")
    unused = model.constant(VALUES)
    x = model.input((2, 3), name="x")
    for desc in (TensorDesc(DataType.INT8), FLOATS, FLOATS):
        model.add_tensor(desc)
    model.set_tensor_type(2, TensorType.ADD_ACTIVATIONTYPE)
    model.set_tensor_data(2, b"\x02")
    model.set_tensor_data(3, VALUES)
    model.add_operation(OperationType.ADD, [2], [x, 3], [4])
    model.specify_inputs_and_outputs([x], [4])
    assert not model.is_finished
    model.finish()
    assert model.is_finished
    graph = parts_of(model).graph
    assert graph is parts_of(model).graph
    assert unused.index == 0
    assert [tensor.name for tensor in graph.tensors] == ["x", "Tensor: 3", "Tensor: 4"]
    assert (graph.inputs, graph.outputs, [*graph.constants]) == ((0,), (2,), [1])
    (node,) = graph.nodes
    assert (node.type, node.inputs, node.outputs, node.name) == (NodeType.ADD_FUSION, (0, 1), (2,), "Add:0")
    assert node.attrs == {"activation_type": hdi.ActivationType.RELU6}
    assert graph.name == "sums"
    assert parts_of(finished_model()).graph.name == "NNR_Model"


def test_an_input_loses_its_data() -> None:
    model = sum_model()
    model.set_tensor_data(0, VALUES)
    model.specify_inputs_and_outputs([0, 1], [3])
    model.finish()
    assert parts_of(model).graph.constants == {}


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (
            lambda model: model.add_operation(OperationType.SUB, [], [0, 1], [3]),
            "tensor 2 'Tensor: 3': both .* write it",
        ),
        (
            lambda model: model.add_operation(
                OperationType.ADD, [], [0, model.add_tensor(FLOATS)], [model.add_tensor(FLOATS)]
            ),
            "nothing writes it",
        ),
        (
            lambda model: model.add_operation(OperationType.ADD, [], [3, model.add_tensor(FLOATS)], [0]),
            "both",
        ),
    ],
    ids=["two sources", "no source", "input is written"],
)
def test_parts_that_form_no_graph(add: Callable[[Model], None], message: str) -> None:
    """Finish does not look; the graph does, each time it is asked for."""
    model = sum_model()
    add(model)
    model.specify_inputs_and_outputs([0, 1], [3])
    model.finish()
    for _ in range(2):
        with pytest.raises(InvalidParameter, match=message):
            _ = parts_of(model).graph
