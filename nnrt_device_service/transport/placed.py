"""Where tensors of planned runs lie, worked out once for the same regions of the same buffers."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import partial

import numpy as np

from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.plans import Plan
from nnrt_device_service.transport.regions import InputRegions, OutputRegions, held, may_stay, sendable
from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.tensor import Array
from nnrt_hdi.wire.runs import AnyRegion, Region


class Placed:
    """The tensors that a planned run has in regions, which have been checked."""

    __slots__ = (
        "_copied_bytes",
        "_forms",
        "_memories",
        "_targets",
        "copied",
        "holds",
        "inputs",
        "left",
        "uses_device_memory",
    )

    def __init__(self, session: Session, plan: Plan, regions: Sequence[Region]) -> None:
        """Raises InvalidParameter or UnknownHandle for regions that there aren't, or that don't fit."""
        self._forms = plan.inputs
        model, given, stays = plan.model, iter(regions), may_stay(plan.model)
        read = [next(given) if offset is None else None for _, offset in plan.inputs]
        self._targets: OutputRegions | None = None
        if plan.writes_regions:
            written = [next(given) if offset is None else None for _, offset in plan.outputs]
            self._targets = OutputRegions(session, model.outputs, written, stays)
        found = InputRegions(model, self._targets, stays)
        # Inputs where they are, None for those that the packet has.
        self.inputs: list[Array | None] = [
            wire.at_place(f"input {index}", partial(found.add, session, index, form, region)) if region else None
            for index, ((form, _), region) in enumerate(zip(plan.inputs, read, strict=True))
        ]
        # Indexes of those that each run copies first.
        self.copied: list[int] = found.copied
        # Those that are read where they are.
        self.left: list[Array] = found.left
        self._copied_bytes = found.copied_bytes
        self._memories = tuple(found.memories)
        self.uses_device_memory = bool(found.memories)
        # Whether a run is to be in a block of `held`.
        self.holds = found.holds

    def held(self, session: Session) -> AbstractContextManager[None]:
        """Hold in a block what one run uses. Raises as `regions.held`."""
        return held(self._memories, self._copied_bytes, session.budget)

    def inputs_of(self, packet: bytes) -> list[Array]:
        """The inputs of a run, of which the packet has those that lie in no region."""
        return [
            np.ndarray(form.shape, form.dtype, packet, offset or 0) if array is None else array
            for array, (form, offset) in zip(self.inputs, self._forms, strict=True)
        ]

    def outputs_of(
        self, outputs: list[Array], targets: OutputRegions | None, cancellation: Cancellation
    ) -> tuple[list[Array], Sequence[AnyRegion | None]]:
        """The outputs of a run, and the regions that they are in now. Raises what the run was cancelled for, and
        UnavailableDevice where the device fails."""
        taken: Sequence[AnyRegion | None] = ()
        if targets is not None:
            cancellation.check()  # Nobody waits for it any more, and the memory may serve other runs.
            taken = targets.take(outputs)
        if self.left or self.uses_device_memory:
            outputs = sendable(outputs, taken, self.left)
        return outputs, taken

    @property
    def targets(self) -> OutputRegions | None:
        """Where the outputs of one run go; None where none goes to a region."""
        targets = self._targets
        return targets if targets is None or targets.are_known else copy(targets)  # It learns of one run only.


def placed_in(session: Session, plan: Plan, regions: bytes) -> Placed:
    """The tensors of a plan in these regions, as a planned request has them. Raises as `Placed`."""
    buffers = session.buffers
    key = plan.token, regions
    placed: Placed | None = buffers.kept(key)
    if placed is None:
        releases = buffers.releases
        numbers = plan.layout.read_regions(regions)
        placed = Placed(session, plan, list(map(Region, numbers[::3], numbers[1::3], numbers[2::3])))
        buffers.keep(key, placed, len(numbers) // 3, releases)
    return placed
