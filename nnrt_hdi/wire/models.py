"""Messages of builds: graphs, constants, configurations, and answers of a device."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from nnrt_hdi.backend import DimRange, ModelConfig, Origin, Support
from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import NodeType, PerformanceMode, Priority, QuantType
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.graph import (
    INLINE_CONSTANT_BYTES,
    MAX_ATTRIBUTE_VALUES,
    AttrValue,
    Constant,
    Graph,
    Node,
    quoted_name,
    require_at_most,
    require_moderate,
)
from nnrt_hdi.part import SHA256_BYTES
from nnrt_hdi.tensor import TensorForm, TensorSpec
from nnrt_hdi.v2 import device_pb2, model_pb2, node_pb2, prepared_model_pb2
from nnrt_hdi.wire.enums import known_enum, number
from nnrt_hdi.wire.tensors import array_from_bytes, tensor_message, tensor_spec

_ATTR_FIELD_OFFSET = 1000
_TYPE_OF_ATTR_FIELD = {
    field.name: NodeType(field.number - _ATTR_FIELD_OFFSET)
    for field in node_pb2.Node.DESCRIPTOR.oneofs_by_name["attr"].fields
}
_ATTR_FIELD_OF_TYPE = {node_type: name for name, node_type in _TYPE_OF_ATTR_FIELD.items()}


def graph(message: model_pb2.Model) -> Graph:
    """Return the graph of a Model. Constants sent by digest have no data."""
    _require_moderate(message)
    tensors: list[TensorSpec] = []
    constants: dict[int, Constant] = {}
    for index, tensor in enumerate(message.all_tensors):
        try:
            tensors.append(tensor_spec(tensor))
            if tensor.HasField("data") and tensor.data.WhichOneof("place"):
                constants[index] = _constant(tensor, tensors[index])
        except NnrtError as error:
            raise error.at(f"tensor {index}{quoted_name(tensor.name)}") from error
    nodes: list[Node] = []
    for index, node in enumerate(message.nodes):
        try:
            nodes.append(_node(node))
        except NnrtError as error:
            raise error.at(f"node {index}{quoted_name(node.name)}") from error
    return Graph(
        tensors=tuple(tensors),
        nodes=tuple(nodes),
        inputs=tuple(message.input_index),
        outputs=tuple(message.output_index),
        constants=constants,
        name=message.name,
    )


class SentModel:
    """Model as a client sent it, parsed only when needed."""

    def __init__(self, message: model_pb2.Model) -> None:
        self._message = message

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the message with the digests of constants; equal digests mean equal graphs."""
        return hashlib.sha256(self._message.SerializeToString(deterministic=True)).digest()

    def graph(self) -> Graph:
        """Return the graph; see `graph`."""
        return graph(self._message)

    def named_constants(self) -> list[Constant]:
        """Return the constants sent by digest, of a model with a sound graph."""
        places = (tensor.data for tensor in self._message.all_tensors)
        return [named_constant(place.constant) for place in places if place.HasField("constant")]


def model_message(graph: Graph) -> model_pb2.Model:
    """Return the Model of a graph, with small constants inline and the others by digest."""
    message = model_pb2.Model(
        name=graph.name,
        input_index=graph.inputs,
        output_index=graph.outputs,
        nodes=[_node_message(node) for node in graph.nodes],
        all_tensors=[tensor_message(spec) for spec in graph.tensors],
    )
    for index, constant in graph.constants.items():
        place = message.all_tensors[index].data
        if constant.data is not None and constant.size_bytes <= INLINE_CONSTANT_BYTES:
            place.inline = constant.data.tobytes()
        else:
            place.constant.sha256 = constant.sha256
            place.constant.size_bytes = constant.size_bytes
    message.sub_graph.add(
        name="NNRt_SubGraph",
        input_indices=graph.inputs,
        output_indices=graph.outputs,
        node_indices=range(len(graph.nodes)),
    )
    return message


def _require_moderate(message: model_pb2.Model) -> None:
    require_moderate(len(message.all_tensors), len(message.nodes), 0, 0)  # Before the loop over them below.
    references = len(message.input_index) + len(message.output_index)
    references += sum(len(node.input_index) + len(node.output_index) for node in message.nodes)
    quant_params = sum(len(tensor.quant_params) for tensor in message.all_tensors)
    require_moderate(len(message.all_tensors), len(message.nodes), references, quant_params)


def _constant(message: model_pb2.Tensor, spec: TensorSpec) -> Constant:
    if spec.is_dynamic:
        raise InvalidParameter(f"it has data, but is {spec}; give it every dimension")
    place = message.data.WhichOneof("place")
    if place == "inline":
        return Constant.of(array_from_bytes(message.data.inline, TensorForm(spec)))
    if place == "constant":
        constant = named_constant(message.data.constant)
        if constant.size_bytes <= INLINE_CONSTANT_BYTES:
            # It may decide shapes; the support of a node must not depend on what was uploaded before.
            raise InvalidParameter(
                f"it has {constant.size_bytes} bytes and is sent by digest; send up to {INLINE_CONSTANT_BYTES} inline"
            )
        return constant
    raise InvalidParameter("its data is a region of a buffer; constants travel inline or by digest")


def named_constant(message: model_pb2.ConstantRef) -> Constant:
    """Return the constant of a ConstantRef, without data."""
    if len(message.sha256) != SHA256_BYTES:
        raise InvalidParameter(f"its digest has {len(message.sha256)} bytes; a SHA-256 has {SHA256_BYTES}")
    return Constant(message.sha256, message.size_bytes)


def _node(message: node_pb2.Node) -> Node:
    node_type = known_enum(NodeType, message.node_type, "node_type")
    field = message.WhichOneof("attr")
    if field is None:
        wanted = _ATTR_FIELD_OF_TYPE.get(node_type, "none exists")
        raise InvalidParameter(f"{node_type.name} has no attributes set; set the field {wanted}, even if it is empty")
    sent = _TYPE_OF_ATTR_FIELD[field]
    if node_type is NodeType.QUANT_DTYPE_CAST and sent is NodeType.QUANT_DTYPE_CAST_V2:
        node_type = sent  # HDI 2.1 clients label the new struct with the old number.
    if sent is not node_type:
        raise InvalidParameter(f"node_type is {node_type.name} but the attributes are those of {sent.name}")
    attrs: Message = getattr(message, field)
    return Node(
        type=node_type,
        inputs=tuple(message.input_index[:]),
        outputs=tuple(message.output_index[:]),
        attrs={descriptor.name: _attr_value(descriptor, value) for descriptor, value in attrs.ListFields()},
        name=message.name,
        quant_type=known_enum(QuantType, message.quant_type, "quant_type"),
    )


def _node_message(node: Node) -> node_pb2.Node:
    message = node_pb2.Node(
        name=node.name,
        node_type=number(node.type),
        input_index=node.inputs,
        output_index=node.outputs,
        quant_type=number(node.quant_type),
    )
    attrs: Message = getattr(message, _ATTR_FIELD_OF_TYPE[node.type])
    attrs.SetInParent()
    for name, value in node.attrs.items():
        _set_attr(attrs, name, value)
    return message


def _attr_value(descriptor: FieldDescriptor, value: Any) -> AttrValue:
    if isinstance(value, bool | int | float | str):
        return value
    count = sum(len(entry.values) for entry in value) if descriptor.message_type else 0
    require_at_most(MAX_ATTRIBUTE_VALUES, max(count, len(value)), f"values in {descriptor.name}")
    return tuple(tuple(entry.values) for entry in value) if descriptor.message_type else tuple(value)


def _set_attr(message: Message, name: str, value: AttrValue) -> None:
    if not isinstance(value, tuple):
        setattr(message, name, value)
    elif message.DESCRIPTOR.fields_by_name[name].message_type:
        for entry in value:
            getattr(message, name).add(values=entry)
    else:
        getattr(message, name).extend(value)


def model_config(message: model_pb2.ModelConfig, max_tensor_bytes: int, accepts_programs: bool = False) -> ModelConfig:
    return ModelConfig(
        enable_float16=message.enable_float16,
        mode=known_enum(PerformanceMode, message.mode, "ModelConfig.mode"),
        priority=known_enum(Priority, message.priority, "ModelConfig.priority"),
        extensions=dict(message.extensions),
        max_tensor_bytes=max_tensor_bytes,
        accepts_programs=accepts_programs,
    )


def model_config_message(config: ModelConfig) -> model_pb2.ModelConfig:
    return model_pb2.ModelConfig(
        enable_float16=config.enable_float16,
        mode=number(config.mode),
        priority=number(config.priority),
        extensions=dict(config.extensions),
    )


def batching(request: device_pb2.PrepareModelRequest | device_pb2.PrepareFromBuffersRequest) -> Batching | None:
    if not request.HasField("batching"):
        return None
    return Batching(request.batching.max_size, request.batching.max_delay_us)


def batching_message(batching: Batching | None) -> device_pb2.Batching | None:
    if batching is None:
        return None
    return device_pb2.Batching(max_size=batching.max_size, max_delay_us=batching.max_delay_us)


def supports(message: device_pb2.GetSupportedOperationReply) -> list[Support]:
    return [
        Support(note=node.note) if node.supported else Support(node.reason or "not supported") for node in message.nodes
    ]


def dim_ranges(message: prepared_model_pb2.GetInputDimRangesReply) -> list[DimRange]:
    return [DimRange(tuple(entry.min_dims), tuple(entry.max_dims)) for entry in message.inputs]


def dim_ranges_message(ranges: Sequence[DimRange]) -> prepared_model_pb2.GetInputDimRangesReply:
    return prepared_model_pb2.GetInputDimRangesReply(
        inputs=[prepared_model_pb2.DimRange(min_dims=entry.min_dims, max_dims=entry.max_dims) for entry in ranges]
    )


def origin(number: int) -> Origin:
    """Return the Origin of a model for a number in a message; COMPILED for an unknown number."""
    known = device_pb2.PreparedModelInfo.Origin
    return Origin[known.Name(number)] if number in known.values() else Origin.COMPILED


def origin_number(origin: Origin) -> Any:
    """Return the number of an Origin in messages."""
    return device_pb2.PreparedModelInfo.Origin.Value(origin.name)
