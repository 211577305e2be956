"""Tensors of runs that lie in regions of buffers, where the client may read and write meanwhile."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from nnrt_device_service.core.batches import UNCOUNTED_BYTES
from nnrt_device_service.sessions.device_memory import DeviceMemory, DevicePlace
from nnrt_device_service.sessions.freeing import device_faults
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.memory_budget import MemoryBudget
from nnrt_device_service.sessions.session import Session
from nnrt_hdi import wire
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.tensor import Array, TensorForm, TensorSpec, flat_bytes
from nnrt_hdi.wire.runs import AnyRegion
from nnrt_hdi.wire.tensors import require_size

Place = memoryview | DevicePlace


class OutputRegions:
    """The regions of buffers that the outputs of a run go to: checked, and as arrays where it is known what will be
    there. See `Places`."""

    def __init__(
        self,
        session: Session,
        forms: Sequence[TensorForm],
        regions: Sequence[AnyRegion | None],
        may_stay: bool,
    ) -> None:
        """Those that go to memory of the device are given to the run as regions of it if they `may_stay`.

        Raises InvalidParameter or UnknownHandle for regions that there aren't, or that are too small.
        """
        if len(regions) != len(forms):
            raise InvalidParameter(f"{len(regions)} regions for outputs were given; the model has {len(forms)}")
        self._regions = regions
        self._may_stay = may_stay
        self._places: list[Place | None] = []
        # The memory of the device that is among them.
        self.memories: set[DeviceMemory] = set()
        # From where to where outputs go, by buffer.
        self._spans: dict[int, tuple[int, int]] = {}
        self._forms = forms
        self.are_known = True
        arrays: list[Array | None] = []
        for index, region in enumerate(regions):  # One loop: runs of images come here.
            place = array = None
            if region is not None:
                form = forms[index]
                place = self._place(session, index, form, region)
                if form.size_bytes >= 0:
                    array = self._at(place, form)
                else:
                    self.are_known = False
            self._places.append(place)
            arrays.append(array)
        # Either all outputs go to their regions or none does, so that none is written there before all are known.
        self.arrays: Sequence[Array | None] = arrays if self.are_known else ()

    def _place(self, session: Session, index: int, form: TensorForm, region: AnyRegion) -> Place:
        buffer_id, start, size_bytes = region.buffer_id, region.offset, region.data_size
        try:
            if form.size_bytes > size_bytes:
                raise InvalidParameter(f"it has {form.size_bytes} bytes, its region {size_bytes}; give it more")
            place = session.buffers.writable_region(buffer_id, start, size_bytes)
        except NnrtError as error:
            raise error.at(f"output {index}") from error
        if (span := self._spans.get(buffer_id)) is None:
            self._spans[buffer_id] = start, start + size_bytes
        else:
            self._spans[buffer_id] = min(span[0], start), max(span[1], start + size_bytes)
        if isinstance(place, DevicePlace):
            self.memories.add(place.memory)
        return place

    def _at(self, place: Place | None, form: TensorForm | None) -> Array | None:
        """The memory of an output that is known before the run, if a processor may be told to write it there."""
        if place is None or form is None or not form.size_bytes:
            return None
        if isinstance(place, DevicePlace):
            return place.to_run(form) if self._may_stay else None
        array: Array = np.ndarray(form.shape, form.dtype, place)
        return array if array.flags.aligned else None

    def learn(self, specs: Sequence[TensorSpec]) -> None:
        """Make arrays of the regions, if all outputs that go to any are known, and fit."""
        forms = [
            None if spec.is_dynamic else form.of_run(spec.shape) for form, spec in zip(self._forms, specs, strict=True)
        ]
        pairs = list(zip(self._places, forms, strict=True))
        if all(place is None or (form is not None and form.size_bytes <= place.nbytes) for place, form in pairs):
            self.are_known = True
            self.arrays = [self._at(place, form) for place, form in pairs]

    def may_touch(self, region: AnyRegion) -> bool:
        """Tell whether outputs may be written to where an input is: in any case where it lies between two of them."""
        first, end = self._spans.get(region.buffer_id, (0, 0))
        return region.offset < end and first < region.offset + region.data_size

    def take(self, outputs: Sequence[Array]) -> Sequence[AnyRegion | None]:
        """Put the outputs there that aren't yet, and give the regions that they are in; if one is larger than its
        region, all stay where they are. Raises UnavailableDevice where the device fails."""
        arrays = self.arrays or (None,) * len(outputs)
        to_copy = [
            (place, output)
            for place, output, array in zip(self._places, outputs, arrays, strict=True)
            if place is not None and output is not array
        ]
        if not to_copy:
            return self._regions
        if any(output.nbytes > place.nbytes for place, output in to_copy):
            return [None] * len(outputs)
        for place, output in to_copy:
            put(place, flat_bytes(np.ascontiguousarray(output)))
        return self._regions


def put(place: Place, data: memoryview) -> None:
    """Replace the first bytes there. Raises UnavailableDevice where the device fails."""
    if isinstance(place, memoryview):
        place[: data.nbytes] = data
    else:
        place.write(data)


def may_stay(model: LoadedModel) -> bool:
    """Tell whether runs of a model get memory of the device as it is. What is joined is put together by the host."""
    return model.prepared.takes_device_buffers and model.group is None


class InputRegions:
    """The inputs of a run that lie in regions of buffers: which are read where they are, and which are copied first."""

    __slots__ = ("_may_stay", "_model", "_targets", "copied", "copied_bytes", "left", "memories")

    def __init__(self, model: LoadedModel, targets: OutputRegions | None, may_stay: bool) -> None:
        """Those in memory of the device stay there if they `may_stay`."""
        self._model = model
        self._targets = targets
        self._may_stay = may_stay
        # The memory of the device that the run reads or writes.
        self.memories: set[DeviceMemory] = targets.memories if targets is not None else set()
        # Indexes of those that are copied first, and their bytes.
        self.copied: list[int] = []
        self.copied_bytes = 0
        # Those that the run reads where the client may go on writing.
        self.left: list[Array] = []

    @property
    def holds(self) -> bool:
        """Tell if a run is to be in a block of `held`: each input may name the same gigabyte."""
        return self.copied_bytes >= UNCOUNTED_BYTES or bool(self.memories)

    def add(self, session: Session, index: int, form: TensorForm, region: AnyRegion) -> Array:
        """Find one more: the tensor where it is. Raises InvalidParameter or UnknownHandle for a region that there
        isn't, or that has another size."""
        place = session.buffers.region(region.buffer_id, region.offset, region.data_size)
        if isinstance(place, DevicePlace):
            return self._add_on_device(index, form, place)
        array = wire.array_from_bytes(place, form)
        if (
            index in self._model.prepared.reads_in_place
            and array.flags.aligned
            and (self._targets is None or not self._targets.may_touch(region))
        ):
            self.left.append(array)
        else:
            self._copy(index, array)
        return array

    def _add_on_device(self, index: int, form: TensorForm, place: DevicePlace) -> Array:
        require_size(place.nbytes, form)
        self.memories.add(place.memory)
        stays = self._may_stay and index in self._model.prepared.reads_in_place
        if stays and (region := place.to_run(form)) is not None:
            return region
        region = place.to_copy(form)
        self._copy(index, region)
        return region

    def _copy(self, index: int, tensor: Array) -> None:
        self.copied.append(index)
        self.copied_bytes += tensor.nbytes


def frozen_copy(tensor: Array) -> Array:
    """Copy a tensor, which nobody changes any more then. Raises UnavailableDevice where the device fails."""
    copy: Array = tensor.copy()
    copy.flags.writeable = False
    return copy


@contextmanager
def held(memories: Collection[DeviceMemory], copied_bytes: int, budget: MemoryBudget) -> Iterator[None]:
    """Hold in this block what a run uses: memory of the device, and copies, which count in the session.

    Raises UnknownHandle where a buffer has been released, OutOfMemory.
    """
    with ExitStack() as held:
        for memory in memories:
            held.enter_context(memory)
        held.enter_context(budget.reserved(copied_bytes))
        yield


def sendable(outputs: Sequence[Array], regions: Sequence[AnyRegion | None], left: Sequence[Array]) -> list[Array]:
    """The outputs, of which none that is still to be sent lies in an input, where the client may write again; nor in
    memory of the device. Raises UnavailableDevice where the device fails."""
    return [
        output if regions and regions[index] is not None else _apart(_on_host(output), left)
        for index, output in enumerate(outputs)
    ]


def _apart(output: Array, left: Sequence[Array]) -> Array:
    return output.copy() if any(np.may_share_memory(output, array) for array in left) else output


def _on_host(tensor: Array) -> Array:
    """The tensor as an array. What the backend gives for a result is not guarded by the daemon."""
    if isinstance(tensor, DeviceRegion):
        with device_faults("read a result"):
            return tensor.copy()
    return tensor
