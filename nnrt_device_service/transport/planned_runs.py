"""Planned runs, from the request to the reply, however the two travel."""

from collections.abc import Sequence
from contextlib import nullcontext
from time import perf_counter_ns

import numpy as np

from nnrt_device_service.core.batches import BatchedRun
from nnrt_device_service.core.device import Device
from nnrt_device_service.core.outputs import require_outputs
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.placed import placed_in
from nnrt_device_service.transport.plans import Plan, PlannedReply, PlannedRequest
from nnrt_device_service.transport.regions import OutputRegions, frozen_copy
from nnrt_device_service.transport.run_result import RunResult
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array, TensorSpec
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
        outputs, known, queued_ns, computed_ns = self._device.run(
            session, plan.model, inputs, cancellation, prepared=prepared
        )
        done = perf_counter_ns()
        times = received_at_ns or began, queued_ns, ready - began, computed_ns, done
        return self.answer(session, request, plan, outputs, known, (), times)

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
        return self.answer(session, request, request.checked_plan(), outputs, (), (), times)

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
        inputs = placed.inputs_of(packet)
        targets = placed.targets
        with placed.held(session) if placed.holds else _NOTHING:
            for index in placed.copied:
                inputs[index] = frozen_copy(inputs[index])
            ready = perf_counter_ns()
            outputs, known, queued_ns, computed_ns = self._device.run(
                session, plan.model, inputs, cancellation, targets
            )
            done = perf_counter_ns()
            self.require(plan, outputs, known, targets)
            outputs, taken = placed.outputs_of(outputs, targets, cancellation)
        times = received_at_ns, queued_ns, ready - began, computed_ns, done
        return self.answer(session, request, plan, outputs, known, taken, times)

    def require(
        self, plan: Plan, outputs: object, known: Sequence[TensorSpec], targets: OutputRegions | None = None
    ) -> None:
        """Raise as `require_outputs` about what a run of a plan gave, which may have got regions for its outputs."""
        places = targets.arrays if targets is not None else ()
        require_outputs(self._device.info.device_name, plan.model.outputs, outputs, known, places)

    def answer(
        self,
        session: Session,
        request: PlannedRequest,
        plan: Plan,
        outputs: Sequence[Array],
        known: Sequence[TensorSpec],
        regions: Sequence[AnyRegion | None],
        times: tuple[int, int, int, int, int],
    ) -> PlannedReply | RunResult:
        """The reply with these outputs; those of a plan with regions have been looked at. `times` are those of
        `wire.fill_reply`, but for the last: when the run was done. Raises as `require`."""
        received_at_ns, queued_ns, copied_in_ns, computed_ns, done = times
        inline = []
        is_as_planned = True
        try:
            for at, ((form, offset), array) in enumerate(zip(plan.outputs, outputs, strict=True)):
                is_elsewhere = offset is None and regions[at] is None
                if array.shape != form.shape or array.dtype != form.dtype or is_elsewhere:
                    is_as_planned = False
                    break
                if offset is not None:
                    inline.append(array.tobytes())
        except (AttributeError, TypeError, ValueError):  # They aren't arrays, or not as many.
            is_as_planned = False
        if not is_as_planned:
            if not plan.has_regions:
                self.require(plan, outputs, known)
            times = (*times[:-1], perf_counter_ns() - done)
            return RunResult(request.run_id, plan.model, outputs, regions, times, self._message_bytes, plan.in_bytes)
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
