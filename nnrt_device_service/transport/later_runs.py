"""Planned runs for which no thread waits."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from time import perf_counter_ns

import numpy as np

from nnrt_device_service.core.device import Device
from nnrt_device_service.core.started_runs import Ended
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.placed import Placed, placed_in
from nnrt_device_service.transport.planned_runs import PlannedRuns
from nnrt_device_service.transport.plans import PlannedReply, PlannedRequest
from nnrt_device_service.transport.regions import OutputRegions, frozen_copy
from nnrt_device_service.transport.run_result import RunResult
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.wire.runs import AnyRegion

_NOTHING = nullcontext()


class LaterRun:
    """A run of a plan that is startable: its tensors until it ends, and its reply then."""

    __slots__ = (
        "_cancellation",
        "_copied_in_ns",
        "_ended",
        "_held",
        "_inputs",
        "_placed",
        "_plan",
        "_received_at_ns",
        "_request",
        "_session",
        "_targets",
    )

    def __init__(
        self, session: Session, request: PlannedRequest, cancellation: Cancellation, received_at_ns: int
    ) -> None:
        """Raises InvalidParameter or UnknownHandle for a request that makes no sense, OutOfMemory, and
        UnavailableDevice where the device fails."""
        began = perf_counter_ns()
        self._session = session
        self._request = request
        self._cancellation = cancellation
        self._received_at_ns = received_at_ns
        self._plan = plan = request.checked_plan()
        packet = request.packet
        self._placed: Placed | None = None
        self._targets: OutputRegions | None = None
        # What it uses until its reply is made.
        self._held: AbstractContextManager[object] = _NOTHING
        if plan.has_regions:
            self._placed = placed = placed_in(session, plan, packet[plan.layout.regions])
            self._targets = placed.targets
            self._inputs = placed.inputs_of(packet)
            with ExitStack() as held:
                if placed.holds:
                    held.enter_context(placed.held(session))
                for index in placed.copied:
                    self._inputs[index] = frozen_copy(self._inputs[index])
                self._held = held.pop_all()
        else:
            self._inputs = [np.ndarray(shape, dtype, packet, offset) for shape, dtype, offset in plan.inline]
        self._ended: Ended | None = None
        self._copied_in_ns = perf_counter_ns() - began

    def start(self, device: Device, on_end: Callable[[], object]) -> None:
        """Start it as `StartedRuns.start` does."""
        model, inputs, self._inputs = self._plan.model, self._inputs, []
        end = partial(self._end, on_end)
        device.started_runs.start(self._session, model, inputs, self._cancellation, self._targets, end)

    def _end(self, on_end: Callable[[], object], ended: Ended) -> None:
        self._ended = ended
        on_end()

    def reply(self, planned: PlannedRuns) -> PlannedReply | RunResult:
        """The reply, when it has ended; to be asked for once. Raises what it ended with."""
        assert self._ended is not None
        outcome, known, queued_ns, computed_ns, done_ns = self._ended
        with self._held:
            if isinstance(outcome, Exception):
                raise outcome
            outputs = outcome
            regions: Sequence[AnyRegion | None] = ()
            if self._placed is not None:
                planned.require(self._plan, outcome, known, self._targets)
                outputs, regions = self._placed.outputs_of(list(outcome), self._targets, self._cancellation)
        times = self._received_at_ns, queued_ns, self._copied_in_ns, computed_ns, done_ns
        return planned.answer(self._session, self._request, self._plan, outputs, known, regions, times)
