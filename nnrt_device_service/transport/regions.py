"""Tensors of runs that lie in regions of buffers, where the client may read and write meanwhile."""

from collections.abc import Sequence

import numpy as np

from nnrt_device_service.sessions.session import Session
from nnrt_hdi.backend import PreparedModel
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.tensor import Array, TensorForm, TensorSpec, flat_bytes
from nnrt_hdi.wire.runs import AnyRegion


class OutputRegions:
    """The regions of buffers that the outputs of a run go to: checked, and as arrays where it is known what will be
    there. See `Places`."""

    def __init__(self, session: Session, forms: Sequence[TensorForm], regions: Sequence[AnyRegion | None]) -> None:
        """Raises InvalidParameter or UnknownHandle for regions that there aren't, or that are too small."""
        if len(regions) != len(forms):
            raise InvalidParameter(f"{len(regions)} regions for outputs were given; the model has {len(forms)}")
        self._regions = regions
        self._views: list[memoryview | None] = []
        # From where to where outputs go, by buffer.
        self._spans: dict[int, tuple[int, int]] = {}
        self._forms = forms
        self.are_known = True
        arrays: list[Array | None] = []
        for index, region in enumerate(regions):  # One loop: runs of images come here.
            view = array = None
            if region is not None:
                form = forms[index]
                view = self._view(session, index, form, region)
                if form.size_bytes >= 0:
                    array = _array_at(view, form)
                else:
                    self.are_known = False
            self._views.append(view)
            arrays.append(array)
        # Either all outputs go to their regions or none does, so that none is written there before all are known.
        self.arrays: Sequence[Array | None] = arrays if self.are_known else ()

    def _view(self, session: Session, index: int, form: TensorForm, region: AnyRegion) -> memoryview:
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
        return view

    def learn(self, specs: Sequence[TensorSpec]) -> None:
        """Make arrays of the regions, if all outputs that go to any are known, and fit."""
        forms = [
            None if spec.is_dynamic else form.of_run(spec.shape) for form, spec in zip(self._forms, specs, strict=True)
        ]
        pairs = list(zip(self._views, forms, strict=True))
        if all(view is None or (form is not None and form.size_bytes <= view.nbytes) for view, form in pairs):
            self.are_known = True
            self.arrays = [_array_at(view, form) for view, form in pairs]

    def may_touch(self, region: AnyRegion) -> bool:
        """Tell whether outputs may be written to where an input is: in any case where it lies between two of them."""
        first, end = self._spans.get(region.buffer_id, (0, 0))
        return region.offset < end and first < region.offset + region.data_size

    def take(self, outputs: Sequence[Array]) -> Sequence[AnyRegion | None]:
        """Put the outputs there that aren't yet, and give the regions that they are in; if one is larger than its
        region, all stay where they are."""
        arrays = self.arrays or (None,) * len(outputs)
        to_copy = [
            (view, output)
            for view, output, array in zip(self._views, outputs, arrays, strict=True)
            if view is not None and output is not array
        ]
        if not to_copy:
            return self._regions
        if any(output.nbytes > view.nbytes for view, output in to_copy):
            return [None] * len(outputs)
        for view, output in to_copy:
            view[: output.nbytes] = flat_bytes(output)
        return self._regions


def _array_at(view: memoryview | None, form: TensorForm | None) -> Array | None:
    """The memory of an output that is known before the run, if a processor may be told to write it there."""
    if view is None or form is None or not form.size_bytes:
        return None
    array: Array = np.ndarray(form.shape, form.dtype, view)
    return array if array.flags.aligned else None


def is_left(
    prepared: PreparedModel,
    targets: OutputRegions | None,
    index: int,
    array: Array,
    region: AnyRegion,
) -> bool:
    """Tell whether an input can stay where the client may go on writing, and the run's own outputs don't go."""
    if index not in prepared.reads_in_place or not array.flags.aligned:
        return False
    return targets is None or not targets.may_touch(region)


def apart(outputs: Sequence[Array], regions: Sequence[AnyRegion | None], left: Sequence[Array]) -> list[Array]:
    """The outputs, of which none that is still to be sent lies in an input: the client may write there again."""
    return [
        output.copy()
        if not (regions and regions[index]) and any(np.may_share_memory(output, array) for array in left)
        else output
        for index, output in enumerate(outputs)
    ]


def frozen_copy(array: Array) -> Array:
    copy: Array = array.copy()
    copy.flags.writeable = False
    return copy
