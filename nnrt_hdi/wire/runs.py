"""Messages of runs: IOTensor, TensorDescription, operator times."""

from collections.abc import Sequence

from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import MAX_OPERATOR_TIMES, OPERATOR_NAME_BYTES
from nnrt_hdi.operator_times import Besides, OperatorTime
from nnrt_hdi.tensor import Array, TensorForm, TensorSpec
from nnrt_hdi.v2 import model_pb2, prepared_model_pb2
from nnrt_hdi.wire.enums import known_enum, number
from nnrt_hdi.wire.errors import shortened
from nnrt_hdi.wire.tensors import array_from_bytes, format_number, format_of, shape_of

# Bytes of a message reserved for each operator: several times what one needs.
_BYTES_PER_OPERATOR = 2048


def io_spec(message: model_pb2.IOTensor) -> TensorSpec:
    """Return the spec in an IOTensor, whose dimensions are all known."""
    data_type, shape = known_enum(DataType, message.data_type, "data_type"), shape_of(message.dimensions)
    return _of_run(TensorSpec(data_type, shape, format_of(message), (), message.name))


def described_spec(message: prepared_model_pb2.TensorDescription) -> TensorSpec:
    """Return the spec in a TensorDescription, whose dimensions are all known."""
    return _of_run(TensorSpec(known_enum(DataType, message.data_type, "data_type"), shape_of(message.dimensions)))


def _of_run(spec: TensorSpec) -> TensorSpec:
    if spec.is_dynamic:
        raise InvalidParameter(f"dimensions are {list(spec.shape)}; a run needs every one of them")
    return spec


def described_form(message: prepared_model_pb2.TensorDescription, form: TensorForm) -> TensorForm | None:
    """Return a tensor's form in a run by its description, or None if it differs from the expected form."""
    if message.data_type != form.data_type:
        return None
    dims, latest = message.dimensions, form.latest
    if latest is not None and dims == latest.dims:
        return latest
    return form.of_run(tuple(dims)) if len(dims) == len(form.dims) else None


def io_tensor_message(spec: TensorSpec, array: Array) -> model_pb2.IOTensor:
    """Return an IOTensor with the bytes inline."""
    return model_pb2.IOTensor(
        name=spec.name,
        data_type=number(spec.data_type),
        dimensions=array.shape,
        format=format_number(spec),
        data=model_pb2.SharedBuffer(inline=array.tobytes()),
    )


def io_array(message: model_pb2.IOTensor) -> Array:
    """Return the array of an IOTensor with inline bytes."""
    return array_from_bytes(message.data.inline, TensorForm(io_spec(message)))


def operator_times(reply: prepared_model_pb2.RunReply | prepared_model_pb2.RunOutcome) -> list[OperatorTime]:
    """Return the operator times in a reply."""
    return [
        (Besides if one.is_besides else OperatorTime)(one.name, one.operator, one.began_ns, one.took_ns)
        for one in reply.operator_times
    ]


def add_operator_times(
    reply: prepared_model_pb2.RunReply | prepared_model_pb2.RunOutcome,
    times: Sequence[OperatorTime],
    message_bytes: int,
) -> None:
    """Add operator times to a RunReply: as many of the first ones as need a small part of a message."""
    most = min(MAX_OPERATOR_TIMES, message_bytes // _BYTES_PER_OPERATOR)
    for one in times[:most]:
        name, operator = (shortened(text, OPERATOR_NAME_BYTES) for text in (one.name, one.operator))
        reply.operator_times.add(
            name=name,
            operator=operator,
            began_ns=max(one.began_ns, 0),
            took_ns=max(one.took_ns, 0),
            is_besides=isinstance(one, Besides),
        )
