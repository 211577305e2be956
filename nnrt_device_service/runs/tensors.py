"""Tensors of runs that lie in regions of buffers, which the client may read and write meanwhile."""

from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy

import numpy as np

from nnrt_device_service.memory.buffers import DerivedFromRegions, Region
from nnrt_device_service.memory.device_memory import DeviceMemory, DeviceRange
from nnrt_device_service.memory.freeing import device_faults
from nnrt_device_service.sessions.descriptions import NOWHERE, REGION, Description
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.tensor import Array, TensorForm, TensorSpec, flat_bytes

# Runs that allocate less are not counted: their number is limited by the slots.
UNCOUNTED_BYTES = 1 << 20

RegionView = memoryview | DeviceRange


class OutputRegions:
    """Checked buffer regions for the outputs of a run, with arrays on them once all output shapes are known."""

    def __init__(
        self,
        session: Session,
        forms: Sequence[TensorForm],
        regions: Sequence[Region | None],
        may_stay: bool,
    ) -> None:
        """Check the regions; None stands for an output that goes to no region.

        If `may_stay`, the backend itself writes the outputs that lie in the device's memory. Raises
        InvalidParameter or UnknownHandle for a region that doesn't exist or is too small.
        """
        self._may_stay = may_stay
        self._views: list[RegionView | None] = []
        # Memory of the device that the regions lie in.
        self.memories: set[DeviceMemory] = set()
        # Range of offsets that outputs are written to, as (begin, end) by buffer id.
        self._spans: dict[int, tuple[int, int]] = {}
        self._forms = forms
        self.are_known = True
        arrays: list[Array | None] = []
        for index, region in enumerate(regions):  # One loop, for speed.
            view = array = None
            if region is not None:
                form = forms[index]
                view = self._open_view(session, index, form, region)
                if form.size_bytes >= 0:
                    array = self._array_in(view, form)
                else:
                    self.are_known = False
            self._views.append(view)
            arrays.append(array)
        # Either all outputs are written to their regions or none, so none may be written before all shapes are known.
        self.arrays: Sequence[Array | None] = arrays if self.are_known else ()

    def _open_view(self, session: Session, index: int, form: TensorForm, region: Region) -> RegionView:
        buffer_id, start, size_bytes = region.buffer_id, region.offset, region.data_size
        try:
            if form.size_bytes > size_bytes:
                raise InvalidParameter(f"it has {form.size_bytes} bytes, its region {size_bytes}; give it more")
            view = session.buffers.writable_region(buffer_id, start, size_bytes)
        except NnrtError as error:
            raise error.at(f"output {index}") from error
        if (span := self._spans.get(buffer_id)) is None:
            self._spans[buffer_id] = start, start + size_bytes
        else:
            self._spans[buffer_id] = min(span[0], start), max(span[1], start + size_bytes)
        if isinstance(view, DeviceRange):
            self.memories.add(view.memory)
        return view

    def _array_in(self, view: RegionView | None, form: TensorForm | None) -> Array | None:
        """Return an array at a region, or None if its form is unknown or the backend can't write there."""
        if view is None or form is None or not form.size_bytes:
            return None
        if isinstance(view, DeviceRange):
            return view.as_run_tensor(form) if self._may_stay else None
        array: Array = np.ndarray(form.shape, form.dtype, view)
        return array if array.flags.aligned else None

    def set_specs(self, specs: Sequence[TensorSpec]) -> None:
        """Make arrays on the regions if the shapes of all outputs for regions are known and fit."""
        forms = [
            None if spec.is_dynamic else form.of_run(spec.shape) for form, spec in zip(self._forms, specs, strict=True)
        ]
        pairs = list(zip(self._views, forms, strict=True))
        if all(view is None or (form is not None and form.size_bytes <= view.nbytes) for view, form in pairs):
            self.are_known = True
            self.arrays = [self._array_in(view, form) for view, form in pairs]

    def may_overlap(self, region: Region) -> bool:
        """Return whether an input's region may overlap outputs; true also if it lies between two of them."""
        first, end = self._spans.get(region.buffer_id, (0, 0))
        return region.offset < end and first < region.offset + region.data_size

    def write(self, outputs: Sequence[Array]) -> bool:
        """Copy the outputs that aren't in their regions yet, and return whether all are there now.

        Copies none and returns False if one is larger than its region. Raises UnavailableDevice if the device fails.
        """
        arrays = self.arrays or (None,) * len(outputs)
        to_copy = [
            (view, output)
            for view, output, array in zip(self._views, outputs, arrays, strict=True)
            if view is not None and output is not array
        ]
        if any(output.nbytes > view.nbytes for view, output in to_copy):
            return False
        for view, output in to_copy:
            put(view, flat_bytes(np.ascontiguousarray(output)))
        return True


def put(view: RegionView, data: memoryview) -> None:
    """Write data to the beginning of a region; raise UnavailableDevice if the device fails."""
    if isinstance(view, memoryview):
        view[: data.nbytes] = data
    else:
        view.write(data)


def may_stay(model: LoadedModel) -> bool:
    """Return whether a model's tensors may stay in the device's memory, where the backend accesses them.

    They may not if the model's runs may be batched, because the host joins and splits the tensors of a batch.
    """
    return model.shared.prepared.takes_device_buffers and model.group is None


class RegionTensors(DerivedFromRegions):
    """Checked tensors of a run that lie in regions: inputs read in place, inputs copied first, and regions for outputs.

    Later runs with the same description and regions use the same object.
    """

    __slots__ = (
        "_copied_bytes",
        "_description",
        "_may_stay",
        "_memories",
        "_read_in_place",
        "_targets",
        "copied",
        "inputs",
    )

    def __init__(self, session: Session, description: Description, regions: Sequence[Region]) -> None:
        """Check the regions; raise InvalidParameter or UnknownHandle for one that doesn't exist or doesn't fit."""
        model, given = description.model, iter(regions)
        self._description = description
        self._may_stay = may_stay(model) and not description.profile
        read = [next(given) if tensor.place == REGION else None for tensor in description.inputs]
        self._targets: OutputRegions | None = None
        if description.writes_regions:
            written = [next(given) if tensor.place == REGION else None for tensor in description.outputs]
            self._targets = OutputRegions(session, model.outputs, written, self._may_stay)
        # Memory of the device that the run reads or writes.
        self._memories: set[DeviceMemory] = set(self._targets.memories) if self._targets is not None else set()
        # Indexes of the inputs that each run copies first, and their size.
        self.copied: list[int] = []
        self._copied_bytes = 0
        # Inputs that the run reads in place, where the client may write meanwhile.
        self._read_in_place: list[Array] = []
        # All inputs, as arrays at their regions; None for an input in no region.
        self.inputs: list[Array | None] = []
        for index, region in enumerate(read):
            try:
                self.inputs.append(self._input(session, index, region) if region is not None else None)
            except NnrtError as error:
                raise error.at(f"input {index}") from error

    @property
    def targets(self) -> OutputRegions | None:
        """Regions of the outputs of one run, or None if none goes to a region."""
        targets = self._targets
        # `set_specs` changes them for one run, so each run gets a copy.
        return targets if targets is None or targets.are_known else copy(targets)

    @property
    def needs_reserve(self) -> bool:
        """True if a run has to call `reserve`, as it uses the device's memory or large copies.

        (Copies can be large although the budget counts their regions: each input may name the same region.)
        """
        return self._copied_bytes >= UNCOUNTED_BYTES or bool(self._memories)

    def reserve(self, session: Session, resources: ExitStack) -> None:
        """Keep buffers on the device alive, and reserve bytes for one run's copies, until `resources` is closed.

        Raises UnknownHandle if a buffer has been released, and OutOfMemory.
        """
        for memory in self._memories:
            resources.enter_context(memory)
        resources.enter_context(session.budget.reserved(self._copied_bytes))

    def _input(self, session: Session, index: int, region: Region) -> Array:
        """Return an input as an array at its region.

        Raises InvalidParameter or UnknownHandle for a region that doesn't exist or has another size.
        """
        tensor = self._description.inputs[index]
        view = session.buffers.region(region.buffer_id, region.offset, region.data_size)
        if view.nbytes != tensor.size_bytes:
            raise InvalidParameter(f"there are {view.nbytes} bytes of data; {tensor.form.spec} has {tensor.size_bytes}")
        is_read_in_place = index in self._description.model.shared.prepared.reads_in_place
        if isinstance(view, DeviceRange):
            self._memories.add(view.memory)
            stays = self._may_stay and is_read_in_place
            if stays and (there := view.as_run_tensor(tensor.form)) is not None:
                return there
            return self._copy(index, view.as_copyable(tensor.form))
        # numpy makes no array from an empty buffer, not even an empty one.
        array: Array = np.ndarray(tensor.shape, tensor.dtype, view if view.nbytes else bytes(tensor.dtype.itemsize))
        if is_read_in_place and array.flags.aligned and not (self._targets and self._targets.may_overlap(region)):
            self._read_in_place.append(array)
            return array
        return self._copy(index, array)

    def _copy(self, index: int, tensor: Array) -> Array:
        self.copied.append(index)
        self._copied_bytes += tensor.nbytes
        return tensor

    def make_sendable(self, outputs: Sequence[Array], is_written: bool) -> Sequence[Array]:
        """Return the outputs, but copy those that share memory with an input, and those to send from the device.

        (The client may write to its inputs before the reply is sent.) Raises UnavailableDevice if the device fails.
        """
        if not (self._read_in_place or self._memories):
            return outputs
        described = self._description.outputs
        return [
            output
            if (is_written and described[index].place == REGION)
            or (isinstance(output, DeviceRegion) and described[index].place == NOWHERE)
            else _owned(on_host(output), self._read_in_place)
            for index, output in enumerate(outputs)
        ]


def find_tensors(session: Session, description: Description, regions: Sequence[int], key: bytes) -> RegionTensors:
    """Return the tensors of a run that lie in regions, each given by three numbers.

    With a `key` the result is kept for later runs with the same description and regions. Raises as `RegionTensors`.
    """
    buffers = session.buffers
    kept = buffers.kept((description.token, key)) if key else None
    if isinstance(kept, RegionTensors):
        return kept
    releases = buffers.releases
    tensors = RegionTensors(session, description, list(map(Region, regions[::3], regions[1::3], regions[2::3])))
    if key:
        buffers.keep((description.token, key), tensors, len(regions) // 3, releases)
    return tensors


def frozen_copy(tensor: Array) -> Array:
    """Return a read-only copy of a tensor; raise UnavailableDevice if the device fails."""
    copy: Array = tensor.copy()
    copy.flags.writeable = False
    return copy


def _owned(output: Array, left: Sequence[Array]) -> Array:
    return output.copy() if any(np.may_share_memory(output, array) for array in left) else output


def on_host(tensor: Array) -> Array:
    """Return a tensor as an array on the host, copied if it lies in the device's memory.

    The output may lie in the backend's own buffer, so this function also converts the buffer's exceptions.
    """
    if isinstance(tensor, DeviceRegion):
        with device_faults("read a result"):
            return tensor.copy()
    return tensor
