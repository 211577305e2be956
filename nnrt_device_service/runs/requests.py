"""Requests of the unary RPC `Run`, converted to runs."""

from functools import partial

import numpy as np

from nnrt_device_service.runs.frames import PLACEHOLDER, describe_input, require_count
from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.descriptions import INLINE, REGION, DescribedInput, DescribedOutput, Description
from nnrt_device_service.sessions.session import Session
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import Array, TensorForm
from nnrt_hdi.v2.model_pb2 import BufferRegion, IOTensor, SharedBuffer
from nnrt_hdi.v2.prepared_model_pb2 import RunRequest


def read_run(session: Session, request: RunRequest, cancellation: Cancellation, received_at_ns: int) -> Run:
    """Return the run that a message asks for.

    Raises InvalidParameter or UnknownHandle if the request is invalid, and OperationForbidden if it may not be on
    behalf of another identity.
    """
    model = session.models.get(request.model_id) or session.model(request.model_id)
    require_count("inputs", len(request.inputs), len(model.inputs))  # Before the loop: there may be millions.
    if request.outputs:
        require_count("regions for outputs", len(request.outputs), len(model.outputs))
    run = Run(session, 0, cancellation, received_at_ns)
    regions: list[BufferRegion] = []
    inputs = []
    for index, (tensor, form) in enumerate(zip(request.inputs, model.inputs, strict=True)):
        data = wire.at_place(f"input {index}", partial(_read_inline, tensor))
        named = f"input {index}" + (f" {form.name!r}" if form.name else "")
        described, array = wire.at_place(named, partial(_read_input, form, tensor, data))
        if described.place == REGION:
            regions.append(tensor.data.region)
        inputs.append(described)
        run.inputs.append(array)
    outputs = [DescribedOutput((), None, INLINE, is_open=True)] * len(model.outputs)
    for index, tensor in enumerate(request.outputs):
        if tensor.data.HasField("region"):
            regions.append(tensor.data.region)
            outputs[index] = DescribedOutput((), None, REGION, is_open=True)
    run.regions = [number for each in regions for number in (each.buffer_id, each.offset, each.data_size)]
    served = session.served.find(request.on_behalf_of, session.identity)
    run.payer = served or session
    run.description = Description(
        request.model_id, model, inputs, outputs, request.traceparent, request.profile, served
    )
    run.model = model
    return run


def _read_inline(tensor: IOTensor) -> bytes | None:
    """Return the inline bytes of an input, or None if it lies in a region.

    Raises InvalidParameter if their number isn't that of the input's data type and dimensions.
    """
    spec = wire.io_spec(tensor)
    if spec.data_type is DataType.UNKNOWN:
        raise InvalidParameter("the data type is UNKNOWN; give one")
    size_bytes = spec.byte_size
    if tensor.data.HasField("region"):
        return None
    data = inline_bytes(tensor.data)
    if len(data) != size_bytes:
        raise InvalidParameter(f"there are {len(data)} bytes of data; {spec} has {size_bytes}")
    return data


def _read_input(form: TensorForm, tensor: IOTensor, data: bytes | None) -> tuple[DescribedInput, Array]:
    place = INLINE if data is not None else REGION
    described = describe_input(form, tensor.data_type, tuple(tensor.dimensions), place)
    if data is None:
        return described, PLACEHOLDER
    # numpy makes no array from an empty buffer, not even an empty one.
    return described, np.ndarray(described.shape, described.dtype, data or bytes(described.dtype.itemsize))


def inline_bytes(buffer: SharedBuffer) -> bytes:
    """Return the inline bytes of a SharedBuffer; raise InvalidParameter if it has none."""
    match buffer.WhichOneof("place"):
        case "inline":
            return buffer.inline
        case "constant":
            raise InvalidParameter("data by digest is only for constants of a model; send it inline or in a buffer")
        case "chunked":
            raise InvalidParameter("data in chunks is only for RunStream; send it inline or in a buffer")
        case _:
            raise InvalidParameter("it has no data; send it inline or in a buffer")
