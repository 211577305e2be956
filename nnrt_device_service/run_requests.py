"""A run from its message to its answer, however the two travel."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nnrt_device_service.arrivals import announced
from nnrt_device_service.device import Device, require_input_count, require_output_places
from nnrt_device_service.session import Session
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.chunks import beyond_inline, pieces
from nnrt_hdi.compression import INLINE_BYTES
from nnrt_hdi.errors import InvalidParameter, NnrtError, OutOfMemory
from nnrt_hdi.run_codec import VIEWED_BYTES, Incoming, compressed_reply_chunk, reply_chunk, with_tensors
from nnrt_hdi.run_times import RunTimes
from nnrt_hdi.tensor import Array, TensorSpec, flat_bytes
from nnrt_hdi.v2 import prepared_model_pb2


class Answer:
    """What a run gave: its outputs, of which some may be in their regions already, and where its time went."""

    __slots__ = ("_chunk", "_chunked", "_message_bytes", "_regions", "_times", "outputs", "specs")

    def __init__(
        self,
        specs: Sequence[TensorSpec],
        outputs: Sequence[Array],
        regions: Sequence[Any],
        times: RunTimes,
        message_bytes: int,
    ) -> None:
        """`regions` has None for an output that is in none; it is empty where none is."""
        self.specs = specs
        self.outputs = outputs
        self._regions = regions or (None,) * len(outputs)
        self._times = times
        self._chunked: set[int] = set()
        self._chunk: Callable[[memoryview], bytes] = reply_chunk
        self._message_bytes = message_bytes

    @property
    def size_bytes(self) -> int:
        """Length of the outputs that are in no region."""
        return sum(self._sizes())

    @property
    def chunked_bytes(self) -> int:
        """Length of those that follow the reply in chunks."""
        return sum(self.outputs[index].nbytes for index in self._chunked)

    def fit(self, *, in_chunks: bool, compressed: bool = False) -> None:
        """Have no message be too long. Raises OutOfMemory where that takes chunks and they aren't wanted."""
        if in_chunks and compressed:
            self._chunk = compressed_reply_chunk
            self._chunked = beyond_inline(self._sizes(), min(INLINE_BYTES, self._message_bytes))
        elif in_chunks:
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
        yield from map(self._chunk, pieces(outputs, self._message_bytes))

    def message(self) -> Any:
        """The RunReply."""
        reply = prepared_model_pb2.RunReply()
        if not self._chunked and self.size_bytes < VIEWED_BYTES:
            self.fill(reply)
            return reply
        self._fill_times(reply)
        return with_tensors(reply, [self._tensor(*output) for output in enumerate(self.outputs)])

    def fill(self, reply: Any) -> None:
        """The same, into an empty RunReply, with all outputs inline that are in no region."""
        self._fill_times(reply)
        for spec, array, region in zip(self.specs, self.outputs, self._regions, strict=True):
            if region is None:
                reply.outputs.add(**wire.io_tensor_fields(spec, array))
            else:
                reply.outputs.add(**wire.io_region_fields(spec, array.shape, array.nbytes, region))

    def _fill_times(self, reply: Any) -> None:
        wire.fill_run_times(reply.times, self._times)

    def _tensor(self, index: int, array: Array) -> tuple[Any, Array | None]:
        spec = self.specs[index]
        if (region := self._regions[index]) is not None:
            return wire.io_region_message(spec, array.shape, array.nbytes, region), None
        if index in self._chunked:
            return wire.io_chunked_message(spec, array), None
        return wire.io_bare_message(spec, array), np.ascontiguousarray(array)

    def _sizes(self) -> list[int]:
        pairs = zip(self.outputs, self._regions, strict=True)
        return [array.nbytes if region is None else 0 for array, region in pairs]


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
    """Runs what RunRequests ask for.

    Inputs in regions are read where they are if the model allows, outputs are written into their regions by the
    backend if it can: then a run copies nothing.
    """

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
        prepared = session.model(request.model_id).prepared
        sent = request.inputs
        # Counted before they are made: a message holds millions of empty ones.
        require_input_count(prepared.inputs, len(sent))
        places = _Places(session, prepared.outputs, request.outputs) if request.outputs else None
        inputs: list[Array] = []
        copied: list[int] = []
        left: list[Array] = []
        for index, tensor in enumerate(sent):
            if arrived and index in arrived:
                inputs.append(arrived[index])
                continue
            array = _input(session, index, tensor, prepared.inputs[index])
            inputs.append(array)
            if tensor.data.HasField("region"):
                if _is_left(prepared, places, index, array, tensor.data.region):
                    left.append(array)
                else:
                    copied.append(index)
        # Each may name the same gigabyte, so the copies count.
        with session.budget.lent(sum(inputs[index].nbytes for index in copied)):
            for index in copied:
                inputs[index] = _frozen_copy(inputs[index])
            ready = time.perf_counter_ns()
            ran = self._device.run(
                session, request.model_id, inputs, cancellation, places.arrays if places is not None else ()
            )
        done = time.perf_counter_ns()
        if places is not None:
            cancellation.check()  # Nobody waits for it any more, and the memory may serve other runs.
            places.take(ran.outputs)
        regions = places.regions if places is not None else ()
        outputs = _apart(ran.outputs, regions, left) if left else ran.outputs
        times = RunTimes(ran.queued_ns, ready - began, ran.computed_ns, time.perf_counter_ns() - done)
        return Answer(ran.specs, outputs, regions, times, self._message_bytes)

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


class _Places:
    """Where the outputs of a run are to go: checked, and as arrays where it is known what will be there."""

    def __init__(self, session: Session, specs: Sequence[TensorSpec], outputs: Sequence[Any]) -> None:
        """Raises InvalidParameter or UnknownHandle for places that there aren't, or that are too small."""
        self.regions = [place.data.region if place.data.HasField("region") else None for place in outputs]
        require_output_places(specs, [None if region is None else region.data_size for region in self.regions])
        self._views: list[memoryview | None] = []
        self.arrays: list[Array | None] = []
        # From where to where outputs go, by buffer.
        self._spans: dict[int, tuple[int, int]] = {}
        # Either all outputs go to their places or none does, so that none is written there before all are known.
        is_sure = not any(
            region is not None and spec.is_dynamic for spec, region in zip(specs, self.regions, strict=True)
        )
        for index, (spec, region) in enumerate(zip(specs, self.regions, strict=True)):
            view = None if region is None else self._view(session, index, region)
            self._views.append(view)
            self.arrays.append(_array_at(view, spec) if view is not None and is_sure else None)

    def _view(self, session: Session, index: int, region: Any) -> memoryview:
        buffer_id, start, size_bytes = region.buffer_id, region.offset, region.data_size
        try:
            view = session.buffers.writable_region(buffer_id, start, size_bytes)
        except NnrtError as error:
            raise error.at(f"output {index}") from error
        first, end = self._spans.get(buffer_id, (start, start))
        self._spans[buffer_id] = min(first, start), max(end, start + size_bytes)
        return view

    def may_touch(self, region: Any) -> bool:
        """Whether outputs may be written to where an input is: in any case where it lies between two of them."""
        first, end = self._spans.get(region.buffer_id, (0, 0))
        start: int = region.offset
        return start < end and first < start + region.data_size

    def take(self, outputs: Sequence[Array]) -> None:
        """Put the outputs there that aren't yet; if one is larger than its place, all stay where they are."""
        to_copy = [
            (view, output)
            for view, output, array in zip(self._views, outputs, self.arrays, strict=True)
            if view is not None and output is not array
        ]
        if any(output.nbytes > view.nbytes for view, output in to_copy):
            self.regions = [None] * len(outputs)
            return
        for view, output in to_copy:
            view[: output.nbytes] = flat_bytes(output)


def _array_at(view: memoryview, spec: TensorSpec) -> Array | None:
    """The memory of an output that is known before the run, if a processor may be told to write it there."""
    if 0 in spec.shape:
        return None
    array: Array = np.ndarray(spec.shape, spec.numpy_dtype, view)
    return array if array.flags.aligned else None


def _is_left(prepared: PreparedModel, places: _Places | None, index: int, array: Array, region: Any) -> bool:
    """Whether an input can stay where the client may go on writing, and the run's own outputs don't go."""
    if index not in prepared.reads_in_place or not array.flags.aligned:
        return False
    return places is None or not places.may_touch(region)


def _apart(outputs: Sequence[Array], regions: Sequence[Any], left: Sequence[Array]) -> list[Array]:
    """The outputs, of which none that is still to be sent lies in an input: the client may write there again."""
    return [
        output.copy()
        if not (regions and regions[index]) and any(np.may_share_memory(output, array) for array in left)
        else output
        for index, output in enumerate(outputs)
    ]


def _input(session: Session, index: int, tensor: Any, spec: TensorSpec) -> Array:
    try:
        if not wire.says(tensor, spec):
            spec = wire.io_spec(tensor)
        return wire.array_from_bytes(sent_bytes(session, tensor.data), spec)
    except NnrtError as error:
        raise error.at(f"input {index}") from error


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
