"""Messages of the service Sequences, converted to values and loops, and back."""

from collections.abc import Mapping
from functools import partial
from typing import cast

from nnrt_device_service.runs.frames import read_description
from nnrt_device_service.runs.loops import Delivered, Loop, LoopEnd, LoopRun
from nnrt_device_service.sessions.descriptions import NOWHERE, SEQUENCE, Description
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.sessions.values import NewValue, Value
from nnrt_hdi import wire
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.sequences import MAX_BYTES, MAX_MS, MAX_READ, MAX_RUNS, MAX_STEPS
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import sequence_pb2
from nnrt_hdi.wire.values import value_messages, whole_arrays


def read_loop(session: Session, request: sequence_pb2.LoopRequest) -> Loop:
    """Return the loop that a request asks for. Raises InvalidParameter and UnknownHandle if it is invalid."""
    if not 0 < len(request.runs) <= MAX_RUNS:
        raise InvalidParameter(f"a step has {len(request.runs)} runs; give 1..{MAX_RUNS}", place="LoopRequest.runs")
    if not 0 < request.max_steps <= MAX_STEPS:
        raise InvalidParameter(f"max_steps is {request.max_steps}; use 1..{MAX_STEPS}", place="LoopRequest")
    # The same for runs that are alike, as those of a queue.
    known: dict[bytes, Description] = {}
    runs = [wire.at_place(f"run {at}", partial(_read_run, session, run, known)) for at, run in enumerate(request.runs)]
    max_ms = min(request.max_ms or MAX_MS, MAX_MS)
    return Loop(runs, request.max_steps, min(request.max_bytes or MAX_BYTES, MAX_BYTES), max_ms / 1000)


def _read_run(session: Session, run: sequence_pb2.LoopRun, known: dict[bytes, Description]) -> LoopRun:
    if len(run.delivered) > MAX_READ:
        raise InvalidParameter(f"{len(run.delivered)} values are to be delivered; ask for at most {MAX_READ}")
    key = run.description.SerializeToString()
    description = known.get(key)
    if description is None:
        description = known[key] = read_description(session, run.description)
        places = {tensor.place for tensor in description.inputs}, {tensor.place for tensor in description.outputs}
        if not (places[0] <= {SEQUENCE} and places[1] <= {NOWHERE}) or description.profile:
            raise InvalidParameter(
                "in a loop all inputs are in TENSOR_PLACE_SEQUENCE, all outputs in TENSOR_PLACE_NOWHERE, and runs are"
                " not profiled"
            )
    return LoopRun(description, new_values(whole_arrays(run.values)), tuple(run.delivered), run.stop)


def new_values(arrays: Mapping[int, Array]) -> dict[int, NewValue]:
    """Return values to keep of arrays that nobody changes any more."""
    return {number: NewValue(array.nbytes, partial(Value, array)) for number, array in arrays.items()}


def reply_of(results: "list[Delivered] | LoopEnd") -> sequence_pb2.LoopReply:
    """Return the message of what a loop delivers, or of its end."""
    reply = sequence_pb2.LoopReply()
    if isinstance(results, LoopEnd):
        reply.end.reason = cast("sequence_pb2.LoopEnd.Reason", results.reason.value)
        reply.end.steps, reply.end.bytes, reply.end.took_ns = results.steps, results.bytes, results.took_ns
        if results.error is not None:
            reply.end.error.CopyFrom(wire.error_detail(results.error))
        return reply
    for each in results:
        delivered = reply.delivered.add(step=each.step, run=each.run)
        for number, array in each.values.items():
            delivered.values.extend(value_messages(number, array, 0))
    return reply
