"""Values to messages and back: what one end says is what the other end gets, or an error that says why not."""

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from part import examples

from nnrt_hdi import wire
from nnrt_hdi.backend import Capabilities, DeviceInfo, DimRange, ModelConfig
from nnrt_hdi.enums import (
    DataType,
    DeviceStatus,
    DeviceType,
    Format,
    NodeType,
    PerformanceMode,
    Priority,
    QuantType,
    ReturnCode,
)
from nnrt_hdi.errors import (
    InvalidParameter,
    NnrtError,
    OperationFailed,
    OutOfMemory,
    UnavailableDevice,
    UnknownHandle,
    error_class,
)
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Constant, Graph, Node
from nnrt_hdi.tensor import MAX_DIM, MAX_RANK, NUMPY_DTYPES, Array, QuantParam, TensorSpec, data_type_of
from nnrt_hdi.v2 import device_pb2, error_pb2, model_pb2, node_pb2, prepared_model_pb2, session_pb2

pytestmark = pytest.mark.table

ATTR_FIELDS: dict[NodeType, Any] = {
    NodeType(field.number - 1000): field for field in node_pb2.Node.DESCRIPTOR.oneofs_by_name["attr"].fields
}
# A number that no enum has.
UNHEARD_OF: Any = 99
# What gRPC takes by default of all metadata of a message together.
METADATA_BYTES = 8 * 1024

bounded = settings(max_examples=examples(20))
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


# ---- attributes


def attribute_values(field: Any) -> st.SearchStrategy[Any]:
    """Everything that a field of an attribute message can hold, as values of a Node."""
    if field.message_type is not None:
        return st.lists(st.lists(int64s, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
    if field.enum_type is not None:
        # Enums are open: a number that this version doesn't know survives, to be refused by the operator.
        item: st.SearchStrategy[Any] = st.sampled_from([value.number for value in field.enum_type.values]) | int32s
    else:
        item = {
            FieldDescriptor.TYPE_BOOL: st.booleans(),
            FieldDescriptor.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
            FieldDescriptor.TYPE_INT64: int64s,
            FieldDescriptor.TYPE_STRING: names,
        }[field.type]
    return st.lists(item, min_size=1, max_size=4).map(tuple) if field.is_repeated else item


def attributes(node_type: NodeType) -> st.SearchStrategy[dict[str, Any]]:
    fields = ATTR_FIELDS[node_type].message_type.fields
    return st.fixed_dictionaries({}, optional={field.name: attribute_values(field) for field in fields})


def graph_of(node: Node) -> Graph:
    specs = tuple(TensorSpec(DataType.FLOAT32, (1,)) for _ in range(3))
    return Graph(specs, (node,), (0, 1), (2,))


def there_and_back(graph: Graph) -> Graph:
    data = wire.model_message(graph).SerializeToString()
    return wire.graph(model_pb2.Model.FromString(data))


def test_every_node_type_has_attributes() -> None:
    assert set(ATTR_FIELDS) == set(NodeType) - {NodeType.NONE}


@pytest.mark.parametrize("node_type", ATTR_FIELDS, ids=lambda node_type: node_type.name)
def test_attributes(node_type: NodeType) -> None:
    @bounded
    @given(attrs=attributes(node_type), name=names, quant_type=st.sampled_from(QuantType))
    def check(attrs: dict[str, Any], name: str, quant_type: QuantType) -> None:
        node = Node(node_type, (0, 1), (2,), attrs, name, quant_type)
        (arrived,) = there_and_back(graph_of(node)).nodes
        if node_type is not NodeType.QUANT_DTYPE_CAST:
            assert arrived == node
        assert dict(arrived.attrs) == attrs
        # Absent is not zero: what was set arrives as set.
        assert list(arrived.attrs) == sorted(attrs, key=[field.name for field in fields].index)

    fields = sorted(ATTR_FIELDS[node_type].message_type.fields, key=lambda field: field.number)
    check()


def test_the_old_number_of_a_quantizing_cast_takes_both_structs() -> None:
    for attrs in ("quant_dtype_cast", "quant_dtype_cast_v2"):
        message = wire.model_message(graph_of(Node(NodeType.QUANT_DTYPE_CAST, (0, 1), (2,))))
        getattr(message.nodes[0], attrs).src_t = 43
        (node,) = wire.graph(message).nodes
        assert node.attrs == {"src_t": 43}
    assert node.type is NodeType.QUANT_DTYPE_CAST_V2


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0])
def test_special_numbers_as_attributes(value: float) -> None:
    (node,) = there_and_back(graph_of(Node(NodeType.ACTIVATION, (0, 1), (2,), {"alpha": value}))).nodes
    assert repr(node.attrs["alpha"]) == repr(value)


# ---- tensors

specs = st.builds(
    TensorSpec,
    st.sampled_from(DataType),
    st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=MAX_RANK).map(tuple)
    | st.integers(-1, MAX_DIM).map(lambda dim: (dim,)),
    st.sampled_from(Format),
    st.lists(st.builds(QuantParam, st.floats(allow_nan=False), int32s, int32s.filter(bool)), max_size=3).map(tuple),
    names,
)


@bounded
@given(spec=specs)
def test_tensor_specs(spec: TensorSpec) -> None:
    assert wire.tensor_spec(wire.tensor_message(spec)) == spec


def test_quantization_of_no_bits_reads_as_8() -> None:
    message = model_pb2.Tensor(quant_params=[model_pb2.QuantParam(scale=0.5, zero_point=3)])
    assert wire.tensor_spec(message).quant == (QuantParam(0.5, 3, 8),)


def elements(data_type: DataType) -> Callable[[tuple[int, ...]], Array]:
    """Arrays of a type in which every element is another one, as far as the type has so many."""

    def make(shape: tuple[int, ...]) -> Array:
        return np.arange(math.prod(shape)).astype(NUMPY_DTYPES[data_type]).reshape(shape)

    return make


SHAPES = [(), (0,), (1,), (3,), (2, 3), (2, 0, 3), (1,) * MAX_RANK, (0, MAX_DIM)]


@pytest.mark.parametrize("data_type", NUMPY_DTYPES, ids=lambda data_type: data_type.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays(data_type: DataType, shape: tuple[int, ...]) -> None:
    array = elements(data_type)(shape)
    assert data_type_of(array.dtype) is data_type
    spec = TensorSpec(data_type, shape, Format.NHWC, name="x")
    message = wire.io_tensor_message(spec, array)
    assert wire.io_spec(message) == spec
    arrived = wire.io_array(model_pb2.IOTensor.FromString(message.SerializeToString()))
    assert (arrived.dtype, arrived.shape, arrived.tobytes()) == (array.dtype, shape, array.tobytes())
    assert not arrived.flags.writeable


@pytest.mark.parametrize("data_type", NUMPY_DTYPES, ids=lambda data_type: data_type.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_constants(data_type: DataType, shape: tuple[int, ...]) -> None:
    array = elements(data_type)(shape)
    tensors = (TensorSpec(data_type, shape), TensorSpec(DataType.FLOAT32, (1,)))
    graph = Graph(tensors, (Node(NodeType.SHAPE, (0,), (1,)),), (), (1,), {0: Constant.of(array)})
    arrived = there_and_back(graph).constants[0]
    assert arrived.sha256 == graph.constants[0].sha256
    assert arrived.data is not None
    np.testing.assert_array_equal(arrived.data, array)


def test_arrays_in_any_layout() -> None:
    """Arrays travel in C order, however they lie in memory."""
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for view in (array.T, array[:, ::-1], array[..., ::2], np.asfortranarray(array)):
        spec = TensorSpec(DataType.INT16, view.shape)
        np.testing.assert_array_equal(wire.io_array(wire.io_tensor_message(spec, view)), view)


@pytest.mark.parametrize(
    ("size", "inline"), [(INLINE_CONSTANT_BYTES, True), (INLINE_CONSTANT_BYTES + 1, False), (1 << 20, False)]
)
def test_only_small_constants_travel_inline(size: int, inline: bool) -> None:
    array = np.zeros(size, np.uint8)
    tensors = (TensorSpec(DataType.UINT8, (size,)), TensorSpec(DataType.INT32, (1,)))
    graph = Graph(tensors, (Node(NodeType.SHAPE, (0,), (1,)),), (), (1,), {0: Constant.of(array)})
    arrived = there_and_back(graph).constants[0]
    assert (arrived.data is not None) is inline
    assert (arrived.shape_value is not None) is inline
    assert (arrived.sha256, arrived.size_bytes) == (graph.constants[0].sha256, size)


def test_graphs_keep_their_names_and_orders() -> None:
    tensors = tuple(TensorSpec(DataType.FLOAT32, (1,), name=f"tensor {index}") for index in range(4))
    nodes = (
        Node(NodeType.ADD_FUSION, (2, 0), (3,), {"activation_type": 1}, "second"),
        Node(NodeType.ADD_FUSION, (1, 0), (2,), {}, "first"),
    )
    constant = Constant.of(np.ones(1, np.float32))
    graph = Graph(tensors, nodes, (1,), (3, 2), {0: constant}, "model")
    arrived = there_and_back(graph)
    for part in ("tensors", "nodes", "inputs", "outputs", "name", "order"):
        assert getattr(arrived, part) == getattr(graph, part)
    assert arrived.order == (1, 0)


# ---- errors

ERRORS = [error_class(code) for code in ReturnCode if code not in (0, ReturnCode.UNAVALIDABLE_DEVICE)]


class FailedCall:
    """Make the error that a client sees of a call that was aborted with a status."""

    def __init__(self, status: Any) -> None:
        self._status = status

    def code(self) -> Any:
        return self._status.code

    def details(self) -> str:
        return str(self._status.details)

    def trailing_metadata(self) -> Any:
        return self._status.trailing_metadata


def arrived(error: NnrtError) -> NnrtError:
    result = wire.error_detail_of(FailedCall(wire.rich_status(error)))
    assert result is not None
    return result


@pytest.mark.parametrize("error", [*ERRORS, UnknownHandle], ids=lambda error: error.__name__)
def test_errors(error: type[NnrtError]) -> None:
    sent = error("axis is 4; use -3..2", place="node 3 'head/softmax'").at("GetSupportedOperation")
    received = arrived(sent)
    assert received.code == sent.code
    assert type(received) is (UnavailableDevice if error is UnknownHandle else error)
    assert (received.message, received.place) == (
        "axis is 4; use -3..2",
        "GetSupportedOperation: node 3 'head/softmax'",
    )
    status = wire.rich_status(sent)
    assert (status.code.name, status.details) == (error.grpc_status, str(sent))
    assert wire.error_from_detail(wire.error_detail(sent)).args == received.args


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\U0001f4a5" * 100_000, "%" * 100_000, "é\n" * 5000, "\0" * 5000])
def test_errors_fit_into_trailers(text: str) -> None:
    """Beginning and end remain: where it was, and what would be right."""
    sent = InvalidParameter(f"name is {text}; use a shorter one", place=f"node 3 {text}")
    status = wire.rich_status(sent)
    # gRPC escapes each byte of the details that isn't printable ASCII, and encodes the trailer in base 64.
    escaped = sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in status.details.encode())
    trailer = sum(len(value) * 4 // 3 + len(key) + 32 for key, value in status.trailing_metadata)
    assert escaped + trailer + 500 < METADATA_BYTES
    received = arrived(sent)
    assert received.message.startswith("name is ")
    assert received.message.endswith("; use a shorter one")
    assert received.place.startswith("node 3 ")


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("", ""),
        ("twenty characters at most"[:20], "twenty characters at"),
        ("beginning and then far too much until the end", "beginni ... the end"),
        ("éééééééééééééééééééé", "ééé ... ééé"),
        ("lone \ud800", "lone \\ud800"),
    ],
)
def test_shortened_texts(text: str, short: str) -> None:
    assert wire.shortened(text, 20) == short


def test_errors_of_codes_this_version_does_not_know() -> None:
    codes: list[Any] = [0, 15, 99, -1]
    for code in codes:
        error = wire.error_from_detail(error_pb2.ErrorDetail(code=code, message="m", place="p"))
        assert type(error) is OperationFailed
        assert str(error) == "p: m"


def test_failures_of_grpc_itself() -> None:
    class Broken(FailedCall):
        def trailing_metadata(self) -> Any:
            return None

    status = wire.rich_status(OutOfMemory("no"))
    assert wire.error_detail_of(Broken(status)) is None
    assert isinstance(wire.error_of_status(Broken(status)), OutOfMemory)
    other = type("Status", (), {"code": grpc.StatusCode.DATA_LOSS, "details": "d", "trailing_metadata": None})
    assert str(wire.error_of_status(FailedCall(other))) == "DATA_LOSS: d"


# ---- enums


@pytest.mark.parametrize(
    ("convert", "said"),
    [
        (lambda: wire.tensor_spec(model_pb2.Tensor(data_type=UNHEARD_OF)), "data_type is 99; use one of 0 (UNKNOWN)"),
        (
            lambda: wire.tensor_spec(model_pb2.Tensor(format=UNHEARD_OF)),
            "format is 99; use one of -1 (NONE), 0 (NCHW), 1 (NHWC)",
        ),
        (lambda: wire.io_spec(model_pb2.IOTensor(data_type=UNHEARD_OF)), "data_type is 99; use one of"),
        (
            lambda: wire.model_config(model_pb2.ModelConfig(mode=UNHEARD_OF), 1),
            "ModelConfig.mode is 99; use one of 0 (NONE)",
        ),
        (
            lambda: wire.model_config(model_pb2.ModelConfig(priority=UNHEARD_OF), 1),
            "ModelConfig.priority is 99; use one of",
        ),
    ],
)
def test_unknown_numbers(convert: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        convert()
    assert said in refusal.value.message


def test_unknown_numbers_of_a_newer_daemon() -> None:
    """A client must be able to talk about a device that is newer than itself."""
    assert wire.device_info(session_pb2.DeviceInfo(device_type=UNHEARD_OF)).device_type is DeviceType.OTHER
    assert wire.device_status(UNHEARD_OF) is DeviceStatus.UNKNOWN


@pytest.mark.parametrize("enum", [DataType, Format, NodeType, QuantType, DeviceType, DeviceStatus, ReturnCode])
def test_numbers(enum: type[IntEnum]) -> None:
    for member in enum:
        assert wire.known_enum(enum, wire.number(member), "it") is member


# ---- devices and models


@bounded
@given(
    info=st.builds(
        DeviceInfo,
        names,
        names,
        st.sampled_from(DeviceType),
        st.builds(Capabilities, *[st.booleans()] * 5),
        names,
        names,
    )
)
def test_device_infos(info: DeviceInfo) -> None:
    assert wire.device_info(wire.device_info_message(info)) == info


@bounded
@given(
    config=st.builds(
        ModelConfig,
        st.booleans(),
        st.sampled_from(PerformanceMode),
        st.sampled_from(Priority),
        st.dictionaries(names, st.binary(max_size=20), max_size=3),
        st.just(123),
    )
)
def test_model_configs(config: ModelConfig) -> None:
    assert wire.model_config(wire.model_config_message(config), 123) == config


def test_dim_ranges() -> None:
    ranges = [DimRange((0, 1), (MAX_DIM, 1)), DimRange((), ())]
    message = wire.dim_ranges_message(ranges).SerializeToString()
    assert wire.dim_ranges(prepared_model_pb2.GetInputDimRangesReply.FromString(message)) == ranges


def test_supports() -> None:
    reply = device_pb2.GetSupportedOperationReply()
    reply.nodes.add(supported=True, reason="whatever a supported node says")
    reply.nodes.add(reason="too large")
    reply.nodes.add()
    assert [support.reason for support in wire.supports(reply)] == ["", "too large", "not supported"]
