"""A run from its request to its reply, however the two travel."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import nullcontext
from time import perf_counter_ns

from nnrt_device_service.core.device import Device, require_input_count
from nnrt_device_service.core.outputs import require_outputs
from nnrt_device_service.core.profiled import Profiled
from nnrt_device_service.sessions.chunked_inputs import announced
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.run_registry import Run
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.failures import error_to_tell
from nnrt_device_service.transport.planned_runs import PlannedRuns
from nnrt_device_service.transport.plans import PlannedRequest, keep_plan
from nnrt_device_service.transport.regions import (
    InputRegions,
    OutputRegions,
    frozen_copy,
    held,
    may_stay,
    sendable,
)
from nnrt_device_service.transport.run_result import Reply, RunResult, ToldResult, error_reply
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.tensor import Array, TensorForm
from nnrt_hdi.v2 import model_pb2, prepared_model_pb2
from nnrt_hdi.wire.run_codec import Incoming
from nnrt_hdi.wire.runs import AnyRegion

_NOTHING = nullcontext()


def run_error_to_tell(
    error: Exception,
    method: str,
    session: Session,
    request: prepared_model_pb2.RunRequest | PlannedRequest,
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


def keep_reply(session: Session, run: Run) -> None:
    """Hold the reply of a run whose stream or connection has ended, for AwaitRun to fetch."""
    if run.reply is None:  # Something went so wrong that not even that could be said.
        failed = OperationFailed("the daemon failed to end the run; run it again")
        session.runs.finish(run, error_reply(run.id, error_to_tell(failed, "AwaitRun", session, run=run.id)))
    reply: Reply = run.reply
    if isinstance(reply, RunResult):
        reply.own_outputs()
    session.runs.keep(run, reply.ByteSize() if isinstance(reply, prepared_model_pb2.RunReply) else reply.inline_bytes)


class RunRequests:
    """Runs what RunRequests ask for.

    Inputs in regions are read where they are if the model allows, outputs are written into their regions by the
    backend if it can: then a run copies nothing.
    """

    _result: type[RunResult] = RunResult

    def __init__(self, device: Device, message_bytes: int) -> None:
        self._device = device
        self._message_bytes = message_bytes
        self.planned = PlannedRuns(device, message_bytes)

    def run(
        self,
        session: Session,
        request: prepared_model_pb2.RunRequest,
        cancellation: Cancellation,
        received_at_ns: int = 0,
        arrived: Mapping[int, Array] | None = None,
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
        stays = may_stay(model) and not request.profile
        targets = _targets(session, model, request.outputs, stays) if request.outputs else None
        in_bytes = 0
        inputs: list[Array] = []
        found = InputRegions(model, targets, stays)
        for index, tensor in enumerate(sent):
            array: Array | None = arrived.get(index) if arrived else None
            if array is None:
                form = wire.form_of_run(tensor, forms[index])
                array = wire.inline_array(tensor, form) if form is not None else None
            if array is None:
                array = _input(session, index, tensor, form, found)
            inputs.append(array)
            in_bytes += array.nbytes
        with held(found.memories, found.copied_bytes, session.budget) if found.holds else _NOTHING:
            for index in found.copied:
                inputs[index] = frozen_copy(inputs[index])
            ready = perf_counter_ns()
            profiled = Profiled(model.prepared) if request.profile else None
            outputs, known, queued_ns, computed_ns = self._device.run(
                session, model, inputs, cancellation, targets, profiled
            )
            done = perf_counter_ns()
            places = targets.arrays if targets is not None else ()
            require_outputs(self._device.info.device_name, model.outputs, outputs, known, places)
            regions: Sequence[AnyRegion | None] = ()
            if targets is not None:
                cancellation.check()  # Nobody waits for it any more, and the memory may serve other runs.
                regions = targets.take(outputs)
            if request.unwanted_outputs:
                regions = _without(set(request.unwanted_outputs), regions or (None,) * len(outputs))
            if found.left or found.memories:
                outputs = sendable(outputs, regions, found.left)
        times = received_at_ns or began, queued_ns, ready - began, computed_ns, perf_counter_ns() - done
        make = self._result if profiled is None else ToldResult
        result = make(request.run_id, model, outputs, regions, times, self._message_bytes, in_bytes)
        if request.plan:
            result.plan = keep_plan(session, request, model, inputs, outputs, regions)
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
        specs = tuple([form.spec for form in session.model(request.message.model_id).inputs])
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


def _targets(session: Session, model: LoadedModel, outputs: Sequence[model_pb2.IOTensor], stays: bool) -> OutputRegions:
    regions = [output.data.region if output.data.HasField("region") else None for output in outputs]
    return OutputRegions(session, model.outputs, regions, stays)


def _without(unwanted: Container[int], regions: Sequence[AnyRegion | None]) -> list[AnyRegion | None]:
    """The regions of outputs, with one that there is not for each that nobody wants."""
    return [
        model_pb2.BufferRegion() if region is None and index in unwanted else region
        for index, region in enumerate(regions)
    ]


def _input(
    session: Session, index: int, tensor: model_pb2.IOTensor, form: TensorForm | None, found: InputRegions
) -> Array:
    """An input that isn't inline as its model expects it."""
    try:
        if form is None:
            form = TensorForm(wire.io_spec(tensor))
        if tensor.data.HasField("region"):
            return found.add(session, index, form, tensor.data.region)
        return wire.array_from_bytes(inline_bytes(tensor.data), form)
    except NnrtError as error:
        raise error.at(f"input {index}") from error


def inline_bytes(buffer: model_pb2.SharedBuffer) -> bytes:
    """The bytes of a SharedBuffer that lies in no region. Raises InvalidParameter."""
    match buffer.WhichOneof("place"):
        case "inline":
            return buffer.inline
        case "constant":
            raise InvalidParameter("data by digest is only for constants of a model; send it inline or in a buffer")
        case "chunked":
            raise InvalidParameter("data in chunks is only for RunStream; send it inline or in a buffer")
        case _:
            raise InvalidParameter("it has no data; send it inline or in a buffer")
