"""Runs that the daemon knows but for their bytes: what is the same in all of them, worked out once."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from nnrt_client.session.session import Session
from nnrt_client.tensors.device_buffer import Elements
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import Array, Shape
from nnrt_hdi.wire.plans import FEATURE, PlanLayout, request_prefix

if TYPE_CHECKING:
    from nnrt_client.run.signature import Signature

# Plans of one signature, each for other shapes: runs of further shapes go as they are.
_MOST_PLANS = 8
# Requests that ask the daemon to keep a plan for the same shapes: several may be under way at once, or fail.
_MOST_TRIES = 4

Shapes = tuple[Shape, ...]


class Plan:
    """Runs with arrays of certain shapes, which the daemon keeps under a number (nnrt_hdi/wire/plans.py).

    It is the packet of those whose tensors are all in the request and in the reply.
    """

    __slots__ = (
        "head",
        "inline_inputs",
        "is_inline",
        "message_prefix",
        "number",
        "pack",
        "places",
        "region_inputs",
        "region_outputs",
        "reply_bytes",
    )

    def __init__(
        self, number: int, input_bytes: Sequence[int | None], outputs: Sequence[Array], in_regions: Collection[int]
    ) -> None:
        """Of a run that has been made: lengths of its inputs, None for those in regions; and its outputs, of which some
        were in regions. Raises InvalidParameter where the others have no room in a packet."""
        layout = PlanLayout(input_bytes, [None if at in in_regions else one.nbytes for at, one in enumerate(outputs)])
        self.number = number
        self.pack, self.head = layout.pack_request, layout.reply_head
        self.reply_bytes = layout.reply_bytes
        self.message_prefix = request_prefix(layout)
        # Whether no tensor is in a region.
        self.is_inline = not layout.region_count
        self.inline_inputs = [at for at, size in enumerate(input_bytes) if size is not None]
        self.region_inputs = [at for at, size in enumerate(input_bytes) if size is None]
        self.region_outputs = [(at, outputs[at].nbytes, (outputs[at].dtype, outputs[at].shape)) for at in in_regions]
        # Shape, data type and offset of each output in the reply; None for those in regions.
        self.places = [
            None if offset is None else (one.shape, one.dtype, offset)
            for one, offset in zip(outputs, layout.output_offsets, strict=True)
        ]

    def outputs(self, reply: bytes) -> list[Any]:
        """Views of the outputs in a planned reply; None for those in regions."""
        return [None if place is None else np.ndarray(place[0], place[1], reply, place[2]) for place in self.places]

    def unpacked(self, signature: "Signature", reply: Any) -> list[Elements]:
        """The outputs of a RunReply, which came in place of a planned one. Raises the error that it carries instead."""
        return signature.results(reply, {})

    def located(self, results: Sequence[Elements]) -> list[Elements]:
        """The outputs of a reply that came in another way."""
        return list(results)


class Plans:
    """The plans of a signature."""

    def __init__(self, session: Session) -> None:
        """There are none where the daemon keeps none."""
        # By the shapes of the inputs.
        self.known: dict[Shapes, Plan] = {}
        self._tries: dict[Shapes, int] = {}
        self._most = _MOST_PLANS if FEATURE in session.welcome.features else 0
        self._numbers = session.plan_numbers

    def announced(self, shapes: Shapes) -> int:
        """The number of a plan that the daemon is to be asked for; 0 where it isn't."""
        tries = self._tries.get(shapes, 0)
        if tries >= _MOST_TRIES or (not tries and len(self._tries) >= self._most):
            return 0
        self._tries[shapes] = tries + 1
        return next(self._numbers)

    def keep(
        self,
        shapes: Shapes,
        number: int,
        input_bytes: Sequence[int | None],
        outputs: Sequence[Any],
        in_regions: Collection[int],
    ) -> None:
        """Have later runs go as this one, which the daemon keeps."""
        with suppress(InvalidParameter):
            self.known[shapes] = Plan(number, input_bytes, outputs, in_regions)
