"""Conversion of packets to runs: parsing of the frames, and of the run descriptions in them."""

import math
import struct
import time

import numpy as np
from google.protobuf.message import DecodeError

from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.descriptions import (
    CHUNKS,
    INLINE,
    NOWHERE,
    REGION,
    SEQUENCE,
    DescribedInput,
    DescribedOutput,
    Description,
)
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.sequences import Keeping
from nnrt_hdi.tensor import NUMPY_DTYPES, UNKNOWN_DIM, Array, Shape, TensorForm, format_shape
from nnrt_hdi.v2.prepared_model_pb2 import RunDescription, TensorDescription
from nnrt_hdi.wire.counts import require_moderate
from nnrt_hdi.wire.enums import known_enum
from nnrt_hdi.wire.packet import REGION_BYTES, REQUEST_MARK, Bytes, frames_of, padded, request_head
from nnrt_hdi.wire.tensors import shape_of

# Most bytes of a frame, whose length field has four bytes.
_MOST_BYTES = (1 << 32) - 8
_OUTPUT_PLACES = (INLINE, REGION, NOWHERE)

_head_bytes = request_head.size


def read_runs(session: Session, packet: Bytes, received_at_ns: int, *, takes_chunks: bool = False) -> list[Run]:
    """Return the runs of a packet, in order.

    With `takes_chunks`, inputs of a run may follow the packet in chunks if the packet has only one frame. An error in
    one frame becomes the error of its run. Raises InvalidParameter if the packet can't be cut into frames.
    """
    size = len(packet)
    is_one = size >= _head_bytes and packet[4:8] == size.to_bytes(4, "little")
    frames = ((0, size),) if is_one else frames_of(REQUEST_MARK, packet)
    runs = []
    for begin, end in frames:
        mark, _, run_id, timeout_ms, number, description_bytes = request_head.unpack_from(packet, begin)
        if mark != REQUEST_MARK or size & 7:
            frames_of(REQUEST_MARK, packet)  # Raises an error that says what is wrong.
        cancellation = Cancellation(time.monotonic() + timeout_ms / 1000 if timeout_ms else None)
        cancellation.timeout_ms = timeout_ms
        run = Run(session, run_id, cancellation, received_at_ns)
        runs.append(run)
        try:
            at = begin + _head_bytes
            if description_bytes:
                description = _read_description(session, number, packet, at, description_bytes, end)
                at += padded(description_bytes)
            elif (kept := session.descriptions.get(number)) is not None:
                description = kept
            else:
                run.is_unknown, run.error = True, InvalidParameter(f"no description {number} is kept; send it")
                continue
            run.description, run.model = description, description.model
            if description.served is not None:
                run.payer = description.served
            layout = description.layout
            shift = at - _head_bytes
            if end - shift != layout.request_bytes:
                raise InvalidParameter(
                    f"a frame has {end - begin} bytes; by its description it has {layout.request_bytes + shift - begin}"
                )
            for shape, dtype, offset in description.inline:
                run.inputs.append(np.ndarray(shape, dtype, packet, shift + offset))
            if description.has_chunks and not (takes_chunks and len(frames) == 1):
                raise InvalidParameter("inputs in chunks are only for a frame that is alone in a message of RunStream")
            if description.has_regions or description.has_chunks or description.is_of_sequence:
                _read_regions(run, description, packet, at)
        except Exception as error:
            run.error = error
    return runs


def _read_regions(run: Run, description: Description, packet: Bytes, at: int) -> None:
    """Read the regions of a frame, at offset `at`, and put placeholders for inputs that are not inline."""
    layout, end = description.layout, at + description.layout.regions_bytes
    if description.has_regions or description.is_of_sequence:
        run.regions = layout.read_regions(packet, at)
    if description.is_of_sequence:  # Where the last region would be.
        *run.regions, run.sequence_id, run.operation, _ = run.regions
        end -= REGION_BYTES
    if description.has_regions:
        run.regions_key = bytes(packet[at:end])
    inline, run.inputs = iter(run.inputs), []
    for tensor in description.inputs:
        run.inputs.append(next(inline) if tensor.place == INLINE else PLACEHOLDER)


# Placeholder of an input that comes from a region or in chunks.
PLACEHOLDER: Array = np.empty(0, np.uint8)


def _read_description(session: Session, number: int, packet: Bytes, at: int, size: int, end: int) -> Description:
    """Return the description in a frame, and keep it under its number.

    Raises InvalidParameter, UnknownHandle, and OperationForbidden for a run on behalf of another identity.
    """
    if at + size > end:
        raise InvalidParameter(f"a description of {size} bytes passes the end of its frame")
    data = bytes(packet[at : at + size])
    require_moderate(data, RunDescription)
    try:
        message = RunDescription.FromString(data)
    except DecodeError as error:
        raise InvalidParameter(f"the description can't be decoded: {error}") from error
    description = read_description(session, message)
    model_id, model = description.model_id, description.model
    too_long = InvalidParameter(f"the tensors are too long for a frame, of at most {_MOST_BYTES} bytes")
    try:
        description.lay_out()
    except struct.error as error:
        raise too_long from error
    if max(description.layout.request_bytes, description.layout.reply_bytes) > _MOST_BYTES:
        raise too_long
    is_kept = number and not (description.has_chunks or message.traceparent or message.profile)
    if is_kept:
        session.descriptions.keep(number, description)
        if session.models.get(model_id) is not model:  # Another thread has released the model meanwhile.
            session.descriptions.forget(model)
    return description


def read_description(session: Session, message: RunDescription) -> Description:
    """Return the description in a message, without a layout of frames. Raises as `_read_description`."""
    model_id = message.model_id
    model = session.models.get(model_id) or session.model(model_id)
    require_count("inputs", len(message.inputs), len(model.inputs))
    require_count("outputs", len(message.outputs), len(model.outputs))
    inputs, outputs = list[DescribedInput](), list[DescribedOutput]()
    try:
        for tensor, form in zip(message.inputs, model.inputs, strict=True):
            if tensor.place == SEQUENCE:
                inputs.append(_read_value(form, tensor))
            else:
                inputs.append(describe_input(form, tensor.data_type, tuple(tensor.dimensions[:]), tensor.place))
        for tensor, form in zip(message.outputs, model.outputs, strict=True):
            outputs.append(_read_output(form, tensor))
    except InvalidParameter as error:
        is_input = len(inputs) < len(model.inputs)
        what, index = ("input", len(inputs)) if is_input else ("output", len(outputs))
        raise error.at(f"{what} {index}" + (f" {form.name!r}" if form.name else "")) from error
    made = [tensor.value for tensor in message.outputs if tensor.value]
    if len(set(made)) < len(made):
        raise InvalidParameter(f"outputs become the values {made}; give each a number of its own")
    served = session.served.find(message.on_behalf_of, session.identity)
    return Description(model_id, model, inputs, outputs, message.traceparent, message.profile, served)


def describe_input(form: TensorForm, data_type: int, shape: Shape, place: int) -> DescribedInput:
    """Return the description of a client's input; raise InvalidParameter if the model doesn't take such an input."""
    if data_type == form.data_type and form.dtype is not None:
        if place == INLINE and _fits(shape, form.shape):
            return DescribedInput(form, shape, form.dtype, math.prod(shape) * form.dtype.itemsize, place)
        if REGION <= place <= CHUNKS and (found := form.of_run(shape)) is not None:
            return DescribedInput(found, shape, form.dtype, found.size_bytes, place)
    sent = known_enum(DataType, data_type, "data_type")
    if not INLINE <= place <= CHUNKS:
        raise InvalidParameter(f"place is {place}; give one of an input")
    raise InvalidParameter(f"it is {sent.name.lower()}{format_shape(shape_of(shape))}; the model takes {form.spec}")


def _read_value(form: TensorForm, tensor: TensorDescription) -> DescribedInput:
    """Return the description of an input in the run's sequence, whose shape is known when the run's turn has come."""
    if not tensor.value:
        raise InvalidParameter("it is in the run's sequence, but value is 0; give the number of a value, from 1 on")
    dtype = form.dtype if form.dtype is not None else np.dtype(np.uint8)
    return DescribedInput(form, (), dtype, 0, SEQUENCE, tensor.value)


def _read_keeping(form: TensorForm, tensor: TensorDescription) -> Keeping | None:
    """Return how an output becomes a value, or None if it becomes none; raise InvalidParameter if it can't."""
    if not tensor.value:
        return None
    if (tensor.appends or tensor.window) and tensor.axis >= len(form.shape):
        raise InvalidParameter(f"axis is {tensor.axis}; the output has rank {len(form.shape)}")
    return Keeping(tensor.value, tensor.appends, tensor.axis, tensor.window)


def _read_output(form: TensorForm, tensor: TensorDescription) -> DescribedOutput:
    """Return the output that a client expects; raise InvalidParameter if the model can't give such an output."""
    place, data_type, dtype = tensor.place, tensor.data_type, form.dtype
    if place not in _OUTPUT_PLACES:
        raise InvalidParameter(f"place is {place}; give one of an output")
    keeping = _read_keeping(form, tensor)
    if tensor.is_open or place == NOWHERE:
        return DescribedOutput((), None, place, 0, tensor.is_open, keeping)
    shape = tuple(tensor.dimensions[:])
    if dtype is None:  # The model doesn't declare it.
        dtype = NUMPY_DTYPES.get(known_enum(DataType, data_type, "data_type"))
    elif data_type != form.data_type:
        dtype = None
    if dtype is None or not _fits(shape, form.shape):
        raise InvalidParameter(
            f"it is expected to be of type {data_type}, {format_shape(shape)}; the model gives {form.spec}"
        )
    return DescribedOutput(shape, dtype, place, math.prod(shape) * dtype.itemsize, keeping=keeping)


def _fits(shape: Shape, declared: Shape) -> bool:
    if shape == declared:
        return UNKNOWN_DIM not in shape
    if len(shape) != len(declared):
        return False
    for given, known in zip(shape, declared, strict=True):  # A generator expression takes three times as long.
        if given != known and (known != UNKNOWN_DIM or given < 0):
            return False
    return True


def require_count(what: str, count: int, expected: int) -> None:
    """Raise InvalidParameter if the number of tensors is not that of the model."""
    if count != expected:
        has = "takes" if what == "inputs" else "has"
        raise InvalidParameter(f"{count} {what} were given; the model {has} {expected}")
