"""Messages of gRPC as requests, and responses as bytes of messages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from typing_extensions import Buffer

from nnrt_client.serving.datatypes import BYTES, Array, element_count, from_bytes, object_array, require_dtype, to_bytes
from nnrt_client.serving.grpc.raw_contents import split
from nnrt_client.serving.intake import Held
from nnrt_client.serving.parameters import read_shared, told_region, wanted_output
from nnrt_client.serving.requests import InferRequest, InferResponse, InputTensor, Parameter
from nnrt_client.serving.shared_memory import SharedMemory
from nnrt_client.serving.wire import open_inference_pb2 as pb
from nnrt_hdi.errors import InvalidParameter

# Fields of typed contents by data type. Others travel as raw contents only.
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
_RAW = pb.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER


def request_of(data: bytes, memory: SharedMemory, held: Held, timeout_s: float | None) -> InferRequest:
    """Return the request in the bytes of a ModelInferRequest.

    Raises:
        InvalidParameter: It is no message, or its tensors are wrong.
        InvalidPath: It names an unknown region of shared memory.
        TooLarge: It has too many bytes.
        Busy: All requests together have too many.
    """
    held.take(len(data))
    head, contents = split(data)
    try:
        message = pb.ModelInferRequest.FromString(head)
    except DecodeError as error:
        raise InvalidParameter(f"the request is no ModelInferRequest: {error}") from error
    return InferRequest(
        message.model_name,
        message.model_version,
        message.id,
        _inputs(message, contents or message.raw_input_contents, memory, held),
        [wanted_output(output.name, parameters_of(output.parameters), memory) for output in message.outputs],
        parameters_of(message.parameters),
        timeout_s=timeout_s,
    )


def parameters_of(given: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return parameters as plain values. Raises InvalidParameter for one without a value."""
    return {name: _parameter(name, one) for name, one in given.items()}


def bytes_of(response: InferResponse) -> bytes:
    """Return the bytes of a ModelInferResponse. The elements are copied once."""
    head = pb.ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    for name, parameter in response.parameters.items():
        _set_parameter(head.parameters[name], parameter)
    raw: list[Buffer] = []
    for output in response.outputs:
        told = head.outputs.add(name=output.wanted.name, datatype=output.datatype, shape=output.shape)
        if output.array is None:
            for name, parameter in told_region(output).items():
                _set_parameter(told.parameters[name], parameter)
        else:
            data = to_bytes(output.array)
            raw += (field_head(_RAW, memoryview(data).nbytes), data)
    return b"".join((head.SerializeToString(), *raw))


def field_head(field: int, size_bytes: int) -> bytes:
    """Return what is in front of a field with so many bytes, of a number below 16: its tag and its length.

    Protobuf writes a length with 7 bits in each byte, least first.
    """
    head = bytearray([field << 3 | 2])
    while size_bytes > 0x7F:
        head.append(size_bytes & 0x7F | 0x80)
        size_bytes >>= 7
    head.append(size_bytes)
    return bytes(head)


def _inputs(
    message: pb.ModelInferRequest, contents: Sequence[Buffer], memory: SharedMemory, held: Held
) -> list[InputTensor]:
    raw, is_raw = iter(contents), bool(contents)
    inputs = []
    for tensor in message.inputs:
        place, shape = f"input {tensor.name!r}", tuple(tensor.shape)
        shared = read_shared(parameters_of(tensor.parameters), memory, held, place)
        if shared is not None:
            array = from_bytes(tensor.datatype, shape, shared, place)
        elif not is_raw:
            array = _typed(tensor, shape, place)
        elif tensor.HasField("contents"):
            raise InvalidParameter(
                "it has contents although the request has raw contents; use one of them", place=place
            )
        elif (data := next(raw, None)) is None:
            raise InvalidParameter("its raw contents are missing", place=place)
        else:
            array = from_bytes(tensor.datatype, shape, data, place)
        inputs.append(InputTensor(tensor.name, tensor.datatype, array))
    if next(raw, None) is not None:
        raise InvalidParameter("there are more raw contents than inputs without shared memory")
    return inputs


def _typed(tensor: Any, shape: Sequence[int], place: str) -> Array:
    count, field = element_count(tensor.datatype, shape, place), _CONTENTS.get(tensor.datatype)
    if field is None:
        require_dtype(tensor.datatype, place)
        raise InvalidParameter(f"{tensor.datatype} travels as raw contents only", place=place)
    for other, _ in tensor.contents.ListFields():
        if other.name != field:
            raise InvalidParameter(f"it has {other.name}; {tensor.datatype} takes {field}", place=place)
    elements = getattr(tensor.contents, field)
    if len(elements) != count:
        raise InvalidParameter(f"it has {len(elements)} elements; its shape takes {count}", place=place)
    if tensor.datatype == BYTES:
        return object_array(elements).reshape(shape)
    dtype, array = require_dtype(tensor.datatype, place), np.array(elements)
    if dtype.kind in "iu" and array.size:
        bounds = np.iinfo(dtype)
        if array.min() < bounds.min or array.max() > bounds.max:
            raise InvalidParameter(
                f"elements from {array.min()} to {array.max()} are no {tensor.datatype}", place=place
            )
    return array.astype(dtype).reshape(shape)


def _parameter(name: str, one: Any) -> Parameter:
    kind = one.WhichOneof("parameter_choice")
    if kind is None:
        raise InvalidParameter(f"the parameter {name!r} has no value that this server knows")
    value: Parameter = getattr(one, kind)
    return value


def _set_parameter(told: Any, value: Parameter) -> None:
    match value:
        case bool():
            told.bool_param = value
        case int():
            if value < 1 << 63:
                told.int64_param = value
            else:
                told.uint64_param = value
        case float():
            told.double_param = value
        case str():
            told.string_param = value
