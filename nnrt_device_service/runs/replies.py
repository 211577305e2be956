"""Replies of runs: frames, and messages of the unary RPC `Run`."""

from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Protocol, cast

import numpy as np

from nnrt_device_service.runs.failures import report_error
from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.descriptions import CHUNKS, INLINE, NOWHERE, REGION
from nnrt_device_service.sessions.run_registry import KnownRun
from nnrt_device_service.settings import LimitReached
from nnrt_hdi import wire
from nnrt_hdi.chunks import INLINE_BYTES, beyond_inline, pieces
from nnrt_hdi.compression import INLINE_BYTES as UNCOMPRESSED_BYTES
from nnrt_hdi.compression import compressed
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.tensor import Array, data_type_of
from nnrt_hdi.v2.prepared_model_pb2 import RunOutcome, RunReply, TensorPlace
from nnrt_hdi.wire.packet import reply_with_outcome
from nnrt_hdi.wire.run_messages import chunk_message, frames_message

# Replies on streams count in their session's budget from this size on.
COUNTED_BYTES = 64 * 1024

Times = tuple[int, int, int, int, int, int]


class Tracer(Protocol):
    """Recorder of the spans of runs."""

    def record_success(self, run: Run, times: Times) -> None:
        """Record the span of a run whose reply has just been made."""

    def record_failure(self, run: Run, error: BaseException) -> None:
        """Record the span of a run that has just failed."""


class Replies:
    """Maker of the replies of runs, which also counts the runs for their identities."""

    def __init__(self, message_bytes: int, tracer: Tracer | None = None) -> None:
        self._message_bytes = message_bytes
        self._tracer = tracer

    def frame(self, run: Run, method: str, most_bytes: int = 0) -> bytes:
        """Make the reply frame of a run that has ended, or could not begin, and note it in the run.

        A reply longer than `most_bytes` is kept for AwaitRun, and the frame says so. If `most_bytes` is 0, outputs that
        are too long for the frame are in `run.chunked`, and a reply of COUNTED_BYTES or more counts in the session's
        budget until `release_reply_bytes`. The first branch is fast, for small runs.
        """
        session, description, outputs = run.session, run.description, run.outputs
        if (
            run.is_as_expected
            and description is not None
            and description.is_plain
            and description.layout.reply_bytes <= (most_bytes or COUNTED_BYTES)
            and not session.wants_compression
        ):
            if description.writes_regions or description.wanted is not None:
                outputs = self._inline_outputs(run)
            now, received_at_ns, queued_ns, computed_ns = (
                perf_counter_ns(),
                run.received_at_ns,
                run.began_ns - run.asked_ns,
                run.computed_ns,
            )
            copied_in_ns, copied_out_ns = run.copied_in_ns, now - run.done_ns
            times = received_at_ns, queued_ns, copied_in_ns, computed_ns, copied_out_ns, now - received_at_ns
            frame = description.layout.reply(run.id, times, outputs)
            copied_ns, in_bytes, out_bytes = copied_in_ns + copied_out_ns, description.in_bytes, description.out_bytes
            run.payer.usage.count_run(queued_ns, copied_ns, computed_ns, in_bytes, out_bytes)
        else:
            frame = self._full_frame(run, method, most_bytes)
        run.outputs = ()
        if run.held_bytes is None:
            run.reply = frame
            if session.runs.awaiters:
                session.runs.wake()
        return frame

    def _full_frame(self, run: Run, method: str, most_bytes: int) -> bytes:
        """Make a frame that is long, or has other content than the expected outputs."""
        if run.is_unknown:
            return reply_with_outcome(run.id, _NO_TIMES, _UNKNOWN)
        try:
            if run.error is not None:
                raise run.error
            return self._success_frame(run, most_bytes)
        except BaseException as error:
            run.chunked = ()
            return self._failure_frame(run, error, method)
        finally:
            run.error = None  # Its traceback would keep the run and all that the run refers to alive.

    def _inline_outputs(self, run: Run) -> list[Array]:
        """Return the outputs that the client wants and that are not in their regions."""
        assert run.description is not None
        return [
            array
            for array, expected in zip(run.outputs, run.description.outputs, strict=True)
            if expected.place == INLINE or (expected.place == REGION and not run.is_written)
        ]

    def _success_frame(self, run: Run, most_bytes: int) -> bytes:
        """Make the frame of a successful run; raise OutOfMemory if the session has no room for the reply."""
        times, description, inline = run.times(), run.description, self._inline_outputs(run)
        assert description is not None
        inline_bytes = sum(array.nbytes for array in inline)
        if inline_bytes <= (most_bytes or self._most_inline(run)) and run.is_as_expected and not description.profile:
            frame = description.layout.reply(run.id, times, inline)
        else:
            frame = self._outcome_frame(run, times, inline)
        size_bytes = len(frame) + sum(array.nbytes for array in run.chunked)
        if most_bytes and size_bytes > most_bytes:
            frame = self._keep_for_await_run(run, times, frame)
        elif not most_bytes and size_bytes >= COUNTED_BYTES:
            run.session.budget.reserve(size_bytes)
            run.reserved_bytes = size_bytes
        self._count(run, times)
        return frame

    def _most_inline(self, run: Run) -> int:
        """Return the most bytes of outputs that a frame on a stream may have."""
        most_bytes = min(INLINE_BYTES, self._message_bytes)
        return min(UNCOMPRESSED_BYTES, most_bytes) if run.session.wants_compression else most_bytes

    def _outcome_frame(self, run: Run, times: Times, inline: Sequence[Array]) -> bytes:
        """Make a frame that describes its outputs, and put those that follow it in chunks into `run.chunked`."""
        outcome = RunOutcome()
        chunked = beyond_inline((array.nbytes for array in inline), self._most_inline(run))
        places = iter([CHUNKS if index in chunked else INLINE for index in range(len(inline))])
        assert run.description is not None
        for array, expected in zip(run.outputs, run.description.outputs, strict=True):
            is_elsewhere = expected.place == NOWHERE or (expected.place == REGION and run.is_written)
            described = outcome.outputs.add(
                data_type=wire.number(data_type_of(array.dtype)),
                place=cast("TensorPlace", expected.place if is_elsewhere else next(places)),
            )
            described.dimensions.extend(array.shape)
        wire.add_operator_times(outcome, run.operators, self._message_bytes)
        run.chunked = [inline[index] for index in sorted(chunked)]
        here = [array for index, array in enumerate(inline) if index not in chunked]
        return reply_with_outcome(run.id, times, outcome.SerializeToString(), here)

    def _keep_for_await_run(self, run: Run, times: Times, frame: bytes) -> bytes:
        """Keep a reply that is too long, for AwaitRun, and make a frame that says so; raise OutOfMemory."""
        runs = run.session.runs
        run.was_too_long = True
        runs.finish(run, frame, run.chunked)
        runs.keep(run)
        if run.held_bytes is None:
            run.reply = None
            raise OutOfMemory(
                f"the outputs have {sum(array.nbytes for array in run.outputs)} bytes, which the session has no room to"
                " keep; have them written to a buffer"
            )
        return reply_with_outcome(run.id, times, _KEPT)

    def _failure_frame(self, run: Run, error: BaseException, method: str) -> bytes:
        """Make the frame of a failed run; log and count the failure."""
        description, is_cancelled = run.description, run.cancellation.is_cancelled
        error_sent = report_error(
            error,
            method,
            run.session,
            is_cancelled=is_cancelled and isinstance(error, OperationFailed),
            model=description.model_id if description is not None else 0,
            run=run.id,
            **run.served_fields,
        )
        run.payer.usage.count_ended_run(error_sent, was_cancelled=is_cancelled)
        if description is not None and description.traceparent and self._tracer is not None:
            self._tracer.record_failure(run, error)
        return error_frame(run, error_sent)

    def message(self, run: Run) -> tuple[RunReply, int]:
        """Return the reply message of a run of the unary RPC `Run`, and the bytes of outputs in it.

        Raises the error of the run, and OutOfMemory for outputs that are too long for a message.
        """
        description = run.description
        try:
            if run.error is not None:
                raise run.error
            assert description is not None
            inline_bytes = sum(array.nbytes for array in self._inline_outputs(run))
            if inline_bytes > self._message_bytes:
                raise LimitReached(
                    f"the outputs have {inline_bytes} bytes, a message at most {self._message_bytes};"
                    " take large outputs in chunks, or have them written to a buffer",
                    "--message-bytes",
                )
        except BaseException as error:
            if description is not None and description.traceparent and self._tracer is not None:
                self._tracer.record_failure(run, error)
            run.error = None  # Its traceback would keep the run alive.
            raise
        reply = RunReply()
        self._fill_message(run, reply)
        return reply, inline_bytes

    def _fill_message(self, run: Run, reply: RunReply) -> None:
        model, description = run.model, run.description
        assert model is not None and description is not None
        regions = iter(run.regions[3 * [tensor.place for tensor in description.inputs].count(REGION) :])
        for array, form, expected in zip(run.outputs, model.outputs, description.outputs, strict=True):
            tensor = reply.outputs.add(name=form.name, data_type=wire.number(form.spec.data_type), format=form.format)
            tensor.dimensions.extend(array.shape)
            region = (next(regions), next(regions), next(regions)) if expected.place == REGION else None
            if region is not None and run.is_written:
                place = tensor.data.region
                place.buffer_id, place.offset, place.data_size = *region[:2], array.nbytes
            else:
                tensor.data.inline = array.tobytes()
        wire.add_operator_times(reply, run.operators, self._message_bytes)
        times = run.times()
        for name, value in zip(_TIMES, times, strict=True):
            setattr(reply.times, name, value)
        self._count(run, times)

    def _count(self, run: Run, times: Times) -> None:
        """Count a successful run for its identity, and record its span."""
        _, queued_ns, copied_in_ns, computed_ns, copied_out_ns, _ = times
        description = run.description
        assert description is not None
        out_bytes = sum(array.nbytes for array in run.outputs)
        usage, in_bytes = run.payer.usage, description.in_bytes
        usage.count_run(queued_ns, copied_in_ns + copied_out_ns, computed_ns, in_bytes, out_bytes)
        if description.traceparent and self._tracer is not None:
            self._tracer.record_success(run, times)


_TIMES = ("received_at_ns", "queued_ns", "copied_in_ns", "computed_ns", "copied_out_ns", "served_ns")
_NO_TIMES = (0, 0, 0, 0, 0, 0)
_UNKNOWN = RunOutcome(is_unknown=True).SerializeToString()
_KEPT = RunOutcome(kept=True).SerializeToString()


def release_reply_bytes(runs: Sequence[Run]) -> None:
    """Release the budget bytes of replies that have been sent."""
    for run in runs:
        if run.reserved_bytes:
            run.session.budget.release(run.reserved_bytes)
            run.reserved_bytes = 0


def error_frame(run: Run, error: NnrtError) -> bytes:
    """Make the reply frame of a failed run."""
    outcome = RunOutcome(error=wire.error_detail(error))
    return reply_with_outcome(run.id, _NO_TIMES, outcome.SerializeToString())


def keep_reply(run: Run) -> None:
    """Keep the reply of a run whose stream or connection has ended, for AwaitRun to fetch."""
    if run.reply is None:  # Not even an error reply could be made.
        failed = OperationFailed("the daemon failed to end the run; run it again")
        run.session.runs.finish(run, error_frame(run, report_error(failed, "AwaitRun", run.session, run=run.id)))
    run.session.runs.keep(run)


def reply_messages(frame: bytes, run: KnownRun, message_bytes: int, *, is_compressed: bool) -> Iterator[bytes]:
    """Yield the messages of a reply: its frame, and the chunks of outputs that follow it."""
    yield frames_message(frame)
    for piece in pieces(map(np.ascontiguousarray, run.chunked), message_bytes):
        yield chunk_message(piece, compressed(piece) if is_compressed else None)
