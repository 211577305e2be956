"""A run from its request to its reply, however the two travel."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from nnrt_device_service.access.counters import Usage
from nnrt_device_service.core.device import Device, require_input_count
from nnrt_device_service.core.profiled import Profiled
from nnrt_device_service.sessions.chunked_inputs import announced
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.run_registry import Run
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import LimitReached
from nnrt_device_service.transport.failures import error_to_tell
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.chunks import INLINE_BYTES as MAX_INLINE_BYTES
from nnrt_hdi.chunks import beyond_inline, pieces
from nnrt_hdi.compression import INLINE_BYTES
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.tensor import Array, TensorForm, TensorSpec, flat_bytes
from nnrt_hdi.v2 import model_pb2, prepared_model_pb2
from nnrt_hdi.wire.run_codec import VIEWED_BYTES, Incoming, compressed_reply_chunk, reply_chunk, with_tensors


class RunResult:
    """The result of a run: its outputs, of which some may be in their regions already, and where its time went."""

    __slots__ = (
        "_chunk",
        "_chunked",
        "_in_bytes",
        "_message_bytes",
        "_model",
        "_outputs",
        "_regions",
        "_run_id",
        "_times",
        "inline_bytes",
    )

    def __init__(
        self,
        run_id: int,
        model: LoadedModel,
        outputs: Sequence[Array],
        regions: Sequence[model_pb2.BufferRegion | None],
        times: tuple[int, int, int, int, int],
        message_bytes: int,
        in_bytes: int,
    ) -> None:
        """`regions` has None for an output that is in none; it is empty where none is. `times` are those of
        `wire.fill_reply`. The inputs had `in_bytes`."""
        self._run_id = run_id
        self._model = model
        self._outputs = outputs
        self._regions = regions
        self._times = times
        # Those that follow the reply in chunks.
        self._chunked: set[int] = set()
        self._chunk: Callable[[memoryview], bytes] = reply_chunk
        self._message_bytes = message_bytes
        self._in_bytes = in_bytes
        # Length of the outputs that are in no region. From COUNTED_BYTES on they count in the session until they have
        # been sent.
        self.inline_bytes = 0
        for index, array in enumerate(outputs):
            if not regions or regions[index] is None:
                self.inline_bytes += array.nbytes

    def count(self, usage: Usage) -> None:
        """The run has ended well."""
        _, queued_ns, copied_in_ns, computed_ns, copied_out_ns = self._times
        out_bytes = 0
        for array in self._outputs:
            out_bytes += array.nbytes
        usage.count_run(queued_ns, copied_in_ns + copied_out_ns, computed_ns, self._in_bytes, out_bytes)

    def fit(self, *, in_chunks: bool, compressed: bool = False) -> None:
        """Have no message be too long. Raises OutOfMemory where that takes chunks and they aren't wanted."""
        if in_chunks and compressed:
            self._chunk = compressed_reply_chunk
            self._cut(min(INLINE_BYTES, self._message_bytes))
        elif in_chunks:
            self._cut(self._message_bytes)
        elif self.inline_bytes > self._message_bytes:
            raise LimitReached(
                f"the outputs have {self.inline_bytes} bytes, a message at most {self._message_bytes};"
                " take large outputs in chunks, or have them written to a buffer",
                "--message-bytes",
            )

    def _cut(self, inline_bytes: int) -> None:
        if self.inline_bytes <= min(inline_bytes, MAX_INLINE_BYTES):
            return
        regions = self._regions or (None,) * len(self._outputs)
        pairs = zip(self._outputs, regions, strict=True)
        self._chunked = beyond_inline((array.nbytes if region is None else 0 for array, region in pairs), inline_bytes)

    def messages(self) -> Iterator[prepared_model_pb2.RunReply | bytes]:
        """The RunReply, with outputs inline that are in no region and not too long, and the chunks of the others."""
        yield self.message()
        if self._chunked:
            outputs = (np.ascontiguousarray(self._outputs[index]) for index in sorted(self._chunked))
            yield from map(self._chunk, pieces(outputs, self._message_bytes))

    def message(self) -> prepared_model_pb2.RunReply | bytes:
        """The RunReply."""
        reply = prepared_model_pb2.RunReply()
        if not self._chunked and self.inline_bytes < VIEWED_BYTES:
            self.fill(reply)
            return reply
        self.fill_without_outputs(reply)
        return with_tensors(reply, [self._tensor(*output) for output in enumerate(self._outputs)])

    def fill(self, reply: prepared_model_pb2.RunReply) -> None:
        """Make an empty message the RunReply, with all outputs inline that are in no region."""
        wire.fill_reply(reply, self._run_id, self._times, self._model.outputs, self._outputs, self._regions)

    def fill_without_outputs(self, reply: prepared_model_pb2.RunReply) -> None:
        """Make an empty message the RunReply, but for the outputs."""
        wire.fill_reply(reply, self._run_id, self._times)

    def _tensor(self, index: int, array: Array) -> tuple[model_pb2.IOTensor, Array | None]:
        spec = self._model.outputs[index].spec
        if self._regions and (region := self._regions[index]) is not None:
            return wire.io_region_message(spec, array.shape, array.nbytes, region), None
        if index in self._chunked:
            return wire.io_chunked_message(spec, array), None
        return wire.io_bare_message(spec, array), np.ascontiguousarray(array)


class ToldResult(RunResult):
    """One whose reply tells what the operators took, and is itself told of when it is made."""

    __slots__ = ("on_reply", "operators")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.operators: Sequence[OperatorTime] = ()
        self.on_reply: Callable[[prepared_model_pb2.RunReply], object] | None = None

    def fill(self, reply: prepared_model_pb2.RunReply) -> None:
        super().fill(reply)
        self._tell(reply)

    def fill_without_outputs(self, reply: prepared_model_pb2.RunReply) -> None:
        super().fill_without_outputs(reply)
        self._tell(reply)

    def _tell(self, reply: prepared_model_pb2.RunReply) -> None:
        wire.add_operator_times(reply, self.operators, self._message_bytes)
        if (on_reply := self.on_reply) is not None:
            self.on_reply = None  # One that is kept may be made again.
            on_reply(reply)


# A run's end as its carrier may ask for it again: what it gave, or a message that is made already.
Reply = RunResult | prepared_model_pb2.RunReply


def error_reply(run_id: int, error: NnrtError) -> prepared_model_pb2.RunReply:
    """The reply of a run that gave nothing."""
    return prepared_model_pb2.RunReply(run_id=run_id, error=wire.error_detail(error))


def run_error_to_tell(
    error: Exception,
    method: str,
    session: Session,
    request: prepared_model_pb2.RunRequest,
    cancellation: Cancellation,
) -> NnrtError:
    """The error to tell of a run that gave nothing, which counts as that from now on."""
    told = error_to_tell(
        error,
        method,
        session,
        is_cancelled=cancellation.is_cancelled and isinstance(error, OperationFailed),
        model=request.model_id,
        run=request.run_id,
    )
    session.usage.count_ended_run(told, was_cancelled=cancellation.is_cancelled)
    return told


def messages_of(reply: Reply) -> Iterator[prepared_model_pb2.RunReply | bytes]:
    """The messages of a reply."""
    return reply.messages() if isinstance(reply, RunResult) else iter((reply,))


def keep_reply(session: Session, run: Run) -> None:
    """Hold the reply of a run whose stream or connection has ended, for AwaitRun to fetch."""
    if run.reply is None:  # Something went so wrong that not even that could be said.
        failed = OperationFailed("the daemon failed to end the run; run it again")
        session.runs.finish(run, error_reply(run.id, error_to_tell(failed, "AwaitRun", session, run=run.id)))
    reply: Reply = run.reply
    session.runs.keep(run, reply.inline_bytes if isinstance(reply, RunResult) else reply.ByteSize())


class RunRequests:
    """Runs what RunRequests ask for.

    Inputs in regions are read where they are if the model allows, outputs are written into their regions by the
    backend if it can: then a run copies nothing.
    """

    _result: type[RunResult] = RunResult

    def __init__(self, device: Device, message_bytes: int) -> None:
        self._device = device
        self._message_bytes = message_bytes

    def run(
        self,
        session: Session,
        request: prepared_model_pb2.RunRequest,
        cancellation: Cancellation,
        arrived: Mapping[int, Array] | None = None,
        received_at_ns: int = 0,
    ) -> RunResult:
        """Run as soon as a slot is free. `arrived` has the inputs that came beside the message; all of the request was
        here at a time of time.perf_counter_ns, without one now.

        Raises what `Device.run` raises, and InvalidParameter or UnknownHandle for a request that makes no sense.
        """
        began = perf_counter_ns()
        model = session.models.get(request.model_id) or session.model(request.model_id)
        sent, forms = request.inputs, model.inputs
        if len(sent) != len(forms):  # Counted before they are made: a message holds millions of empty ones.
            require_input_count(forms, len(sent))
        targets = OutputRegions(session, model.outputs, request.outputs) if request.outputs else None
        in_bytes = 0
        inputs: list[Array] = []
        copied: list[int] = []
        left: list[Array] = []
        for index, tensor in enumerate(sent):
            array = arrived.get(index) if arrived else None
            if array is None:
                form = wire.form_of_run(tensor, forms[index])
                array = wire.inline_array(tensor, form) if form is not None else None
            if array is None:
                array = _input(session, index, tensor, form)
                if tensor.data.HasField("region"):
                    if _is_left(model.prepared, targets, index, array, tensor.data.region):
                        left.append(array)
                    else:
                        copied.append(index)
            inputs.append(array)
            in_bytes += array.nbytes
        copied_bytes = sum([inputs[index].nbytes for index in copied]) if copied else 0
        if copied_bytes:  # Each may name the same gigabyte, so the copies count.
            session.budget.reserve(copied_bytes)
        try:
            for index in copied:
                inputs[index] = _frozen_copy(inputs[index])
            ready = perf_counter_ns()
            profiled = Profiled(model.prepared) if request.profile else None
            outputs, queued_ns, computed_ns = self._device.run(session, model, inputs, cancellation, targets, profiled)
        finally:
            if copied_bytes:
                session.budget.release(copied_bytes)
        done = perf_counter_ns()
        regions: Sequence[model_pb2.BufferRegion | None] = ()
        if targets is not None:
            cancellation.check()  # Nobody waits for it any more, and the memory may serve other runs.
            targets.take(outputs)
            regions = targets.regions
        if request.unwanted_outputs:
            regions = _without(set(request.unwanted_outputs), regions or (None,) * len(outputs))
        if left:
            outputs = _apart(outputs, regions, left)
        times = received_at_ns or began, queued_ns, ready - began, computed_ns, perf_counter_ns() - done
        make = self._result if profiled is None else ToldResult
        result = make(request.run_id, model, outputs, regions, times, self._message_bytes, in_bytes)
        if profiled is not None:
            assert isinstance(result, ToldResult)
            result.operators = profiled.operators
        return result

    def arrived(
        self,
        session: Session,
        request: Incoming,
        chunks: Iterator[memoryview | bytes],
        cancellation: Cancellation,
        hang_up: Callable[[], object],
    ) -> dict[int, Array]:
        """The inputs that come beside a message: those taken out of it, and those in chunks.

        Raises as `ChunkedInputs.received`, and InvalidParameter or UnknownHandle for what can't be inputs.
        """
        sent = request.message.inputs
        specs = session.model(request.message.model_id).prepared.inputs
        require_input_count(specs, len(sent))
        chunked = []
        for index, tensor in enumerate(sent):
            if tensor.data.HasField("chunked"):
                chunked.append(index)
        inline = arrived_inline(request)
        if not chunked:
            return inline
        wanted = {
            index: announced(specs, index, wire.io_spec(sent[index]), sent[index].data.chunked) for index in chunked
        }
        return inline | session.chunked_inputs.received(wanted, chunks, cancellation, hang_up)


def arrived_inline(request: Incoming) -> dict[int, Array]:
    """The large inputs that came in the message itself. Raises InvalidParameter."""
    return request.arrays(request.message.inputs, "input")


class OutputRegions:
    """The regions of buffers that the outputs of a run go to: checked, and as arrays where it is known what will be
    there. See `Places`."""

    def __init__(self, session: Session, forms: Sequence[TensorForm], outputs: Sequence[model_pb2.IOTensor]) -> None:
        """Raises InvalidParameter or UnknownHandle for regions that there aren't, or that are too small."""
        if len(outputs) != len(forms):
            raise InvalidParameter(f"{len(outputs)} regions for outputs were given; the model has {len(forms)}")
        self.regions: list[model_pb2.BufferRegion | None] = []
        self._views: list[memoryview | None] = []
        # From where to where outputs go, by buffer.
        self._spans: dict[int, tuple[int, int]] = {}
        self._forms = forms
        self.are_known = True
        for index, (form, output) in enumerate(zip(forms, outputs, strict=True)):
            region = output.data.region if output.data.HasField("region") else None
            self.regions.append(region)
            self._views.append(None if region is None else self._view(session, index, form, region))
            self.are_known = self.are_known and (region is None or form.size_bytes >= 0)
        # Either all outputs go to their regions or none does, so that none is written there before all are known.
        self.arrays: Sequence[Array | None] = (
            [_array_at(view, form) for view, form in zip(self._views, forms, strict=True)] if self.are_known else ()
        )

    def _view(self, session: Session, index: int, form: TensorForm, region: model_pb2.BufferRegion) -> memoryview:
        buffer_id, start, size_bytes = region.buffer_id, region.offset, region.data_size
        try:
            if form.size_bytes > size_bytes:
                raise InvalidParameter(f"it has {form.size_bytes} bytes, its region {size_bytes}; give it more")
            view = session.buffers.writable_region(buffer_id, start, size_bytes)
        except NnrtError as error:
            raise error.at(f"output {index}") from error
        first, end = self._spans.get(buffer_id, (start, start))
        self._spans[buffer_id] = min(first, start), max(end, start + size_bytes)
        return view

    def learn(self, specs: Sequence[TensorSpec]) -> None:
        """Make arrays of the regions, if all outputs that go to any are known, and fit."""
        forms = [
            None if spec.is_dynamic else form.of_run(spec.shape) for form, spec in zip(self._forms, specs, strict=True)
        ]
        pairs = list(zip(self._views, forms, strict=True))
        if all(view is None or (form is not None and form.size_bytes <= view.nbytes) for view, form in pairs):
            self.are_known = True
            self.arrays = [_array_at(view, form) for view, form in pairs]

    def may_touch(self, region: model_pb2.BufferRegion) -> bool:
        """Tell whether outputs may be written to where an input is: in any case where it lies between two of them."""
        first, end = self._spans.get(region.buffer_id, (0, 0))
        return region.offset < end and first < region.offset + region.data_size

    def take(self, outputs: Sequence[Array]) -> None:
        """Put the outputs there that aren't yet; if one is larger than its region, all stay where they are."""
        arrays = self.arrays or (None,) * len(outputs)
        to_copy = [
            (view, output)
            for view, output, array in zip(self._views, outputs, arrays, strict=True)
            if view is not None and output is not array
        ]
        if any(output.nbytes > view.nbytes for view, output in to_copy):
            self.regions = [None] * len(outputs)
            return
        for view, output in to_copy:
            view[: output.nbytes] = flat_bytes(output)


def _without(
    unwanted: Container[int], regions: Sequence[model_pb2.BufferRegion | None]
) -> list[model_pb2.BufferRegion | None]:
    """The regions of outputs, with one that there is not for each that nobody wants."""
    return [
        model_pb2.BufferRegion() if region is None and index in unwanted else region
        for index, region in enumerate(regions)
    ]


def _array_at(view: memoryview | None, form: TensorForm | None) -> Array | None:
    """The memory of an output that is known before the run, if a processor may be told to write it there."""
    if view is None or form is None or not form.size_bytes:
        return None
    array: Array = np.ndarray(form.shape, form.dtype, view)
    return array if array.flags.aligned else None


def _is_left(
    prepared: PreparedModel,
    targets: OutputRegions | None,
    index: int,
    array: Array,
    region: model_pb2.BufferRegion,
) -> bool:
    """Tell whether an input can stay where the client may go on writing, and the run's own outputs don't go."""
    if index not in prepared.reads_in_place or not array.flags.aligned:
        return False
    return targets is None or not targets.may_touch(region)


def _apart(
    outputs: Sequence[Array], regions: Sequence[model_pb2.BufferRegion | None], left: Sequence[Array]
) -> list[Array]:
    """The outputs, of which none that is still to be sent lies in an input: the client may write there again."""
    return [
        output.copy()
        if not (regions and regions[index]) and any(np.may_share_memory(output, array) for array in left)
        else output
        for index, output in enumerate(outputs)
    ]


def _input(session: Session, index: int, tensor: model_pb2.IOTensor, form: TensorForm | None) -> Array:
    try:
        if form is None:
            form = TensorForm(wire.io_spec(tensor))
        return wire.array_from_bytes(sent_bytes(session, tensor.data), form)
    except NnrtError as error:
        raise error.at(f"input {index}") from error


def sent_bytes(session: Session, buffer: model_pb2.SharedBuffer) -> bytes | memoryview:
    """The bytes of a SharedBuffer, where they are. Raises InvalidParameter or UnknownHandle."""
    match buffer.WhichOneof("place"):
        case "inline":
            return buffer.inline
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
