"""Planned runs, from the request to the reply, however the two travel."""

from collections.abc import Sequence
from contextlib import nullcontext
from time import perf_counter_ns

import numpy as np

from nnrt_device_service.core.batches import UNCOUNTED_BYTES, BatchedRun
from nnrt_device_service.core.device import Device
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.placed import placed_in
from nnrt_device_service.transport.plans import Plan, PlannedReply, PlannedRequest
from nnrt_device_service.transport.regions import apart, frozen_copy
from nnrt_device_service.transport.run_result import RunResult
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array
from nnrt_hdi.wire.plans import REPLY_MARK
from nnrt_hdi.wire.runs import AnyRegion

_NOTHING = nullcontext()


class PlannedRuns:
    """Makes planned runs."""

    def __init__(self, device: Device, message_bytes: int) -> None:
        self._device = device
        self._message_bytes = message_bytes

    def run(
        self,
        session: Session,
        request: PlannedRequest,
        cancellation: Cancellation,
        received_at_ns: int = 0,
        prepared: PreparedModel | None = None,
    ) -> PlannedReply | RunResult:
        """Run as soon as a slot is free; all of the request was here at a time of time.perf_counter_ns, without one
        now. With `prepared`, the plan's model, what has no tensors in regions is computed alone. Outputs that didn't
        come out as planned are an ordinary result.

        Raises what `Device.run` raises, and InvalidParameter or UnknownHandle for a request that makes no sense.
        """
        began = perf_counter_ns()
        plan = request.checked_plan()
        if plan.has_regions:
            return self._run_in_regions(session, request, plan, cancellation, received_at_ns or began, began)
        packet = request.packet
        inputs: list[Array] = [np.ndarray(shape, dtype, packet, offset) for shape, dtype, offset in plan.inline]
        ready = perf_counter_ns()
        outputs, queued_ns, computed_ns = self._device.run(session, plan.model, inputs, cancellation, prepared=prepared)
        done = perf_counter_ns()
        times = received_at_ns or began, queued_ns, ready - began, computed_ns, done
        return self._answer(session, request, plan, outputs, (), times)

    def joinable(self, session: Session, request: PlannedRequest, cancellation: Cancellation) -> BatchedRun:
        """A run of a plan with a bucket, to be computed by `Device.run_together`. Raises InvalidParameter."""
        plan, packet = request.checked_plan(), request.packet
        assert plan.bucket is not None
        inputs: list[Array] = [np.ndarray(shape, dtype, packet, offset) for shape, dtype, offset in plan.inline]
        return BatchedRun(session, plan.model, inputs, cancellation, plan.bucket)

    def joined(self, request: PlannedRequest, run: BatchedRun, received_at_ns: int) -> PlannedReply | RunResult:
        """The reply of one that has been computed, or is computed now, for it is to run alone. Raises as `run`."""
        session, outputs = run.session, run.outcome
        if outputs is None:
            return self.run(session, request, run.cancellation, received_at_ns, run.model.prepared)
        if isinstance(outputs, NnrtError):
            raise outputs
        run.cancellation.check()
        done = run.began_ns + run.computed_ns
        times = received_at_ns, run.began_ns - run.asked_ns, run.asked_ns - received_at_ns, run.computed_ns, done
        return self._answer(session, request, request.checked_plan(), outputs, (), times)

    def _run_in_regions(
        self,
        session: Session,
        request: PlannedRequest,
        plan: Plan,
        cancellation: Cancellation,
        received_at_ns: int,
        began: int,
    ) -> PlannedReply | RunResult:
        """A run of which some tensors lie in regions."""
        packet = request.packet
        placed = placed_in(session, plan, packet[plan.layout.regions])
        inputs: list[Array] = [
            np.ndarray(form.shape, form.dtype, packet, offset or 0) if array is None else array
            for array, (form, offset) in zip(placed.inputs, plan.inputs, strict=True)
        ]
        targets = placed.targets
        with session.budget.reserved(placed.copied_bytes) if placed.copied_bytes >= UNCOUNTED_BYTES else _NOTHING:
            for index in placed.copied:
                inputs[index] = frozen_copy(inputs[index])
            ready = perf_counter_ns()
            outputs, queued_ns, computed_ns = self._device.run(session, plan.model, inputs, cancellation, targets)
        done = perf_counter_ns()
        taken: Sequence[AnyRegion | None] = ()
        if targets is not None:
            cancellation.check()  # Nobody waits for it any more, and the memory may serve other runs.
            taken = targets.take(outputs)
        if placed.left:
            outputs = apart(outputs, taken, placed.left)
        times = received_at_ns, queued_ns, ready - began, computed_ns, done
        return self._answer(session, request, plan, outputs, taken, times)

    def _answer(
        self,
        session: Session,
        request: PlannedRequest,
        plan: Plan,
        outputs: Sequence[Array],
        regions: Sequence[AnyRegion | None],
        times: tuple[int, int, int, int, int],
    ) -> PlannedReply | RunResult:
        """The reply with these outputs. `times` are those of `wire.fill_reply`, but for the last: when the run was
        done."""
        received_at_ns, queued_ns, copied_in_ns, computed_ns, done = times
        inline = []
        for at, ((form, offset), array) in enumerate(zip(plan.outputs, outputs, strict=True)):
            is_elsewhere = offset is None and regions[at] is None
            if array.shape != form.shape or array.dtype != form.dtype or is_elsewhere:
                times = (*times[:-1], perf_counter_ns() - done)
                return RunResult(
                    request.run_id, plan.model, outputs, regions, times, self._message_bytes, plan.in_bytes
                )
            if offset is not None:
                inline.append(array.tobytes())
        now = perf_counter_ns()
        packet = plan.layout.pack_reply(
            REPLY_MARK,
            request.run_id,
            received_at_ns,
            queued_ns,
            copied_in_ns,
            computed_ns,
            now - done,
            now - received_at_ns,
            *inline,
        )
        session.usage.count_run(queued_ns, copied_in_ns + now - done, computed_ns, plan.in_bytes, plan.out_bytes)
        return PlannedReply(plan, packet, regions)
