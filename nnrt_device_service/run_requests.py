"""A run from its message to its answer, however the two travel."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nnrt_device_service.arrivals import announced
from nnrt_device_service.device import Device, require_input_count, require_output_places
from nnrt_device_service.session import Session
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.chunks import beyond_inline, pieces
from nnrt_hdi.errors import InvalidParameter, NnrtError, OutOfMemory
from nnrt_hdi.run_codec import VIEWED_BYTES, Incoming, reply_chunk, with_tensors
from nnrt_hdi.tensor import Array, TensorSpec, flat_bytes
from nnrt_hdi.v2 import prepared_model_pb2


class Answer:
    """What a run gave: its outputs, of which some may be in their regions already, and where its time went."""

    __slots__ = ("_chunked", "_message_bytes", "_regions", "_times", "outputs", "specs")

    def __init__(
        self,
        specs: Sequence[TensorSpec],
        outputs: Sequence[Array],
        regions: Mapping[int, Any],
        times: Any,
        message_bytes: int,
    ) -> None:
        self.specs = specs
        self.outputs = outputs
        self._regions = regions
        self._times = times
        self._chunked: set[int] = set()
        self._message_bytes = message_bytes

    @property
    def size_bytes(self) -> int:
        """Length of the outputs that are in no region."""
        return sum(self._sizes())

    @property
    def chunked_bytes(self) -> int:
        """Length of those that follow the reply in chunks."""
        return sum(self.outputs[index].nbytes for index in self._chunked)

    def fit(self, *, in_chunks: bool) -> None:
        """Have no message be too long. Raises OutOfMemory where that takes chunks and they aren't wanted."""
        if in_chunks:
            self._chunked = beyond_inline(self._sizes(), self._message_bytes)
        elif (size_bytes := self.size_bytes) > self._message_bytes:
            raise OutOfMemory(
                f"the outputs have {size_bytes} bytes, a message at most {self._message_bytes};"
                " take large outputs in chunks, or have them written to a buffer"
            )

    def messages(self) -> Iterator[Any]:
        """The RunReply, with outputs inline that are in no region and not too long, and the chunks of the others."""
        yield self.message()
        outputs = (np.ascontiguousarray(self.outputs[index]) for index in sorted(self._chunked))
        yield from map(reply_chunk, pieces(outputs, self._message_bytes))

    def message(self) -> Any:
        """The RunReply."""
        reply = prepared_model_pb2.RunReply()
        if not self._chunked and self.size_bytes < VIEWED_BYTES:
            self.fill(reply)
            return reply
        reply.times.CopyFrom(self._times)
        return with_tensors(reply, [self._tensor(*output) for output in enumerate(self.outputs)])

    def fill(self, reply: Any) -> None:
        """The same, into an empty RunReply, with all outputs inline that are in no region."""
        reply.times.CopyFrom(self._times)
        for index, (spec, array) in enumerate(zip(self.specs, self.outputs, strict=True)):
            if (region := self._regions.get(index)) is not None:
                reply.outputs.append(wire.io_region_message(spec, array.shape, region))
            else:
                reply.outputs.add(**wire.io_tensor_fields(spec, array))

    def _tensor(self, index: int, array: Array) -> tuple[Any, Array | None]:
        spec = self.specs[index]
        if (region := self._regions.get(index)) is not None:
            return wire.io_region_message(spec, array.shape, region), None
        if index in self._chunked:
            return wire.io_chunked_message(spec, array), None
        return wire.io_bare_message(spec, array), np.ascontiguousarray(array)

    def _sizes(self) -> list[int]:
        return [0 if index in self._regions else array.nbytes for index, array in enumerate(self.outputs)]


class Said:
    """A reply that is a message already."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    @property
    def size_bytes(self) -> int:
        return self._reply.ByteSize()  # type: ignore[no-any-return]

    def messages(self) -> Iterator[Any]:
        yield self._reply


def refusal(error: NnrtError) -> Said:
    """The reply of a run that gave nothing."""
    return Said(prepared_model_pb2.RunReply(error=wire.error_detail(error)))


class RunRequests:
    """Runs what RunRequests ask for."""

    def __init__(self, device: Device, message_bytes: int) -> None:
        self._device = device
        self._message_bytes = message_bytes

    def answer(
        self, session: Session, request: Any, cancellation: Cancellation, arrived: Mapping[int, Array] | None = None
    ) -> Answer:
        """Run when its turn comes. `arrived` has the inputs that came beside the message.

        Raises what `Device.run` raises, and InvalidParameter or UnknownHandle for a request that makes no sense.
        """
        began = time.perf_counter_ns()
        # Counted before they are made: a message holds millions of empty ones.
        prepared = session.model(request.model_id).prepared
        require_input_count(prepared.inputs, len(request.inputs))
        if request.outputs:
            require_output_places(prepared.outputs, [_room(place.data) for place in request.outputs])
        inputs, copied_bytes = [], 0
        for index, tensor in enumerate(request.inputs):
            if arrived and index in arrived:
                inputs.append(arrived[index])
                continue
            array = _input(session, index, tensor)
            inputs.append(array)
            # Copied, because the client may go on writing. Each may name the same gigabyte, so the copies count.
            copied_bytes += array.nbytes if tensor.data.HasField("region") else 0
        with session.budget.lent(copied_bytes):
            for index, tensor in enumerate(request.inputs):
                if copied_bytes and tensor.data.HasField("region"):
                    inputs[index] = _frozen_copy(inputs[index])
            ready = time.perf_counter_ns()
            ran = self._device.run(session, request.model_id, inputs, cancellation)
        done = time.perf_counter_ns()
        regions = {
            index: _into_region(session, place.data.region, ran.outputs[index])
            for index, place in enumerate(request.outputs)
            if place.data.HasField("region") and ran.outputs[index].nbytes <= place.data.region.data_size
        }
        times = prepared_model_pb2.RunTimes(
            queued_ns=ran.queued_ns,
            copied_in_ns=ready - began,
            computed_ns=ran.computed_ns,
            copied_out_ns=time.perf_counter_ns() - done,
        )
        return Answer(ran.specs, ran.outputs, regions, times, self._message_bytes)

    def arrived(
        self,
        session: Session,
        request: Incoming,
        chunks: Iterator[memoryview | bytes],
        cancellation: Cancellation,
        hang_up: Callable[[], object],
    ) -> dict[int, Array]:
        """The inputs that come beside a message: those taken out of it, and those in chunks.

        Raises as `Arrivals.received`, and InvalidParameter or UnknownHandle for what can't be inputs.
        """
        message = request.message
        specs = session.model(message.model_id).prepared.inputs
        require_input_count(specs, len(message.inputs))
        chunked = [index for index, tensor in enumerate(message.inputs) if tensor.data.HasField("chunked")]
        inline = arrived_inline(request)
        if not chunked:
            return inline
        wanted = {
            index: announced(specs, index, wire.io_spec(message.inputs[index]), message.inputs[index].data.chunked)
            for index in chunked
        }
        return inline | session.arrivals.received(wanted, chunks, cancellation, hang_up)


def arrived_inline(request: Incoming) -> dict[int, Array]:
    """The large inputs that came in the message itself. Raises InvalidParameter."""
    return request.arrays(request.message.inputs, "input")


def _input(session: Session, index: int, tensor: Any) -> Array:
    return wire.at_place(
        f"input {index}", lambda: wire.array_from_bytes(sent_bytes(session, tensor.data), wire.io_spec(tensor))
    )


def sent_bytes(session: Session, buffer: Any) -> bytes | memoryview:
    """The bytes of a SharedBuffer, where they are. Raises InvalidParameter or UnknownHandle."""
    match buffer.WhichOneof("place"):
        case "inline":
            return buffer.inline  # type: ignore[no-any-return]
        case "region":
            region = buffer.region
            return session.buffers.region(region.buffer_id, region.offset, region.data_size)
        case "constant":
            raise InvalidParameter("data by digest is only for constants of a model; send it inline or in a buffer")
        case "chunked":
            raise InvalidParameter("data in chunks is only for RunStream; send it inline or in a buffer")
        case _:
            raise InvalidParameter("it has no data; send it inline or in a buffer")


def _frozen_copy(array: Array) -> Array:
    copy: Array = array.copy()
    copy.flags.writeable = False
    return copy


def _room(place: Any) -> int | None:
    """Bytes of the region for an output, None for one that is to come back inline."""
    return place.region.data_size if place.HasField("region") else None


def _into_region(session: Session, region: Any, output: Array) -> Any:
    view = session.buffers.writable_region(region.buffer_id, region.offset, region.data_size)
    view[: output.nbytes] = flat_bytes(output)
    return region
