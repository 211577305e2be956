"""Descriptions: the data that runs with equal shapes share in their frames (nnrt_hdi/wire/packet.py)."""

import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from nnrt_client.run.run_tensors import RunTensors
from nnrt_client.run.signature import Signature
from nnrt_client.session.session import Session
from nnrt_client.session.staging_pool import pooled_bytes
from nnrt_client.tensors.device_buffer import DeviceBuffer, Elements, Kept, Stored
from nnrt_hdi.chunks import beyond_inline
from nnrt_hdi.compression import INLINE_BYTES as COMPRESSED_INLINE_BYTES
from nnrt_hdi.sequences import Keeping
from nnrt_hdi.tensor import Shape
from nnrt_hdi.v2 import model_pb2, prepared_model_pb2
from nnrt_hdi.wire.packet import FrameLayout

# A packet of the local socket carries tensors up to the first size, and per direction up to the second in all.
INLINE_BYTES = 16 << 10
PACKET_INLINE_BYTES = 40 << 10
# Number of descriptions that a model keeps; the oldest goes first.
_MOST_KINDS = 64
# Number of identities on whose behalf runs were made lately, each with descriptions of its own.
_MOST_SERVED = 256
# Number of descriptions in a row that may serve no second run; see Kinds.
_MOST_IN_VAIN = 8

INLINE = prepared_model_pb2.TENSOR_PLACE_INLINE
REGION = prepared_model_pb2.TENSOR_PLACE_REGION
CHUNKS = prepared_model_pb2.TENSOR_PLACE_CHUNKS
NOWHERE = prepared_model_pb2.TENSOR_PLACE_NOWHERE
SEQUENCE = prepared_model_pb2.TENSOR_PLACE_SEQUENCE

# `map` with this is quicker than a comprehension, which adds a Python frame to every small run.
_shape_of = attrgetter("shape")

# Key of runs that share a description: the shapes of the inputs; with Tensors, the kinds of inputs and outputs.
Kind = tuple[Any, ...]


class RunInSequence(NamedTuple):
    """Sequence of a run, the number of the operation, and how outputs become values, by index."""

    sequence_id: int
    operation: int
    keepings: "tuple[tuple[int, Keeping], ...]"


class Describable(Protocol):
    """Part of a run on which its description depends."""

    signature: Signature
    inputs: Sequence[Elements]
    tensors: RunTensors | None
    unwanted: Sequence[int]
    sequence: RunInSequence | None


class Described(NamedTuple):
    """Tensor in a description: its type and shape, and where its bytes travel (TensorPlace)."""

    data_type: int
    dtype: np.dtype[np.generic]
    # Empty for an open output, whose shape is known only after the run.
    shape: Shape
    # For an open output, the size of the memory reserved for it.
    size_bytes: int
    place: Any
    is_open: bool = False
    # Number of the value that an input is, and how an output becomes one.
    value: int = 0
    keeping: Keeping | None = None


class Description:
    """Data that runs of one kind share: the model, the shape of each tensor, and where its bytes travel.

    The daemon keeps a description under its number. A description numbered 0 is not kept: every run carries it.
    """

    __slots__ = (
        "busy_ns",
        "chunked_inputs",
        "dtypes",
        "elsewhere",
        "frame_bytes",
        "has_open_outputs",
        "inline_inputs",
        "is_answered",
        "is_inline",
        "kinds",
        "layout",
        "message",
        "number",
        "offsets",
        "region_inputs",
        "region_outputs",
        "shapes",
        "was_forgotten",
    )

    def __init__(
        self,
        kinds: "Kinds",
        number: int,
        model_id: int,
        inputs: Sequence[Described],
        outputs: Sequence[Described],
        on_behalf_of: str = "",
    ) -> None:
        # The owner, which learns the shapes of outputs from the runs.
        self.kinds = kinds
        self.number = number
        # Whether the daemon has the description: it has answered a run that carried it.
        self.is_answered = False
        self.was_forgotten = False
        # Nanoseconds that the latest run waited for the device and computed; infinite before the first run.
        self.busy_ns = sys.maxsize
        self.inline_inputs = [at for at, one in enumerate(inputs) if one.place == INLINE]
        self.region_inputs = [at for at, one in enumerate(inputs) if one.place == REGION]
        self.chunked_inputs = [at for at, one in enumerate(inputs) if one.place == CHUNKS]
        self.has_open_outputs = any(one.is_open for one in outputs)
        # Pairs of an output's index and the bytes to reserve for it.
        self.region_outputs = [(at, one.size_bytes) for at, one in enumerate(outputs) if one.place == REGION]
        is_of_sequence = any(one.value for one in inputs) or any(one.keeping for one in outputs)
        self.layout = layout = FrameLayout(
            [one.size_bytes if one.place == INLINE else None for one in inputs],
            [] if self.has_open_outputs else [one.size_bytes if one.place == INLINE else None for one in outputs],
            len(self.region_inputs) + len(self.region_outputs) + is_of_sequence,
        )
        # Size of the request or of the reply, whichever is longer, as far as known.
        self.frame_bytes = max(layout.request_bytes, layout.reply_bytes)
        # Whether all tensors travel in the frames.
        self.is_inline = len(self.inline_inputs) == len(inputs) and not self.region_outputs
        # Data types, shapes and offsets of inline outputs in a reply that is as described. The other outputs, by index.
        inline = [] if self.has_open_outputs else [one for one in outputs if one.place == INLINE]
        self.dtypes = [one.dtype for one in inline]
        self.shapes = [one.shape for one in inline]
        self.offsets = [at for at in layout.output_offsets if at is not None]
        self.elsewhere = [(at, one) for at, one in enumerate(outputs) if one.place != INLINE]
        self.message = prepared_model_pb2.RunDescription(
            model_id=model_id,
            inputs=map(tensor_message, inputs),
            outputs=map(tensor_message, outputs),
            on_behalf_of=on_behalf_of,
        ).SerializeToString()

    def forget(self) -> None:
        """Handle that the daemon has dropped the description: send it again with the next run.

        When the daemon drops it a second time, its memory is too short: from then on every run carries the description.
        Two runs under way may report the same drop; the second report is ignored.
        """
        if not self.is_answered:
            return
        self.is_answered = False
        if self.was_forgotten:
            self.number = 0
        self.was_forgotten = True


def tensor_message(one: Described) -> prepared_model_pb2.TensorDescription:
    """Return the message of a tensor."""
    message = prepared_model_pb2.TensorDescription(
        data_type=one.data_type,  # type: ignore[arg-type]  # The number of the enum's member.
        dimensions=one.shape,
        place=one.place,
        is_open=one.is_open,
        value=one.value,
    )
    if one.keeping is not None:
        message.value, message.appends, message.axis, message.window = one.keeping
    return message


class Descriptions:
    """Descriptions of a model's runs, separate for the local socket and for gRPC."""

    def __init__(self, session: Session, on_behalf_of: str = "") -> None:
        """Make them for the session's own runs, or for those on behalf of an identity."""
        self.local = Kinds(session, on_behalf_of, is_local=True)
        self.remote = Kinds(session, on_behalf_of, is_local=False)
        self._session = session
        # By identity, oldest first.
        self._served: dict[str, Descriptions] = {}

    def on_behalf_of(self, identity: str) -> "Descriptions":
        """Return the descriptions of runs on behalf of an identity. Any thread may call this."""
        found = self._served.get(identity)
        if found is None:
            found = Descriptions(self._session, identity)
            _put(self._served, identity, found, _MOST_SERVED)
        return found


class Kinds:
    """Descriptions of a model's runs over the local socket or over gRPC, by kind."""

    def __init__(self, session: Session, on_behalf_of: str = "", *, is_local: bool) -> None:
        self._session = session
        self._on_behalf_of = on_behalf_of
        self._is_local = is_local
        # Oldest first.
        self._known: dict[Kind, Description] = {}
        # Number of descriptions made in a row that no later run used, as for a model whose shapes grow with each run.
        # Beyond _MOST_IN_VAIN, a kind gets a description only when it comes a second time.
        self._described_in_vain = 0
        self._came_once: dict[Kind, None] = {}
        # Kinds whose outputs have different shapes in each run.
        self._varied: dict[Kind, None] = {}

    def describe(self, run: Describable) -> Description:
        """Return the description of a run."""
        kind = _kind_of(run)
        description = None if kind is None else self._known.get(kind)
        if description is None:
            return self._new(run, kind)
        self._described_in_vain = 0
        return description

    def _new(self, run: Describable, kind: Kind | None) -> Description:
        """Make the description of a new kind. Keep it if it has the shapes of all outputs."""
        signature = run.signature
        shapes = [None if form.size_bytes < 0 else form.shape for form in signature.output_forms]
        return self._described(run, kind, shapes)

    def _described(self, run: Describable, kind: Kind | None, shapes: Sequence[Shape | None]) -> Description:
        inputs = list(self._inputs(run))
        outputs = list(self._outputs(run, shapes))
        is_open = any(one.is_open for one in outputs)
        is_kept = kind is not None and not is_open and all(one.place != CHUNKS for one in inputs)
        number = next(self._session.description_numbers) if is_kept else 0
        description = Description(self, number, run.signature.model_id, inputs, outputs, self._on_behalf_of)
        if is_kept and kind is not None:
            _put(self._known, kind, description, _MOST_KINDS)
        return description

    def learn(self, run: Describable, description: Description, results: Sequence[Elements]) -> None:
        """Make a description for later runs of this kind, with the output shapes of this run.

        If the description already had other shapes, they differ from run to run: later descriptions leave them open.
        """
        kind = _kind_of(run)
        if kind is None or kind in self._varied:
            return
        if description.has_open_outputs:
            if self._described_in_vain >= _MOST_IN_VAIN and kind not in self._came_once:
                _put(self._came_once, kind, None, _MOST_KINDS)
                return
            self._described_in_vain += 1
            self._described(run, kind, [one.shape for one in results])
        elif any(
            one.shape != shape for one, shape in zip(results, _promised(description), strict=True) if shape is not None
        ):
            self._known.pop(kind, None)
            _put(self._varied, kind, None, _MOST_KINDS)

    def _inputs(self, run: Describable) -> Iterator[Described]:
        given: Sequence[Any] = run.inputs
        if self._is_local:
            chunked, room, most = set[int](), PACKET_INLINE_BYTES, INLINE_BYTES
        else:
            inline_bytes = self._session.welcome.limits.message_bytes
            if self._session.compressor is not None:
                inline_bytes = min(COMPRESSED_INLINE_BYTES, inline_bytes)
            sizes = (0 if isinstance(one, Stored) else one.nbytes for one in given)
            chunked, room, most = beyond_inline(sizes, inline_bytes), sys.maxsize, sys.maxsize
        for at, (form, one) in enumerate(zip(run.signature.input_forms, given, strict=True)):
            size_bytes = one.nbytes
            if isinstance(one, Kept):
                yield Described(form.data_type, one.dtype, one.shape, 0, SEQUENCE, value=one.value)
                continue
            if isinstance(one, Stored):
                place = REGION
            elif at in chunked:
                place = CHUNKS
            elif size_bytes <= min(room, most):
                room -= size_bytes
                place = INLINE
            else:
                place = REGION
            yield Described(form.data_type, one.dtype, one.shape, size_bytes, place)

    def _outputs(self, run: Describable, shapes: Sequence[Shape | None]) -> Iterator[Described]:
        signature, tensors, room = run.signature, run.tensors, PACKET_INLINE_BYTES
        targets = None if tensors is None else tensors.targets
        keepings = dict(run.sequence.keepings) if run.sequence is not None else {}
        for at, (form, shape) in enumerate(zip(signature.output_forms, shapes, strict=True)):
            target, is_open = None if targets is None else targets[at], shape is None
            assert form.dtype is not None
            size_bytes = (
                signature.expected_bytes(at)
                if shape is None
                else form.dtype.itemsize * int(np.prod(shape, dtype=object))
            )
            if isinstance(target, DeviceBuffer):
                place = REGION
            elif target is None and at in run.unwanted:
                place = NOWHERE
            elif not self._is_local:
                place = INLINE
            elif size_bytes <= min(INLINE_BYTES, room) and not (is_open and target is not None):
                room -= size_bytes  # The size of an open output counts as 0 before the first run.
                place = INLINE
            elif (target is not None and target.is_sealed) or size_bytes:
                place = REGION
                size_bytes = pooled_bytes(size_bytes) if is_open else size_bytes
            else:
                place = INLINE
            is_open = is_open and place != NOWHERE
            yield Described(
                form.data_type, form.dtype, shape or (), size_bytes, place, is_open, keeping=keepings.get(at)
            )


def _promised(description: Description) -> list[Shape | None]:
    """Return the output shapes of a description, with None for each output that the client doesn't want."""
    elsewhere = {at: None if one.place == NOWHERE else one.shape for at, one in description.elsewhere}
    inline = iter(description.shapes)
    count = len(elsewhere) + len(description.shapes)
    return [elsewhere[at] if at in elsewhere else next(inline) for at in range(count)]


def _kind_of(run: Describable) -> Kind | None:
    """Return the key of a run's kind, or None for a run that can't share a description."""
    tensors = run.tensors
    kind = tuple(map(_shape_of, run.inputs)) if tensors is None else tensors.kinds
    if run.sequence is not None and kind is not None:
        read = tuple([one.value if isinstance(one, Kept) else 0 for one in run.inputs])
        kind = (kind, read, run.sequence.keepings)
    return (kind, *run.unwanted) if run.unwanted and kind is not None else kind


def _put(entries: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Add an entry, and drop the oldest one if there are too many. Any thread may call this."""
    if len(entries) >= most:
        oldest, *_ = entries.copy()
        entries.pop(oldest, None)  # Another thread may have removed it.
    entries[key] = value


def region_of(buffer: DeviceBuffer | None) -> "model_pb2.BufferRegion":
    """Return the region of a buffer, or an empty region if there is no buffer (an unwanted output)."""
    return model_pb2.BufferRegion() if buffer is None else buffer.region
