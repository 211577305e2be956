"""Where tensors of planned runs lie, worked out once for the same regions of the same buffers."""

from collections.abc import Sequence
from copy import copy

from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.plans import Plan
from nnrt_device_service.transport.regions import OutputRegions, is_left
from nnrt_hdi import wire
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Array, TensorForm
from nnrt_hdi.wire.runs import Region


class Placed:
    """The tensors that a planned run has in regions, which have been checked."""

    __slots__ = ("_targets", "copied", "copied_bytes", "inputs", "left")

    def __init__(self, session: Session, plan: Plan, regions: Sequence[Region]) -> None:
        """Raises InvalidParameter or UnknownHandle for regions that there aren't, or that don't fit."""
        model, given = plan.model, iter(regions)
        read = [next(given) if offset is None else None for _, offset in plan.inputs]
        self._targets: OutputRegions | None = None
        if plan.writes_regions:
            written = [next(given) if offset is None else None for _, offset in plan.outputs]
            self._targets = OutputRegions(session, model.outputs, written)
        # Views of the inputs, None for those that the packet has.
        self.inputs: list[Array | None] = []
        # Indexes of those that each run copies first, and their bytes.
        self.copied: list[int] = []
        self.copied_bytes = 0
        # Those that are read where they are.
        self.left: list[Array] = []
        for index, ((form, _), region) in enumerate(zip(plan.inputs, read, strict=True)):
            array = None
            if region is not None:
                array = _array_in(session, index, form, region)
                if is_left(model.prepared, self._targets, index, array, region):
                    self.left.append(array)
                else:
                    self.copied.append(index)
                    self.copied_bytes += array.nbytes
            self.inputs.append(array)

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


def _array_in(session: Session, index: int, form: TensorForm, region: Region) -> Array:
    try:
        return wire.array_from_bytes(session.buffers.region(*region), form)
    except NnrtError as error:
        raise error.at(f"input {index}") from error
