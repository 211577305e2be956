"""Conversion of a model's Tensor messages, and functions for all messages that contain tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnrt_hdi.enums import DataType, Format
from nnrt_hdi.errors import InvalidParameter, Unsupported
from nnrt_hdi.graph import require_at_most
from nnrt_hdi.packed_values import PackedSpec, ValueType
from nnrt_hdi.tensor import MAX_RANK, Array, QuantParam, Shape, TensorForm, TensorSpec
from nnrt_hdi.v2 import model_pb2
from nnrt_hdi.wire.enums import known_enum, number

# Characters of a type that messages quote.
MAX_QUOTED = 200


def tensor_spec(message: model_pb2.Tensor) -> TensorSpec:
    """Return the spec in a Tensor message of a model. Raise Unsupported for a packed value."""
    if message.HasField("value"):
        raise Unsupported(
            f"it is {message.value.type[:MAX_QUOTED]}; operators of NNRt compute with tensors of numbers only"
        )
    return TensorSpec(
        data_type=known_enum(DataType, message.data_type, "data_type"),
        shape=shape_of(message.dims),
        format=format_of(message),
        quant=tuple([QuantParam(param.scale, param.zero_point, param.num_bits or 8) for param in message.quant_params]),
        name=message.name,
    )


def end_spec(message: model_pb2.Tensor) -> TensorSpec:
    """Return the spec in a Tensor message of an input or output of a compiled model."""
    if not message.HasField("value"):
        return tensor_spec(message)
    value = message.value
    shape = shape_of(value.shape.dims) if value.HasField("shape") else None
    return PackedSpec.of(ValueType(value.type, shape), message.name)


def tensor_message(spec: TensorSpec) -> model_pb2.Tensor:
    message = model_pb2.Tensor(
        name=spec.name,
        data_type=number(spec.data_type),
        dims=spec.shape,
        format=format_number(spec),
        quant_params=[
            model_pb2.QuantParam(num_bits=param.num_bits, zero_point=param.zero_point, scale=param.scale)
            for param in spec.quant
        ],
    )
    if isinstance(spec, PackedSpec):
        message.value.type = spec.value.name
        if spec.value.shape is not None:
            message.value.shape.dims.extend(spec.value.shape)
            message.value.shape.SetInParent()
    return message


def array_from_bytes(data: bytes | memoryview, form: TensorForm) -> Array:
    """Return a read-only array over the bytes."""
    dtype = form.dtype if form.dtype is not None else form.spec.numpy_dtype
    require_size(len(data), form)
    if not data:
        data = bytes(dtype.itemsize)  # numpy makes no array of no bytes, not even an empty one.
    view: Array = np.ndarray(form.shape, dtype, data.toreadonly() if isinstance(data, memoryview) else data)
    return view


def require_size(size_bytes: int, form: TensorForm) -> None:
    """Raise InvalidParameter if the number of bytes isn't the tensor's."""
    if size_bytes != form.size_bytes:
        raise InvalidParameter(f"there are {size_bytes} bytes of data; {form.spec} has {form.spec.byte_size}")


def format_of(message: model_pb2.Tensor | model_pb2.IOTensor) -> Format:
    """Return the format in a message; NONE if it has none."""
    return known_enum(Format, message.format, "format") if message.HasField("format") else Format.NONE


def shape_of(dims: Sequence[int]) -> Shape:
    """Return the dimensions of a message. Refuses too many before it copies them."""
    require_at_most(MAX_RANK, len(dims), "dimensions")
    return tuple(dims[:])


def format_number(spec: TensorSpec) -> Any:
    """Return the number of the format for a message; None for NONE, for which messages leave the field out."""
    return None if spec.format is Format.NONE else number(spec.format)
