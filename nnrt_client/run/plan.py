"""Runs that the daemon knows but for their bytes and places: what is the same in all of them, worked out once."""

import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np

from nnrt_client.session.session import Session
from nnrt_client.tensors.device_buffer import Elements, Stored
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.signals import suppressed
from nnrt_hdi.wire.plans import FEATURE, REPLY_MARK, REQUEST_MARK, PlanLayout, request_prefix

if TYPE_CHECKING:
    from nnrt_client.run.run import Run

# Comprehensions would be frames of every small run.
_shape_of = attrgetter("shape")
_bytes_of = methodcaller("tobytes")

# Plans of one model, each for other shapes, and how often the daemon is asked to keep one.
_MOST_PLANS = 8
_MOST_ANNOUNCED = 64
# Shapes that are counted before counting begins anew.
_MOST_SEEN = 64

# Shapes of the inputs; where there are tensors, the kinds of inputs and outputs.
Key = tuple[Any, ...]


class Plan:
    """Runs with inputs and outputs of certain kinds, which the daemon keeps under a number (nnrt_hdi/wire/plans.py).

    It reads the replies of those whose tensors are all in the packets.
    """

    __slots__ = (
        "_dtypes",
        "_head",
        "_inline_inputs",
        "_offsets",
        "_pack",
        "_reply_bytes",
        "_shapes",
        "busy_ns",
        "is_inline",
        "is_local",
        "message_prefix",
        "number",
        "packet_bytes",
        "region_inputs",
        "region_outputs",
    )

    def __init__(
        self,
        number: int,
        input_bytes: Sequence[int | None],
        outputs: Sequence[Elements],
        in_regions: Collection[int],
        *,
        is_local: bool,
    ) -> None:
        """Of a run that has been made: lengths of its inputs, None for those in regions; and its outputs, of which some
        were in regions; and whether some of that is memory that only a daemon of this host can have. Raises
        InvalidParameter where the others have no room in a packet."""
        layout = PlanLayout(input_bytes, [None if at in in_regions else one.nbytes for at, one in enumerate(outputs)])
        self.number = number
        self._pack, self._head, self._reply_bytes = layout.pack_request, layout.reply_head, layout.reply_bytes
        # Of the longer one of request and reply.
        self.packet_bytes = max(layout.request_bytes, layout.reply_bytes)
        # How long the latest run waited for the device and was on it; for ever, before the first.
        self.busy_ns = sys.maxsize
        # Over gRPC, in front of the packet.
        self.message_prefix = request_prefix(layout)
        # Whether no tensor is in a region.
        self.is_inline = not (in_regions or None in input_bytes)
        self.is_local = is_local
        self._inline_inputs = [at for at, size in enumerate(input_bytes) if size is not None]
        self.region_inputs = [at for at, size in enumerate(input_bytes) if size is None]
        # Index, length, data type and shape.
        self.region_outputs = [(at, outputs[at].nbytes, (outputs[at].dtype, outputs[at].shape)) for at in in_regions]
        places = [(one, at) for one, at in zip(outputs, layout.output_offsets, strict=True) if at is not None]
        self._shapes = [one.shape for one, _ in places]
        self._dtypes = [one.dtype for one, _ in places]
        self._offsets = [at for _, at in places]

    def packed(self, run: "Run", regions: Iterable[int] = ()) -> bytes:
        """The request of a run, with the three numbers of each region."""
        inputs = run.inputs if self.is_inline else [run.inputs[at] for at in self._inline_inputs]
        timeout_ms = run.remaining_ms if run.timeout_ms else 0
        return self._pack(REQUEST_MARK, self.number, run.id, timeout_ms, *regions, *map(_bytes_of, inputs))

    def told(self, reply: bytes) -> tuple[int, Sequence[int]] | None:
        """The run_id in a planned reply, and its times as `wire.times_told` has them; None for one of another plan."""
        if len(reply) != self._reply_bytes:
            return None
        mark, run_id, *times = self._head(reply)
        self.busy_ns = times[1] + times[3]
        return (run_id, times) if mark == REPLY_MARK else None

    def outputs(self, reply: bytes) -> list[Any]:
        """Views of those outputs that are in a planned reply."""
        return list(map(np.ndarray, self._shapes, self._dtypes, repeat(reply), self._offsets))

    def unpacked(self, run: "Run", reply: Any) -> list[Elements]:
        """The outputs of a RunReply, which came in place of a planned one. Raises the error that it carries instead."""
        return run.signature.results(reply, {})

    def located(self, results: Sequence[Elements]) -> list[Elements]:
        """The outputs of a reply that came in another way."""
        return list(results)


class Plans:
    """The plans of a model: of the first shapes that runs have, and of others that come again."""

    def __init__(self, session: Session) -> None:
        """There are none where the daemon keeps none."""
        # The oldest first.
        self._known: dict[Key | None, Plan] = {}
        # Runs without a plan.
        self._seen: dict[Key, int] = {}
        # How often the daemon may still be asked for one.
        self._left = _MOST_ANNOUNCED if FEATURE in session.welcome.features else 0
        self._numbers = session.plan_numbers

    def of(self, run: "Run") -> Plan | None:
        """The plan of a run, if there is one."""
        if run.unwanted or run.fields:
            return None
        tensors = run.tensors
        return self._known.get(tuple(map(_shape_of, run.inputs)) if tensors is None else tensors.kinds)

    def announced(self, run: "Run") -> int:
        """The number under which the daemon is to keep a run that has no plan; 0 where it isn't."""
        if not self._left or run.unwanted or run.fields:
            return 0
        key = _key(run)
        if key is None or key in self._known:  # It has one, by which it can't go.
            return 0
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen == 1 and len(self._known) >= _MOST_PLANS:
            return 0
        self._left = max(self._left - 1, 0)
        return next(self._numbers)

    def keep(
        self,
        run: "Run",
        number: int,
        input_bytes: Sequence[int | None],
        outputs: Sequence[Elements],
        in_regions: Collection[int] = (),
    ) -> None:
        """Have later runs go as this one, which the daemon keeps. See `Plan`."""
        if (key := _key(run)) is None:
            return
        placed = [run.inputs[at] for at, size in enumerate(input_bytes) if size is None]
        placed += [outputs[at] for at in in_regions]
        in_memory = [one for one in placed if not isinstance(one, Stored)]
        with suppressed(InvalidParameter):
            plan = Plan(number, input_bytes, outputs, in_regions, is_local=bool(in_memory))
            if len(self._known) >= _MOST_PLANS:
                oldest, *_ = self._known.copy()
                self._known.pop(oldest, None)  # Another thread may do the same.
            self._known[key] = plan


def _key(run: "Run") -> Key | None:
    """What runs of the same plan have in common; None for one that can have none."""
    return tuple(map(_shape_of, run.inputs)) if run.tensors is None else run.tensors.kinds
