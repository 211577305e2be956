"""The only place where messages become values and values messages.

What comes from a message is checked here as far as a single message can be: enums are known, sizes agree, shapes hold
their bytes. Everything raises InvalidParameter with the place.
"""

import hashlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

import grpc
import numpy as np
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from grpc_status import rpc_status

from nnrt_hdi.backend import Capabilities, DeviceInfo, DeviceState, DimRange, ModelConfig, Support
from nnrt_hdi.enums import (
    DataType,
    DeviceStatus,
    DeviceType,
    Format,
    NodeType,
    PerformanceMode,
    Priority,
    QuantType,
)
from nnrt_hdi.errors import (
    ConnectionFailed,
    InvalidParameter,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    TimedOut,
    UnavailableDevice,
    UnknownHandle,
    Unsupported,
    error_class,
)
from nnrt_hdi.graph import (
    INLINE_CONSTANT_BYTES,
    MAX_ATTRIBUTE_VALUES,
    AttrValue,
    Constant,
    Graph,
    Node,
    require_at_most,
    require_moderate,
    shown_name,
)
from nnrt_hdi.run_times import RunTimes
from nnrt_hdi.tensor import MAX_RANK, Array, QuantParam, Shape, TensorSpec
from nnrt_hdi.v2 import error_pb2, model_pb2, node_pb2, prepared_model_pb2, session_pb2

# Metadata of every call but DeviceSession.Open: the session it belongs to.
SESSION_METADATA = "nnrt-session-bin"
SHA256_BYTES = 32

# Errors travel in trailers, for which gRPC takes 8 KiB by default, encoded at a third or more above their size.
_MAX_MESSAGE_BYTES = 2048
_MAX_PLACE_BYTES = 512
_MAX_STATUS_BYTES = 256

_ATTR_FIELD_OFFSET = 1000
_ATTR_FIELDS = {field.name: field for field in node_pb2.Node.DESCRIPTOR.oneofs_by_name["attr"].fields}
_ATTR_FIELD_OF_TYPE = {field.number - _ATTR_FIELD_OFFSET: name for name, field in _ATTR_FIELDS.items()}

EnumT = TypeVar("EnumT", bound=IntEnum)
ValueT = TypeVar("ValueT")


def known_enum(enum: type[EnumT], number: int, what: str) -> EnumT:
    """The enum member of a number from a message. Raises InvalidParameter naming the field and the known members."""
    try:
        return enum(number)
    except ValueError:
        known = ", ".join(f"{member.value} ({member.name})" for member in enum)
        raise InvalidParameter(f"{what} is {number}; use one of {known}") from None


def number(member: IntEnum) -> Any:
    """An enum member as a message takes it."""
    return member.value


# ---- tensors --------------------------------------------------------------------------------------------------------


def tensor_spec(message: "model_pb2.Tensor") -> TensorSpec:
    """The description in a Tensor message, without its data."""
    return TensorSpec(
        data_type=known_enum(DataType, message.data_type, "data_type"),
        shape=_shape(message.dims),
        format=_format(message),
        quant=tuple(QuantParam(param.scale, param.zero_point, param.num_bits or 8) for param in message.quant_params),
        name=message.name,
    )


def tensor_message(spec: TensorSpec) -> "model_pb2.Tensor":
    return model_pb2.Tensor(
        name=spec.name,
        data_type=number(spec.data_type),
        dims=spec.shape,
        format=_format_number(spec),
        quant_params=[
            model_pb2.QuantParam(num_bits=param.num_bits, zero_point=param.zero_point, scale=param.scale)
            for param in spec.quant
        ],
    )


def io_spec(message: "model_pb2.IOTensor") -> TensorSpec:
    """The description in an IOTensor message; all its dimensions are known."""
    spec = TensorSpec(
        known_enum(DataType, message.data_type, "data_type"),
        _shape(message.dimensions),
        _format(message),
        (),
        message.name,
    )
    if spec.is_dynamic:
        raise InvalidParameter(f"dimensions are {list(spec.shape)}; a run needs every one of them")
    return spec


def says(message: "model_pb2.IOTensor", spec: TensorSpec) -> bool:
    """Whether the message describes a tensor just as this does, which needs no further look then."""
    return (
        int(message.data_type) == spec.data_type
        and message.dimensions == list(spec.shape)
        and not spec.is_dynamic
        and (not message.HasField("format") or int(message.format) == spec.format)
    )


def array_from_bytes(data: bytes | memoryview, spec: TensorSpec) -> Array:
    """A read-only view of the bytes as the tensor they hold."""
    dtype = spec.numpy_dtype
    if len(data) != spec.byte_size:
        raise InvalidParameter(f"there are {len(data)} bytes of data; {spec} has {spec.byte_size}")
    view: Array = np.ndarray(spec.shape, dtype, data) if len(data) else np.empty(spec.shape, dtype)
    view.flags.writeable = False
    return view


def io_tensor_fields(spec: TensorSpec, array: Array) -> dict[str, Any]:
    """What an IOTensor has that carries the tensor's bytes inline, for the message that it is to be part of.

    A message that becomes part of another one is serialized and parsed for that: copies upon copies of the bytes.
    """
    return {**_io_fields(spec, array.shape), "data": {"inline": array.tobytes()}}


def io_tensor_message(spec: TensorSpec, array: Array) -> "model_pb2.IOTensor":
    """The tensor with its bytes inline, by itself."""
    return model_pb2.IOTensor(**io_tensor_fields(spec, array))


def io_described_message(spec: TensorSpec) -> "model_pb2.IOTensor":
    """The tensor without its data, and without its dimensions where some vary."""
    return model_pb2.IOTensor(
        name=spec.name,
        data_type=number(spec.data_type),
        dimensions=() if spec.is_dynamic else spec.shape,
        format=_format_number(spec),
    )


def io_region_fields(
    spec: TensorSpec, shape: Shape, size_bytes: int, region: "model_pb2.BufferRegion"
) -> dict[str, Any]:
    """What an IOTensor has whose bytes are at the start of a region of a buffer."""
    place = {"buffer_id": region.buffer_id, "offset": region.offset, "data_size": size_bytes}
    return {**_io_fields(spec, shape), "data": {"region": place}}


def io_region_message(
    spec: TensorSpec, shape: Shape, size_bytes: int, region: "model_pb2.BufferRegion"
) -> "model_pb2.IOTensor":
    """The tensor whose bytes are there, by itself."""
    return model_pb2.IOTensor(**io_region_fields(spec, shape, size_bytes, region))


def io_chunked_message(spec: TensorSpec, array: Array) -> "model_pb2.IOTensor":
    """The tensor whose bytes follow in chunks."""
    return model_pb2.IOTensor(**_io_fields(spec, array.shape), data={"chunked": array.nbytes})


def io_bare_message(spec: TensorSpec, array: Array) -> "model_pb2.IOTensor":
    """The tensor without its bytes."""
    return model_pb2.IOTensor(**_io_fields(spec, array.shape))


def io_array(message: "model_pb2.IOTensor") -> Array:
    """The tensor whose bytes are inline."""
    return array_from_bytes(message.data.inline, io_spec(message))


def _io_fields(spec: TensorSpec, shape: Sequence[int]) -> dict[str, Any]:
    return {
        "name": spec.name,
        "data_type": number(spec.data_type),
        "dimensions": shape,
        "format": _format_number(spec),
    }


def _format(message: "model_pb2.Tensor | model_pb2.IOTensor") -> Format:
    return known_enum(Format, message.format, "format") if message.HasField("format") else Format.NONE


def _shape(dims: Sequence[int]) -> Shape:
    """The dimensions, counted before they are copied."""
    require_at_most(MAX_RANK, len(dims), "dimensions")
    return tuple(dims)


def _format_number(spec: TensorSpec) -> Any:
    return None if spec.format is Format.NONE else number(spec.format)


# ---- models ---------------------------------------------------------------------------------------------------------


def graph(message: "model_pb2.Model") -> Graph:
    """The graph of a Model. Constants sent by digest come without their data."""
    _require_moderate(message)
    tensors = tuple(
        at_place(f"tensor {index}{shown_name(tensor.name)}", partial(tensor_spec, tensor))
        for index, tensor in enumerate(message.all_tensors)
    )
    constants = {
        index: at_place(f"tensor {index}{shown_name(tensor.name)}", partial(_constant, tensor, tensors[index]))
        for index, tensor in enumerate(message.all_tensors)
        if tensor.data.WhichOneof("place")
    }
    return Graph(
        tensors=tensors,
        nodes=tuple(
            at_place(f"node {index}{shown_name(node.name)}", partial(_node, node))
            for index, node in enumerate(message.nodes)
        ),
        inputs=tuple(message.input_index),
        outputs=tuple(message.output_index),
        constants=constants,
        name=message.name,
    )


class SentModel:
    """A model as a client sent it, of which most is read only when it is needed."""

    def __init__(self, message: "model_pb2.Model") -> None:
        self._message = message

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that the message says, constants sent by digest included. Equal ones are of equal graphs."""
        return hashlib.sha256(self._message.SerializeToString(deterministic=True)).digest()

    def graph(self) -> Graph:
        """See `graph`."""
        return graph(self._message)

    def named_constants(self) -> list[Constant]:
        """The constants sent by digest, of a model whose graph is known to be sound."""
        places = (tensor.data for tensor in self._message.all_tensors)
        return [named_constant(place.constant) for place in places if place.HasField("constant")]


def model_message(graph: Graph) -> "model_pb2.Model":
    """The Model of a graph: small constants inline, the others by digest."""
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


def _require_moderate(message: "model_pb2.Model") -> None:
    references = len(message.input_index) + len(message.output_index)
    references += sum(len(node.input_index) + len(node.output_index) for node in message.nodes)
    quant_params = sum(len(tensor.quant_params) for tensor in message.all_tensors)
    require_moderate(len(message.all_tensors), len(message.nodes), references, quant_params)


def _constant(message: "model_pb2.Tensor", spec: TensorSpec) -> Constant:
    if spec.is_dynamic:
        raise InvalidParameter(f"it has data, but is {spec}; give it every dimension")
    place = message.data.WhichOneof("place")
    if place == "inline":
        return Constant.of(array_from_bytes(message.data.inline, spec))
    if place == "constant":
        constant = named_constant(message.data.constant)
        if constant.size_bytes <= INLINE_CONSTANT_BYTES:
            # It may decide shapes, and then whether a node is supported must not depend on what is uploaded already.
            raise InvalidParameter(
                f"it has {constant.size_bytes} bytes and is sent by digest; send up to {INLINE_CONSTANT_BYTES} inline"
            )
        return constant
    raise InvalidParameter("its data is a region of a buffer; constants travel inline or by digest")


def named_constant(message: "model_pb2.ConstantRef") -> Constant:
    """The constant of a ConstantRef, without its data."""
    if len(message.sha256) != SHA256_BYTES:
        raise InvalidParameter(f"its digest has {len(message.sha256)} bytes; a SHA-256 has {SHA256_BYTES}")
    return Constant(message.sha256, message.size_bytes)


def _node(message: "node_pb2.Node") -> Node:
    node_type = known_enum(NodeType, message.node_type, "node_type")
    field = message.WhichOneof("attr")
    if field is None:
        wanted = _ATTR_FIELD_OF_TYPE.get(node_type, "none exists")
        raise InvalidParameter(f"{node_type.name} has no attributes set; set the field {wanted}, even if it is empty")
    sent = NodeType(_ATTR_FIELDS[field].number - _ATTR_FIELD_OFFSET)
    if node_type is NodeType.QUANT_DTYPE_CAST and sent is NodeType.QUANT_DTYPE_CAST_V2:
        node_type = sent  # HDI 2.1 clients label the new struct with the old number.
    if sent is not node_type:
        raise InvalidParameter(f"node_type is {node_type.name} but the attributes are those of {sent.name}")
    attrs = getattr(message, field)
    return Node(
        type=node_type,
        inputs=tuple(message.input_index),
        outputs=tuple(message.output_index),
        attrs={descriptor.name: _attr_value(descriptor, value) for descriptor, value in attrs.ListFields()},
        name=message.name,
        quant_type=known_enum(QuantType, message.quant_type, "quant_type"),
    )


def _node_message(node: Node) -> "node_pb2.Node":
    message = node_pb2.Node(
        name=node.name,
        node_type=number(node.type),
        input_index=node.inputs,
        output_index=node.outputs,
        quant_type=number(node.quant_type),
    )
    attrs = getattr(message, _ATTR_FIELD_OF_TYPE[node.type])
    attrs.SetInParent()
    for name, value in node.attrs.items():
        _set_attr(attrs, name, value)
    return message


def _attr_value(descriptor: Any, value: Any) -> AttrValue:
    if isinstance(value, bool | int | float | str):
        return value
    count = sum(len(entry.values) for entry in value) if descriptor.message_type else 0
    require_at_most(MAX_ATTRIBUTE_VALUES, max(count, len(value)), f"values in {descriptor.name}")
    return tuple(tuple(entry.values) for entry in value) if descriptor.message_type else tuple(value)


def _set_attr(message: Any, name: str, value: AttrValue) -> None:
    if not isinstance(value, tuple):
        setattr(message, name, value)
    elif message.DESCRIPTOR.fields_by_name[name].message_type:
        for entry in value:
            getattr(message, name).add(values=entry)
    else:
        getattr(message, name).extend(value)


def model_config(message: "model_pb2.ModelConfig", max_tensor_bytes: int) -> ModelConfig:
    return ModelConfig(
        enable_float16=message.enable_float16,
        mode=known_enum(PerformanceMode, message.mode, "ModelConfig.mode"),
        priority=known_enum(Priority, message.priority, "ModelConfig.priority"),
        extensions=dict(message.extensions),
        max_tensor_bytes=max_tensor_bytes,
    )


def model_config_message(config: ModelConfig) -> "model_pb2.ModelConfig":
    return model_pb2.ModelConfig(
        enable_float16=config.enable_float16,
        mode=number(config.mode),
        priority=number(config.priority),
        extensions=dict(config.extensions),
    )


def supports(message: "Any") -> list[Support]:
    return [Support() if node.supported else Support(node.reason or "not supported") for node in message.nodes]


def dim_ranges(message: "prepared_model_pb2.GetInputDimRangesReply") -> list[DimRange]:
    return [DimRange(tuple(entry.min_dims), tuple(entry.max_dims)) for entry in message.inputs]


def dim_ranges_message(ranges: Sequence[DimRange]) -> "prepared_model_pb2.GetInputDimRangesReply":
    return prepared_model_pb2.GetInputDimRangesReply(
        inputs=[prepared_model_pb2.DimRange(min_dims=entry.min_dims, max_dims=entry.max_dims) for entry in ranges]
    )


# ---- devices --------------------------------------------------------------------------------------------------------


def device_info(message: "session_pb2.DeviceInfo") -> DeviceInfo:
    """Who a device is. A type this version doesn't know reads as OTHER, as NNRt asks."""
    capabilities = message.capabilities
    return DeviceInfo(
        device_name=message.device_name,
        vendor_name=message.vendor_name,
        device_type=_enum_or(DeviceType.OTHER, message.device_type),
        capabilities=Capabilities(**{name: getattr(capabilities, name) for name in Capabilities.__slots__}),
        backend_name=message.backend_name,
        backend_version=message.backend_version,
    )


def run_times(reply: "prepared_model_pb2.RunReply") -> RunTimes | None:
    """Where the time of a run went, if its daemon says so."""
    if not reply.HasField("times"):
        return None
    times = reply.times
    return RunTimes(times.queued_ns, times.copied_in_ns, times.computed_ns, times.copied_out_ns)


def fill_run_times(message: "prepared_model_pb2.RunTimes", times: RunTimes) -> None:
    message.queued_ns, message.copied_in_ns, message.computed_ns, message.copied_out_ns = times


def device_status(number: int) -> DeviceStatus:
    """A status this version doesn't know reads as UNKNOWN."""
    return _enum_or(DeviceStatus.UNKNOWN, number)


def device_state(message: "session_pb2.DeviceState") -> DeviceState:
    return DeviceState(
        status=device_status(message.status),
        is_draining=message.draining,
        running=message.running,
        queued=message.queued,
        held_bytes=message.held_bytes,
        sessions=message.sessions,
    )


def device_info_message(info: DeviceInfo) -> "session_pb2.DeviceInfo":
    return session_pb2.DeviceInfo(
        device_name=info.device_name,
        vendor_name=info.vendor_name,
        device_type=number(info.device_type),
        capabilities=session_pb2.Capabilities(
            **{name: getattr(info.capabilities, name) for name in Capabilities.__slots__}
        ),
        backend_name=info.backend_name,
        backend_version=info.backend_version,
    )


def _enum_or(fallback: EnumT, number: int) -> EnumT:
    members = type(fallback).__members__.values()
    return next((member for member in members if member == number), fallback)


# ---- errors ---------------------------------------------------------------------------------------------------------

# What a bare gRPC status means, where no ErrorDetail says more.
_ERROR_OF_STATUS: dict[grpc.StatusCode, type[NnrtError]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableDevice,
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OutOfMemory,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidParameter,
    grpc.StatusCode.OUT_OF_RANGE: InvalidParameter,
    grpc.StatusCode.FAILED_PRECONDITION: OperationForbidden,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
    grpc.StatusCode.NOT_FOUND: UnknownHandle,
    grpc.StatusCode.UNAUTHENTICATED: ConnectionFailed,
    grpc.StatusCode.PERMISSION_DENIED: ConnectionFailed,
}


def error_detail(error: NnrtError) -> "error_pb2.ErrorDetail":
    return error_pb2.ErrorDetail(
        code=number(error.code),
        message=shortened(error.message, _MAX_MESSAGE_BYTES),
        place=shortened(error.place, _MAX_PLACE_BYTES),
    )


def error_from_detail(detail: "error_pb2.ErrorDetail") -> NnrtError:
    return error_class(detail.code)(detail.message, place=detail.place)


def rich_status(error: NnrtError) -> "grpc.Status":
    """The error as a status to abort a call with."""
    status = status_pb2.Status(
        code=grpc.StatusCode[error.grpc_status].value[0], message=shortened(str(error), _MAX_STATUS_BYTES)
    )
    status.details.add().Pack(error_detail(error))
    return rpc_status.to_status(status)


def shortened(text: str, most_bytes: int) -> str:
    """The text if its UTF-8 is no longer than that, else its beginning and its end."""
    data = text.encode(errors="backslashreplace")
    if len(data) <= most_bytes:
        return data.decode()
    half = (most_bytes - 5) // 2
    return f"{data[:half].decode(errors='ignore')} ... {data[-half:].decode(errors='ignore')}"


def error_detail_of(call: "grpc.Call") -> NnrtError | None:
    """The error that a daemon put into a failed call; None where the failure is gRPC's own, or can't be read."""
    try:
        status = rpc_status.from_call(call)
        for entry in status.details if status else ():
            detail = error_pb2.ErrorDetail()
            if entry.Unpack(detail):
                return error_from_detail(detail)
    except (ValueError, DecodeError):
        return None
    return None


def error_of_status(call: "grpc.Call") -> NnrtError:
    """What a failed call without an error of the daemon means."""
    return _ERROR_OF_STATUS.get(call.code(), OperationFailed)(f"{call.code().name}: {call.details()}")


# ---- places
# -----------------------------------------------------------------------------------------------------------


def at_place(place: str, convert: Callable[[], ValueT]) -> ValueT:
    """Convert, naming the place in whatever goes wrong."""
    try:
        return convert()
    except NnrtError as error:
        raise error.at(place) from error
