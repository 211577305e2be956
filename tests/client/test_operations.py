"""The operation tables against NNRt's documents, and what parameters become in the lowered node.

`data/operations.json` is written down apart from the code, for all operations and in the spelling of the documents.
"""

import json
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from nnrt_client import model as model_module
from nnrt_client.enums import DataType, Format, FuseType, OperationType, PadMode, TensorType
from nnrt_client.model import Model
from nnrt_client.operations import FAMILIES, OPERATIONS
from nnrt_client.operations.operation import MANY, Operation, operation
from nnrt_client.operations.parameter import Parameter, integer
from nnrt_client.operations.record import TensorRecord
from nnrt_client.quant_param import QuantParam
from nnrt_client.tensor_desc import TensorDesc
from nnrt_hdi import enums as hdi
from nnrt_hdi.enums import ActivationType, NodeType, QuantType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Node
from nnrt_hdi.ops import OPERATORS, infer_graph

FACTS: dict[str, Any] = {
    fact["name"]: fact
    for fact in json.loads((Path(__file__).parent / "data" / "operations.json").read_text(encoding="utf-8"))
}

# Not offered yet. Declare an operation and strike it from this list.
UNDECLARED = frozenset(
    """ALL ARG_MAX ASSERT BATCH_TO_SPACE_ND BROADCAST_TO CEIL CLIP CONSTANT_OF_SHAPE COS CROP DEPTH_TO_SPACE
    DETECTION_POST_PROCESS ELTWISE EQUAL ERF EXP EXPAND_DIMS FILL FLATTEN FLOOR GATHER GATHER_ND GREATER GREATER_EQUAL
    INSTANCE_NORM L2_NORMALIZE LAYER_NORM LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOG_SOFTMAX LRN LSTM
    MAXIMUM MINIMUM MOD NEG NOT_EQUAL ONE_HOT POW PRELU QUANT_DTYPE_CAST RANGE RANK RECIPROCAL RESIZE_BILINEAR ROUND
    RSQRT SCALE SCATTER_ND SELECT SIN SLICE SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPARSE_TO_DENSE SPLIT SQRT SQUARE
    SQUARED_DIFFERENCE STACK STRIDED_SLICE TILE TOP_K UNSTACK WHERE""".split()  # noqa: SIM905  (as literals they would fill the screen)
)

each_operation = pytest.mark.parametrize("declared", OPERATIONS.values(), ids=lambda declared: declared.type.name)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def allowed(count: Any) -> tuple[int, int]:
    return (count["min"], MANY) if isinstance(count, dict) else (count, count)


def test_the_facts_are_complete() -> None:
    assert [*FACTS] == [type_.name for type_ in OperationType]


def test_what_is_not_offered_is_listed() -> None:
    assert {type_.name for type_ in OperationType} - {type_.name for type_ in OPERATIONS} == UNDECLARED


@each_operation
def test_node(declared: Operation) -> None:
    fact = FACTS[declared.type.name]
    assert declared.node_type.name == fact["node_type"]
    assert declared.node_name == fact["node_name"]
    assert declared.sets_quant_type == fact["sets_quant_type"]


@each_operation
def test_number_of_operands(declared: Operation) -> None:
    fact = FACTS[declared.type.name]
    # NNRt checks nothing for FULL_CONNECTION, whose bias is optional.
    inputs = (2, 3) if declared.type is OperationType.FULL_CONNECTION else allowed(fact["inputs"])
    assert declared.inputs == inputs
    assert declared.outputs == allowed(fact["outputs"])


@each_operation
def test_parameters(declared: Operation) -> None:
    facts = {fact["tensor_type"]: fact for fact in FACTS[declared.type.name]["params"]}
    assert {parameter.tensor_types[0].name for parameter in declared.parameters} == {*facts}
    for parameter in declared.parameters:
        fact = facts[parameter.tensor_types[0].name]
        assert parameter.attr == snake_case(fact["attr"])
        assert accepted_data_types(parameter) == set(fact["data_types"])
        counts = {"scalar": (1,), "n": ()}.get(str(fact["count"]), fact["count"])
        assert parameter.counts == (tuple(counts) if isinstance(counts, list | tuple) else (counts,))
        assert parameter.required == fact.get("required", False)


def accepted_data_types(parameter: Parameter) -> set[str]:
    names = {data_type.name for data_type in parameter.data_types}
    return names | {"same as inputX"} if parameter.or_like_input else names


@each_operation
def test_values_of_enums(declared: Operation) -> None:
    for fact in FACTS[declared.type.name]["params"]:
        parameter = next(p for p in declared.parameters if p.tensor_types[0].name == fact["tensor_type"])
        for value in fact.get("valid_values", ()):
            parameter.convert([value])
        if "valid_values" in fact:
            with pytest.raises(InvalidParameter, match="use one of"):
                parameter.convert([max(fact["valid_values"]) + 1])


@each_operation
def test_every_attribute_has_one_source(declared: Operation) -> None:
    """Attributes are the ones of HDI's struct; what is left out means what NNRt would send."""
    fact = FACTS[declared.type.name]
    operator = OPERATORS[declared.node_type]
    documented = {snake_case(name) for name in fact["fixed"]}
    documented |= {snake_case(name) for name in fact["derived"]}
    documented |= {parameter.attr for parameter in declared.parameters}
    assert set(operator.attributes) == documented
    absent = operator.bind(dict(declared.fixed))
    for name, value in fact["fixed"].items():
        assert plain(absent[operator.attributes[snake_case(name)].parameter]) == plain(value)
    for parameter in fact["params"]:
        default = absent[operator.attributes[snake_case(parameter["attr"])].parameter]
        # None: FULL_CONNECTION's axis and its switches say by their absence that they were not given.
        assert default is None or plain(default) == plain(parameter["default"])


def plain(value: Any) -> Any:
    """Enum members as their names, lists as tuples, to compare them with the table."""
    return getattr(value, "name", tuple(value) if isinstance(value, list) else value)


@each_operation
def test_family_is_that_of_the_node(declared: Operation) -> None:
    assert declared in FAMILIES[OPERATORS[declared.node_type].family]


def test_a_parameter_tensor_belongs_to_one_operation() -> None:
    owners = {
        tensor_type: [declared.type for declared in OPERATIONS.values() if tensor_type in declared.tensor_types]
        for tensor_type in TensorType
    }
    assert all(len(operations) <= 1 for operations in owners.values())
    assert owners[TensorType.TENSOR] == []


def test_apply_returns_a_tuple_where_the_number_of_outputs_varies() -> None:
    several = set(get_args(model_module._Several))
    assert several == {OperationType[name] for name, fact in FACTS.items() if fact["outputs"] != 1}


def test_a_required_parameter() -> None:
    declared = operation(
        OperationType.SCALE, NodeType.SOFTMAX, integer("axis", TensorType.SCALE_AXIS, required=True), inputs=1
    )
    with pytest.raises(InvalidParameter, match=r"SCALE parameter axis \(SCALE_AXIS\): it is missing; give it"):
        declared.attributes([TensorRecord(TensorDesc(DataType.FLOAT32, (2,)))], 1, [])


# What applying an operation to tensors of these shapes with these keywords sends to the device, fixed attributes left
# out. Parameters are transmitted as NNRt documents them, also where its own client drops them: ADD and MAX_POOL.
IMAGE, KERNEL = (1, 8, 8, 4), (6, 3, 3, 4)
CONVOLVED = {"kernel_size": (3, 3), "in_channel": 4, "out_channel": 6}
LOWERED: list[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    ("ADD", ((2, 3), (3,)), {"activation": FuseType.RELU6}, {"activation_type": ActivationType.RELU6}),
    ("SUB", ((2, 3), (3,)), {"activation": 1}, {"activation_type": ActivationType.RELU}),
    ("MUL", ((2, 3), (3,)), {"activation": FuseType.NONE}, {"activation_type": ActivationType.NO_ACTIVATION}),
    ("DIV", ((2, 3), (3,)), {}, {}),
    ("BIAS_ADD", ((2, 3), (3,)), {}, {}),
    ("RELU", ((2,),), {}, {}),
    ("LEAKY_RELU", ((2,),), {"alpha": 0.25}, {"alpha": 0.25}),
    ("GELU", ((2,),), {"approximate": True}, {"approximate": True}),
    ("CONV2D", (IMAGE, KERNEL, (6,)), {}, CONVOLVED),
    (
        "CONV2D",
        (IMAGE, (6, 3, 3, 2), (6,)),
        {"stride": (1, 2), "pad_mode": PadMode.SAME, "dilation": [2, 1], "group": 2, "activation": FuseType.RELU},
        {
            **CONVOLVED,
            "stride": (1, 2),
            "pad_mode": hdi.PadMode.SAME,
            "dilation": (2, 1),
            "group": 2,
            "activation_type": ActivationType.RELU,
        },
    ),
    (
        "CONV2D",
        (IMAGE, KERNEL, (6,)),
        {"pad_list": (1, 0, 1, 2), "pad_mode": None},
        {**CONVOLVED, "pad_list": (1, 0, 1, 2)},
    ),
    ("CONV2D", (IMAGE, KERNEL, (6,)), {"pad_mode": 2}, {**CONVOLVED, "pad_mode": hdi.PadMode.VALID}),
    (
        "DEPTHWISE_CONV2D_NATIVE",
        (IMAGE, (8, 3, 3, 1), (8,)),
        {"pad_mode": PadMode.VALID},
        {"kernel_size": (3, 3), "group": 4, "in_channel": 4, "out_channel": 8, "pad_mode": hdi.PadMode.VALID},
    ),
    (
        "CONV2D_TRANSPOSE",
        (IMAGE, KERNEL, (6,)),
        {"stride": (2, 2), "output_paddings": 1},
        {**CONVOLVED, "stride": (2, 2), "output_paddings": (1,)},
    ),
    (
        "MAX_POOL",
        (IMAGE,),
        {"kernel_size": (3, 3), "strides": (2, 2), "pad": (1, 1, 1, 1), "round_mode": hdi.RoundMode.CEIL},
        {"kernel_size": (3, 3), "strides": (2, 2), "pad": (1, 1, 1, 1), "round_mode": hdi.RoundMode.CEIL},
    ),
    ("AVG_POOL", (IMAGE,), {"global_": True}, {"global": True}),
    ("FULL_CONNECTION", ((2, 3), (4, 3)), {}, {"has_bias": False, "use_axis": False}),
    ("FULL_CONNECTION", ((2, 3), (4, 3), (4,)), {}, {"has_bias": True, "use_axis": False}),
    ("FULL_CONNECTION", ((2, 3), (4, 3)), {"axis": 1}, {"axis": 1, "has_bias": False, "use_axis": True}),
    ("FULL_CONNECTION", ((3,), (4, 3)), {"use_axis": True}, {"has_bias": False, "use_axis": True}),
    ("MATMUL", ((3, 2), (3, 4)), {"transpose_a": True}, {"transpose_a": True}),
    ("BATCH_NORM", ((2, 3), (3,), (3,), (3,), (3,)), {"epsilon": 0.5}, {"epsilon": 0.5}),
    ("SOFTMAX", ((2, 3),), {"axis": 0}, {"axis": (0,)}),
    ("CONCAT", ((2, 3), (4, 3), (1, 3)), {"axis": 0}, {"axis": 0}),
    ("SQUEEZE", ((1, 2, 1),), {"axis": (0, -1)}, {"axis": (0, -1)}),
    ("SQUEEZE", ((1, 2, 1),), {"axis": ()}, {}),
    ("UNSQUEEZE", ((2,),), {"axis": [0, 2]}, {"axis": (0, 2)}),
    ("SHAPE", ((2, 3),), {}, {}),
]


def applied(type_: OperationType, shapes: tuple[Any, ...], keywords: dict[str, Any], *values: Any) -> Node:
    """The node of a model that applies one operation to inputs of these shapes and then these values."""
    model = Model()
    inputs = [model.input(shape) for shape in shapes]
    output: Any = model.apply(type_, *inputs, *values, **keywords)
    model.specify_inputs_and_outputs(inputs, [output])
    model.finish()
    infer_graph(model.graph).raise_first_problem()
    return model.graph.nodes[0]


@pytest.mark.parametrize(("name", "shapes", "keywords", "expected"), LOWERED, ids=lambda value: str(value)[:40])
def test_lowered(name: str, shapes: tuple[Any, ...], keywords: dict[str, Any], expected: dict[str, Any]) -> None:
    declared = OPERATIONS[OperationType[name]]
    node = applied(declared.type, shapes, keywords)
    assert node.type is declared.node_type
    assert node.name == f"{declared.node_name}:0"
    assert dict(node.attrs) == {**declared.fixed, **expected}


INDEXED: list[tuple[str, tuple[int, ...], Any, dict[str, Any], dict[str, Any]]] = [
    ("RESHAPE", (2, 3), (3, -1), {}, {}),
    ("TRANSPOSE", (2, 3), (1, 0), {}, {}),
    ("PAD", (2, 3), [[0, 1], [1, 0]], {"constant_value": 2}, {"constant_value": 2.0}),
    ("PAD", (2, 3), [[0, 1], [1, 0]], {"padding_mode": 1}, {"padding_mode": hdi.PaddingMode.REFLECT}),
    ("CAST", (2, 3), DataType.FLOAT16, {}, {}),
    *((name, (2, 3), (0,), {"keep_dims": True}, {"keep_dims": True}) for name in FACTS if name.startswith("REDUCE_")),
    ("REDUCE_MEAN", (2, 3), 0, {"reduce_to_end": True, "coeff": 2}, {"reduce_to_end": True, "coeff": 2.0}),
]


@pytest.mark.parametrize(("name", "shape", "index", "keywords", "expected"), INDEXED, ids=lambda value: str(value)[:30])
def test_lowered_with_indices(
    name: str, shape: tuple[int, ...], index: Any, keywords: dict[str, Any], expected: dict[str, Any]
) -> None:
    node = applied(OperationType[name], (shape,), keywords, index)
    assert dict(node.attrs) == {**OPERATIONS[OperationType[name]].fixed, **expected}


def test_channels_first() -> None:
    model = Model()
    x = model.input((1, 4, 8, 8), format=Format.NCHW)
    weight = model.constant(np.zeros((6, 2, 3, 5), np.float32), format=Format.NCHW)
    y = model.apply(OperationType.CONV2D, x, weight, np.zeros(6, np.float32), group=2)
    assert y.desc == TensorDesc(DataType.FLOAT32, (1, 6, 6, 4), Format.NCHW)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    attrs = model.graph.nodes[0].attrs
    assert (attrs["kernel_size"], attrs["in_channel"], attrs["out_channel"]) == ((3, 5), 4, 6)


def test_both_padding_tensors_may_carry_either() -> None:
    for type_, values, expected in (
        (TensorType.MAX_POOL_PAD, np.array([1], np.int8), {"pad_mode": hdi.PadMode.VALID}),
        (TensorType.MAX_POOL_PAD_MODE, np.array([1, 1, 0, 0], np.int64), {"pad": (1, 1, 0, 0)}),
    ):
        attrs = pooled(type_, values)
        assert {name: attrs[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            np.array([1, 1], np.int64),
            r"MAX_POOL parameter pad \(MAX_POOL_PAD\): it has 2 values; give 4 \(pad\) or 1 \(pad_mode\)",
        ),
        (np.array([1], np.int64), r"parameter pad_mode \(MAX_POOL_PAD_MODE\): it is INT64; give INT8"),
        (np.array([1, 1, 1, 1], np.int8), r"parameter pad \(MAX_POOL_PAD\): it is INT8; give INT64"),
        (np.array([3], np.int8), r"it is 3; use one of 0 \(SAME\), 1 \(VALID\)"),
    ],
)
def test_padding_that_is_neither(values: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        pooled(TensorType.MAX_POOL_PAD, values)


def pooled(type_: TensorType, values: Any) -> dict[str, Any]:
    parameter = TensorRecord(TensorDesc(DataType[values.dtype.name.upper()], values.shape), type_, values)
    image = TensorRecord(TensorDesc(DataType.FLOAT32, IMAGE))
    return OPERATIONS[OperationType.MAX_POOL].attributes([image], 1, [parameter])


def refused(name: str, shapes: tuple[Any, ...], keywords: dict[str, Any], *values: Any) -> str:
    with pytest.raises(InvalidParameter) as caught:
        applied(OperationType[name], shapes, keywords, *values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "shapes", "keywords", "message"),
    [
        (
            "CONV2D",
            (IMAGE, KERNEL, (6,)),
            {"stride": (1, 2, 3)},
            "CONV2D parameter stride (CONV2D_STRIDES): it has 3 values; give 2",
        ),
        ("CONV2D", (IMAGE, KERNEL), {}, "CONV2D: it has 2 inputs; give 3 (x, weight, bias)"),
        ("CONV2D", (IMAGE, (6, 3, 4), (6,)), {}, "CONV2D: weight FLOAT32[6, 3, 4] has rank 3; use rank 4"),
        (
            "DEPTHWISE_CONV2D_NATIVE",
            ((8, 8, 4), (8, 3, 3, 1), (8,)),
            {},
            "DEPTHWISE_CONV2D_NATIVE: x FLOAT32[8, 8, 4] has rank 3; use rank 4",
        ),
        (
            "DEPTHWISE_CONV2D_NATIVE",
            ((1, 8, 8, -1), (8, 3, 3, 1), (8,)),
            {},
            "DEPTHWISE_CONV2D_NATIVE: the channels of x FLOAT32[1, 8, 8, ?] are its groups, so they must be known",
        ),
        (
            "FULL_CONNECTION",
            ((2, 3), (4, 3)),
            {"has_bias": True},
            "FULL_CONNECTION: has_bias is True but there are 2 inputs; give 3",
        ),
        (
            "FULL_CONNECTION",
            ((2, 3), (4, 3), (4,)),
            {"has_bias": False},
            "FULL_CONNECTION: has_bias is False but there are 3 inputs; give 2",
        ),
        (
            "FULL_CONNECTION",
            ((2, 3), (4, 3)),
            {"axis": 1, "use_axis": False},
            "FULL_CONNECTION: axis is 1 but use_axis is False; leave one of them out",
        ),
        ("FULL_CONNECTION", ((2, 3),), {}, "FULL_CONNECTION: it has 1 inputs; give 2 to 3 (x, weight, bias)"),
        ("CONCAT", ((2, 3),), {}, "CONCAT: it has 1 inputs; give at least 2 (parts)"),
        ("RELU", ((2,),), {"alpha": 1}, "RELU: it has no parameter 'alpha'; it has none"),
    ],
)
def test_refused(name: str, shapes: tuple[Any, ...], keywords: dict[str, Any], message: str) -> None:
    assert refused(name, shapes, keywords) == message


def test_cast_needs_a_data_type() -> None:
    assert "type INT32[] must be a constant" in cast_by_an_input()
    for number in (0, 13, 40):
        assert f"type is {number}, which names no data type" in refused("CAST", ((2,),), {}, number)
    assert "has 2 elements; give one data type" in refused("CAST", ((2,),), {}, [1, 2])


def cast_by_an_input() -> str:
    model = Model()
    with pytest.raises(InvalidParameter) as caught:
        model.apply(OperationType.CAST, model.input((2,)), model.input((), DataType.INT32))
    return str(caught.value)


@pytest.mark.parametrize(("name", "expected"), [("RELU", QuantType.ALL), ("ABS", QuantType.NONE)])
def test_quantized_node(name: str, expected: QuantType) -> None:
    model = Model()
    x, y = (model.add_tensor(TensorDesc(DataType.INT8, (2,))) for _ in range(2))
    model.set_tensor_quant_params(y, QuantParam([0.5], [0]))
    model.add_operation(OperationType[name], [], [x], [y])
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    assert model.graph.nodes[0].quant_type is expected
