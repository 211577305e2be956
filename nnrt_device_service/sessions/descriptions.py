"""Run descriptions of a session: properties that runs of one kind share, by a number that the client chose."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.scheduling.joinable import Bucket
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.payers import ServedIdentity
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.limits import MAX_DESCRIPTIONS
from nnrt_hdi.sequences import Keeping
from nnrt_hdi.tensor import Array, Shape, TensorForm
from nnrt_hdi.wire.packet import FrameLayout

# Where a tensor is (TensorPlace in prepared_model.proto): in the frame, in a region of a buffer, in chunks behind the
# frame, nowhere, because the client doesn't want it, or in the run's sequence.
INLINE, REGION, CHUNKS, NOWHERE, SEQUENCE = range(5)

# Estimated size of a description, and of each of its tensors.
_DESCRIPTION_BYTES = 2048
_TENSOR_BYTES = 512
# Estimated size of the account and the counters of an identity on whose behalf runs are.
_SERVED_BYTES = 8192


class DescribedInput(NamedTuple):
    """Input of runs of one kind."""

    form: TensorForm
    shape: Shape
    dtype: np.dtype[np.generic]
    size_bytes: int
    place: int
    # Number of the value that it is, in a sequence.
    value: int = 0


class DescribedOutput(NamedTuple):
    """Output of runs of one kind, as the client expects it."""

    shape: Shape
    dtype: np.dtype[np.generic] | None
    place: int
    size_bytes: int = 0
    # Whether its shape is known only when the run has ended.
    is_open: bool = False
    keeping: Keeping | None = None


class Description:
    """Properties that runs of one kind share: the model, and the type, shape and place of each tensor."""

    __slots__ = (
        "bucket",
        "expected_outputs",
        "has_chunks",
        "has_regions",
        "held_bytes",
        "in_bytes",
        "inline",
        "inputs",
        "is_of_sequence",
        "is_plain",
        "is_startable",
        "kept",
        "layout",
        "model",
        "model_id",
        "out_bytes",
        "outputs",
        "profile",
        "read_values",
        "served",
        "token",
        "traceparent",
        "wanted",
        "writes_regions",
    )

    def __init__(
        self,
        model_id: int,
        model: LoadedModel,
        inputs: Sequence[DescribedInput],
        outputs: Sequence[DescribedOutput],
        traceparent: str = "",
        profile: bool = False,
        served: ServedIdentity | None = None,
    ) -> None:
        """Make a description; its tensors must have been checked against the model.

        The runs count for `served`, or for the session if that is None.
        """
        self.model_id = model_id
        self.model = model
        self.inputs = inputs
        self.outputs = outputs
        self.traceparent = traceparent
        self.profile = profile
        self.served = served
        # Layout of frames, set by `lay_out`.
        self.layout = NO_LAYOUT
        # Inline inputs: shape, dtype and offset of each.
        self.inline: list[tuple[Shape, np.dtype[np.generic], int]] = []
        # Indexes of the outputs that the client wants, or None if it wants all.
        wanted = [index for index, tensor in enumerate(outputs) if tensor.place != NOWHERE]
        self.wanted = wanted if len(wanted) < len(outputs) else None
        # Shapes and types of these outputs; None if the client doesn't know all of them.
        self.expected_outputs: list[tuple[Shape, np.dtype[np.generic] | None]] | None = None
        if not any(outputs[index].is_open for index in wanted):
            self.expected_outputs = [(outputs[index].shape, outputs[index].dtype) for index in wanted]
        # Index of each input that is a value of the run's sequence, and of each output that becomes one.
        self.read_values = [(index, tensor.value) for index, tensor in enumerate(inputs) if tensor.place == SEQUENCE]
        self.kept = [(index, tensor.keeping) for index, tensor in enumerate(outputs) if tensor.keeping is not None]
        self.is_of_sequence = bool(self.read_values or self.kept)
        # Whether a reply contains nothing but outputs if they are the expected ones; `out_bytes` is their size.
        self.is_plain = self.expected_outputs is not None and not (profile or traceparent)
        self.out_bytes = sum([tensor.size_bytes for tensor in outputs])
        read = [tensor.place for tensor in inputs]
        self.writes_regions = REGION in [tensor.place for tensor in outputs]
        self.has_regions = self.writes_regions or REGION in read
        self.has_chunks = CHUNKS in read
        # Identifies the description in keys of objects that may outlive it.
        self.token = object()
        # Bucket of runs that may be computed together with these. None for runs with regions or values, which are read
        # only when the run's turn has come.
        self.bucket: Bucket | None = None
        if model.group is not None and not (self.has_regions or self.has_chunks or profile or self.is_of_sequence):
            self.bucket = model.group.find_bucket([tensor.shape for tensor in inputs], self.served_name)
        # Whether runs need no thread while they are on the device.
        is_startable = model.shared.is_startable and model.group is None
        self.is_startable = is_startable and not (self.has_chunks or profile or self.is_of_sequence)
        self.in_bytes = sum([tensor.size_bytes for tensor in inputs])
        self.held_bytes = _DESCRIPTION_BYTES + _TENSOR_BYTES * (len(inputs) + len(outputs))
        if served is not None:
            self.held_bytes += _SERVED_BYTES

    @property
    def served_name(self) -> str:
        """Name of the identity on whose behalf the runs are, or empty."""
        return "" if self.served is None else self.served.identity.name

    def lay_out(self) -> None:
        """Compute the layout of frames."""
        output_bytes = [
            tensor.size_bytes if tensor.place == INLINE and not tensor.is_open else None for tensor in self.outputs
        ]
        input_bytes = [tensor.size_bytes if tensor.place == INLINE else None for tensor in self.inputs]
        places = [tensor.place for tensor in self.inputs] + [tensor.place for tensor in self.outputs]
        regions = places.count(REGION) + self.is_of_sequence
        self.layout = layout = FrameLayout(input_bytes, output_bytes, regions)
        self.inline = [
            (tensor.shape, tensor.dtype, offset)
            for tensor, offset in zip(self.inputs, layout.input_offsets, strict=True)
            if offset is not None
        ]

    def is_match(self, outputs: Sequence[Array], *, is_written: bool) -> bool:
        """Return whether outputs have the shapes and types that the client expects.

        `is_written` says whether the outputs for regions have been written there.
        """
        return all(
            expected.place == NOWHERE
            or (
                not expected.is_open
                and (expected.shape, expected.dtype) == (output.shape, output.dtype)
                and (is_written or expected.place != REGION)
            )
            for expected, output in zip(self.outputs, outputs, strict=True)
        )


NO_LAYOUT = FrameLayout((), (), 0)


class Descriptions:
    """Run descriptions of a session by number: at most MAX_DESCRIPTIONS, as far as its memory budget allows.

    Of those beyond, the identity that has most loses its oldest, so that none pushes out those of the others.
    Every run calls `get`, so it takes no lock.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._descriptions: dict[int, Description] = {}
        self._is_open = True
        self.get = self._descriptions.get

    def keep(self, number: int, description: Description) -> None:
        """Keep a description, in place of another if there are too many, unless the budget has no room for it."""
        try:
            self._budget.reserve(description.held_bytes)  # Without the lock: it may call back into other pools.
        except OutOfMemory:
            return
        with self._lock:
            dropped = [self._descriptions.pop(number, None)]
            if self._is_open:
                self._descriptions[number] = description
            else:
                dropped.append(description)
            if len(self._descriptions) > MAX_DESCRIPTIONS:
                dropped.append(self._descriptions.pop(self._oldest_of_most()))
        for each in dropped:
            if each is not None:
                self._budget.release(each.held_bytes)

    def forget(self, model: LoadedModel) -> None:
        """Forget all descriptions of a model that has been released."""
        self._forget(lambda each: each.model is model)

    def forget_served(self, is_over: Callable[[str], bool]) -> None:
        """Forget the descriptions of runs on behalf of those identities for whose names `is_over` is true."""
        names = {each.served_name for each in list(self._descriptions.values())} - {""}
        if over := set(filter(is_over, names)):
            self._forget(lambda each: each.served_name in over)

    def _forget(self, is_over: Callable[[Description], bool]) -> None:
        with self._lock:
            for number in [number for number, each in self._descriptions.items() if is_over(each)]:
                self._budget.release(self._descriptions.pop(number).held_bytes)

    def _oldest_of_most(self) -> int:
        """Return the number of the oldest description of the identity that has most."""
        ((most, _),) = Counter(each.served_name for each in self._descriptions.values()).most_common(1)
        return next(number for number, each in self._descriptions.items() if each.served_name == most)

    @property
    def held_bytes(self) -> int:
        """Bytes that the kept descriptions take."""
        return sum(each.held_bytes for each in list(self._descriptions.values()))

    def close(self) -> None:
        """Forget all descriptions and keep no more."""
        with self._lock:
            self._is_open = False
            while self._descriptions:
                self._budget.release(self._descriptions.popitem()[1].held_bytes)
