"""The operation tables against NNRt's documents, and what parameters become in the lowered node.

`data/operations.json` is written down apart from the code, for all operations and in the spelling of the documents.
"""

import json
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from nnrt_client.enums import DataType, Format, FuseType, OperationType, PadMode, TensorType
from nnrt_client.model import model as model_module
from nnrt_client.model.model import Model, parts_of
from nnrt_client.model.operations import FAMILIES, OPERATIONS
from nnrt_client.model.operations.operation import MANY, Operation
from nnrt_client.model.operations.parameter import Parameter
from nnrt_client.model.operations.record import TensorRecord
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi import enums as hdi
from nnrt_hdi.enums import ActivationType, QuantType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Node
from nnrt_hdi.ops import OPERATORS, inferred_graph

FACTS: dict[str, Any] = {
    fact["name"]: fact
    for fact in json.loads((Path(__file__).parent / "data" / "operations.json").read_text(encoding="utf-8"))
}

each_operation = pytest.mark.parametrize("declared", OPERATIONS.values(), ids=lambda declared: declared.type.name)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def allowed(count: Any) -> tuple[int, int]:
    """NNRt checks nothing where there is no number."""
    if count is None:
        return 1, MANY
    return (count["min"], MANY) if isinstance(count, dict) else (count, count)


def test_the_facts_are_complete() -> None:
    assert [*FACTS] == [type_.name for type_ in OperationType]


def test_every_operation_is_offered() -> None:
    assert {*OPERATIONS} == {*OperationType}


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
    required = {parameter.attr: parameter.convert([0]) for parameter in declared.parameters if parameter.required}
    absent = operator.bind({**declared.fixed, **required})
    for name, value in fact["fixed"].items():
        assert plain(absent[operator.attributes[snake_case(name)].parameter]) == plain(value)
    for parameter in fact["params"]:
        attr = snake_case(parameter["attr"])
        default = absent[operator.attributes[attr].parameter]
        # None: the bounds of CLIP, FULL_CONNECTION's axis and its switches say by their absence that there is none.
        assert attr in required or default is None or plain(default) == plain(parameter["default"])


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
    several = set(get_args(model_module.Several))
    assert several == {OperationType[name] for name, fact in FACTS.items() if fact["outputs"] != 1}


def test_a_required_parameter() -> None:
    operands = [TensorRecord(TensorDesc(DataType.FLOAT32, (2,)))] * 3
    with pytest.raises(InvalidParameter, match=r"SCALE parameter axis \(SCALE_AXIS\): it is missing; give it"):
        OPERATIONS[OperationType.SCALE].attributes(operands, 1, [])


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
    ("MAXIMUM", ((2, 3), (3,)), {}, {}),
    ("POW", ((2, 3), (3,)), {"scale": 2, "shift": 0.5}, {"scale": 2.0, "shift": 0.5}),
    ("ELTWISE", ((2, 3), (2, 3)), {"mode": hdi.EltwiseMode.SUM}, {"mode": hdi.EltwiseMode.SUM}),
    (
        "SCALE",
        ((2, 3, 4), (3,), (3,)),
        {"axis": -2, "activation": FuseType.RELU},
        {"axis": -2, "activation_type": ActivationType.RELU},
    ),
    ("SQRT", ((2, 3),), {}, {}),
    ("EXP", ((2, 3),), {"base": 2}, {"base": 2.0}),
    ("CLIP", ((2, 3),), {"max": 0.5}, {"max": 0.5}),
    ("CLIP", ((2, 3),), {"min": 0}, {"min": 0.0}),
    ("EQUAL", ((2, 3), (3,)), {}, {}),
    ("SELECT", ((2,), (2, 3), (2, 3)), {}, {}),
    ("ASSERT", ((), (2, 3)), {"summarize": 2}, {"summarize": 2}),
    ("PRELU", ((2, 3), (3,)), {}, {}),
    ("PRELU", ((2, 3), (1,)), {}, {"channel_shared": True}),
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
    ("LOG_SOFTMAX", ((2, 3),), {"axis": -1}, {"axis": -1}),
    ("LAYER_NORM", ((2, 3, 4), (4,), (4,)), {"begin_norm_axis": 2}, {"begin_norm_axis": 2}),
    ("INSTANCE_NORM", (IMAGE, (4,), (4,)), {"epsilon": 0.5}, {"epsilon": 0.5}),
    (
        "L2_NORMALIZE",
        ((2, 3),),
        {"axis": (-1,), "activation": FuseType.RELU},
        {"axis": (-1,), "activation_type": ActivationType.RELU},
    ),
    ("LRN", (IMAGE,), {"depth_radius": 2, "norm_region": 0}, {"depth_radius": 2, "norm_region": "ACROSS_CHANNELS"}),
    (
        "RESIZE_BILINEAR",
        (IMAGE,),
        {"new_height": 4, "new_width": 6, "coordinate_transform_mode": 2, "exclude_outside": 1},
        {
            "new_height": 4,
            "new_width": 6,
            "coordinate_transform_mode": hdi.CoordinateTransformMode.HALF_PIXEL,
            "exclude_outside": 1,
        },
    ),
    (
        "BATCH_TO_SPACE_ND",
        ((6, 8, 8, 4),),
        {"block_shape": (2, 3), "crops": [[1, 2], [3, 4]]},
        {"block_shape": (2, 3), "crops": ((1, 2), (3, 4))},
    ),
    (
        "SPACE_TO_BATCH_ND",
        (IMAGE,),
        {"block_shape": (2, 3), "paddings": (1, 1, 0, 1)},
        {"block_shape": (2, 3), "paddings": ((1, 1), (0, 1))},
    ),
    ("DEPTH_TO_SPACE", (IMAGE,), {"block_size": 2, "mode": 1}, {"block_size": 2, "mode": "CRD"}),
    ("SPACE_TO_DEPTH", (IMAGE,), {"block_size": 4}, {"block_size": 4}),
    (
        "LSTM",
        ((5, 2, 3), (1, 16, 3), (1, 16, 4), (1, 32), (1, 2, 4), (1, 2, 4)),
        {"has_bias": True, "hidden_size": 4},
        {"has_bias": True, "hidden_size": 4},
    ),
    (
        "DETECTION_POST_PROCESS",
        ((1, 6, 4), (1, 6, 3), (6, 4)),
        {"scale": (10, 10, 5, 5), "nms_iou_threshold": 0.5, "max_detections": 3, "num_classes": 2},
        {"scale": (10.0, 10.0, 5.0, 5.0), "nms_io_u_threshold": 0.5, "max_detections": 3, "num_classes": 2},
    ),
    ("CONCAT", ((2, 3), (4, 3), (1, 3)), {"axis": 0}, {"axis": 0}),
    ("SQUEEZE", ((1, 2, 1),), {"axis": (0, -1)}, {"axis": (0, -1)}),
    ("SQUEEZE", ((1, 2, 1),), {"axis": ()}, {}),
    ("UNSQUEEZE", ((2,),), {"axis": [0, 2]}, {"axis": (0, 2)}),
    ("SHAPE", ((2, 3),), {}, {}),
    ("RANK", ((2, 3),), {}, {}),
    ("FLATTEN", ((2, 3),), {"axis": -1}, {"axis": -1}),
    ("STACK", ((2, 3), (2, 3)), {"axis": 2}, {"axis": 2}),
    ("SPLIT", ((6, 3),), {"output_num": 2}, {"output_num": 2}),
    (
        "SPLIT",
        ((3, 6),),
        {"size_splits": (1, 5), "axis": 1},
        {"size_splits": (1, 5), "axis": 1, "output_num": 2},
    ),
    ("UNSTACK", ((3, 2),), {"axis": 1}, {"axis": 1}),
    ("BROADCAST_TO", ((2, 1),), {"shape": (4, 2, 3)}, {"shape": (4, 2, 3)}),
    (
        "ARG_MAX",
        ((2, 3),),
        {"axis": 0, "keep_dims": True, "top_k": 2, "out_max_value": True},
        {"axis": 0, "keep_dims": True, "top_k": 2, "out_max_value": True},
    ),
    ("CONSTANT_OF_SHAPE", ((3,),), {"data_type": 3, "value": 2}, {"data_type": 3, "value": (2.0,)}),
    ("RANGE", ((2, 3),), {"start": 1, "limit": 9, "delta": 2}, {"start": 1, "limit": 9, "delta": 2}),
]


def applied(type_: OperationType, shapes: tuple[Any, ...], keywords: dict[str, Any], *values: Any) -> Node:
    """The node of a model that applies one operation to inputs of these shapes and then these values."""
    model = Model()
    inputs = [model.input(shape) for shape in shapes]
    output: Any = model.apply(type_, *inputs, *values, **keywords)
    model.specify_inputs_and_outputs(inputs, output if isinstance(output, tuple) else [output])
    model.finish()
    inferred_graph(parts_of(model).graph)
    return parts_of(model).graph.nodes[0]


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
    ("EXPAND_DIMS", (2, 3), 1, {}, {}),
    ("CROP", (2, 3), (2, 1), {"axis": 1, "offset": 2}, {"axis": 1, "offset": (2,)}),
    ("TILE", (2, 3), (4,), {"dims": (1,)}, {"dims": (1,)}),
    ("GATHER_ND", (2, 3), [[1, 0], [0, 2]], {}, {}),
    ("FILL", (), (2, 3), {}, {}),
    ("TOP_K", (2, 3), 2, {"sorted": False, "axis": 0}, {"sorted": False, "axis": 0}),
    *((name, (2, 3), (0,), {"keep_dims": True}, {"keep_dims": True}) for name in FACTS if name.startswith("REDUCE_")),
    ("ALL", (2, 3), 0, {"keep_dims": 1}, {"keep_dims": 1}),
    ("REDUCE_MEAN", (2, 3), 0, {"reduce_to_end": True, "coeff": 2}, {"reduce_to_end": True, "coeff": 2.0}),
]


@pytest.mark.parametrize(("name", "shape", "index", "keywords", "expected"), INDEXED, ids=lambda value: str(value)[:30])
def test_lowered_with_indices(
    name: str, shape: tuple[int, ...], index: Any, keywords: dict[str, Any], expected: dict[str, Any]
) -> None:
    node = applied(OperationType[name], (shape,), keywords, index)
    assert dict(node.attrs) == {**OPERATIONS[OperationType[name]].fixed, **expected}


SEVERAL_INDICES: list[tuple[str, tuple[int, ...], tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    ("GATHER", (2, 3), ([[1], [0]], 1), {}, {}),
    ("SLICE", (2, 3), ((1,), (2,)), {"axes": (1,)}, {"axes": (1,)}),
    (
        "STRIDED_SLICE",
        (2, 3),
        ((0, 1, 0), (0, 3, 0), (1, 1, 1)),
        {"begin_mask": 1, "end_mask": 4, "ellipsis_mask": 1, "new_axis_mask": 4, "shrink_axis_mask": 2},
        {"begin_mask": 1, "end_mask": 4, "ellipsis_mask": 1, "new_axis_mask": 4, "shrink_axis_mask": 2},
    ),
]


@pytest.mark.parametrize(
    ("name", "shape", "indices", "keywords", "expected"), SEVERAL_INDICES, ids=lambda value: str(value)[:30]
)
def test_lowered_with_several_indices(
    name: str, shape: tuple[int, ...], indices: tuple[Any, ...], keywords: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert dict(applied(OperationType[name], (shape,), keywords, *indices).attrs) == expected


def test_operands_behind_indices() -> None:
    """SCATTER_ND, SPARSE_TO_DENSE and ONE_HOT begin with indices: what follows is given with its data type."""
    model = Model()
    places = model.input((4, 2), DataType.INT32)
    updates = model.input((4,))
    for type_ in (OperationType.SCATTER_ND, OperationType.SPARSE_TO_DENSE):
        assert model.apply(type_, places, updates, (5, 6)).desc == TensorDesc(DataType.FLOAT32, (5, 6))
    on, off = np.float32(0.5), np.float32(-1)
    hot = model.apply(OperationType.ONE_HOT, places, 3, on, off, axis=1)
    assert hot.desc == TensorDesc(DataType.FLOAT32, (4, 3, 2))


def test_outputs_say_how_many_pieces_split_makes() -> None:
    model = Model()
    x = model.input((6, 2))
    pieces = [TensorDesc(DataType.FLOAT32, (2, 2))] * 3
    assert [y.desc for y in model.apply(OperationType.SPLIT, x, output=pieces)] == pieces
    model.specify_inputs_and_outputs([0], [1, 2, 3])
    model.finish()
    assert parts_of(model).graph.nodes[0].attrs["output_num"] == 3


def test_outputs_that_contradict_output_num() -> None:
    model = Model()
    x = model.input((6, 2))
    with pytest.raises(InvalidParameter, match="SPLIT: output_num is 2 but there are 3 outputs; give as many"):
        model.apply(OperationType.SPLIT, x, output=[TensorDesc(DataType.FLOAT32, (2, 2))] * 3, output_num=2)


def test_channels_first() -> None:
    model = Model()
    x = model.input((1, 4, 8, 8), format=Format.NCHW)
    weight = model.constant(np.zeros((6, 2, 3, 5), np.float32), format=Format.NCHW)
    y = model.apply(OperationType.CONV2D, x, weight, np.zeros(6, np.float32), group=2)
    assert y.desc == TensorDesc(DataType.FLOAT32, (1, 6, 6, 4), Format.NCHW)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    attrs = parts_of(model).graph.nodes[0].attrs
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
        ("CONCAT", ((2, 3),), {}, "CONCAT: it has 1 inputs; give 2 to 200 (parts)"),
        (
            "SPLIT",
            ((6, 2),),
            {},
            "SPLIT: the number of its outputs is not known; give output_num, size_splits or the outputs",
        ),
        ("SPLIT", ((6, 2),), {"output_num": 2**40}, f"SPLIT: it would have {2**40} outputs; use 1 to 200"),
        ("UNSTACK", ((201,),), {}, "UNSTACK: it would have 201 outputs; use 1 to 200"),
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
    assert parts_of(model).graph.nodes[0].quant_type is expected
