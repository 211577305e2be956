"""The descriptions of a session: what its runs of one kind have in common, by the numbers that its client gave them."""

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.scheduling.joinable import Bucket
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_hdi.backend import StartableModel
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.limits import MAX_DESCRIPTIONS
from nnrt_hdi.tensor import Array, Shape, TensorForm
from nnrt_hdi.wire.packet import FrameLayout

# Where a tensor is, by the numbers of the wire: in the frame, in a region of a buffer, in chunks behind the frame, or
# nowhere, for nobody wants it.
INLINE, REGION, CHUNKS, NOWHERE = range(4)

# What a description takes, and each of its tensors.
_DESCRIPTION_BYTES = 2048
_TENSOR_BYTES = 512


class DescribedInput(NamedTuple):
    """An input of runs of one kind."""

    form: TensorForm
    shape: Shape
    dtype: np.dtype[np.generic]
    size_bytes: int
    place: int


class DescribedOutput(NamedTuple):
    """An output of runs of one kind, as the client expects it."""

    shape: Shape
    dtype: np.dtype[np.generic] | None
    place: int
    size_bytes: int = 0
    # Its shape is not known before the run has ended.
    is_open: bool = False


class Description:
    """What runs of one kind have in common: the model, and the type, the shape and the place of each tensor."""

    __slots__ = (
        "bucket",
        "has_chunks",
        "has_regions",
        "held_bytes",
        "in_bytes",
        "inline",
        "inputs",
        "is_plain",
        "is_startable",
        "layout",
        "model",
        "model_id",
        "out_bytes",
        "outputs",
        "profile",
        "promised",
        "token",
        "traceparent",
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
    ) -> None:
        """Take tensors that are the model's."""
        self.model_id = model_id
        self.model = model
        self.inputs = inputs
        self.outputs = outputs
        self.traceparent = traceparent
        self.profile = profile
        # Where everything is in frames, once `lay_out` has been called.
        self.layout = NO_LAYOUT
        # The inputs that a frame has, as numpy takes them.
        self.inline: list[tuple[Shape, np.dtype[np.generic], int]] = []
        # The shapes and types of the outputs; None where the client doesn't want, or know, all of them.
        self.promised: list[tuple[Shape, np.dtype[np.generic] | None]] | None = None
        if not any(tensor.is_open or tensor.place == NOWHERE for tensor in outputs):
            self.promised = [(tensor.shape, tensor.dtype) for tensor in outputs]
        # A reply that is as promised says nothing but its outputs, of so many bytes.
        self.is_plain = self.promised is not None and not (profile or traceparent)
        self.out_bytes = sum([tensor.size_bytes for tensor in outputs])
        read = [tensor.place for tensor in inputs]
        self.writes_regions = REGION in [tensor.place for tensor in outputs]
        self.has_regions = self.writes_regions or REGION in read
        self.has_chunks = CHUNKS in read
        # Stands for the description where something outlives it.
        self.token = object()
        # Of the runs that this one may be computed with. What lies in regions is read when its turn has come.
        self.bucket: Bucket | None = None
        if model.group is not None and not (self.has_regions or self.has_chunks or profile):
            self.bucket = model.group.bucket([tensor.shape for tensor in inputs])
        # Whether its runs need no thread while they are on the device.
        is_startable = isinstance(model.prepared, StartableModel) and model.group is None
        self.is_startable = is_startable and not (self.has_chunks or profile)
        self.in_bytes = sum([tensor.size_bytes for tensor in inputs])
        self.held_bytes = _DESCRIPTION_BYTES + _TENSOR_BYTES * (len(inputs) + len(outputs))

    def lay_out(self) -> None:
        """Work out where everything is in frames."""
        output_bytes = [
            tensor.size_bytes if tensor.place == INLINE and not tensor.is_open else None for tensor in self.outputs
        ]
        input_bytes = [tensor.size_bytes if tensor.place == INLINE else None for tensor in self.inputs]
        places = [tensor.place for tensor in self.inputs] + [tensor.place for tensor in self.outputs]
        self.layout = layout = FrameLayout(input_bytes, output_bytes, places.count(REGION))
        self.inline = [
            (tensor.shape, tensor.dtype, offset)
            for tensor, offset in zip(self.inputs, layout.input_offsets, strict=True)
            if offset is not None
        ]

    def is_kept_by(self, outputs: Sequence[Array], *, is_written: bool) -> bool:
        """Tell whether outputs are as the client expects them, of which those for regions may be there."""
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
    """Finds descriptions by their numbers: the latest MAX_DESCRIPTIONS, as far as the session has memory for them.

    `get` is on the way of every run and takes no lock.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._descriptions: dict[int, Description] = {}
        self._is_open = True
        self.get = self._descriptions.get

    def keep(self, number: int, description: Description) -> None:
        """Keep a description in place of the oldest, if there is room for it."""
        try:
            self._budget.reserve(description.held_bytes)  # Without the lock: others may have to give memory back.
        except OutOfMemory:
            return
        with self._lock:
            dropped = [self._descriptions.pop(number, None)]
            if self._is_open:
                self._descriptions[number] = description
            else:
                dropped.append(description)
            if len(self._descriptions) > MAX_DESCRIPTIONS:
                dropped.append(self._descriptions.pop(next(iter(self._descriptions))))
        for each in dropped:
            if each is not None:
                self._budget.release(each.held_bytes)

    def forget(self, model: LoadedModel) -> None:
        """Forget all of a model that the session has no more."""
        with self._lock:
            for number in [number for number, each in self._descriptions.items() if each.model is model]:
                self._budget.release(self._descriptions.pop(number).held_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes that descriptions take."""
        return sum(each.held_bytes for each in list(self._descriptions.values()))

    def close(self) -> None:
        """Forget all descriptions. There can be no more of them."""
        with self._lock:
            self._is_open = False
            while self._descriptions:
                self._budget.release(self._descriptions.popitem()[1].held_bytes)
