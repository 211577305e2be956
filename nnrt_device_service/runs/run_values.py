"""Values of sequences that a run reads and makes."""

import math
from collections.abc import Sequence as Items
from functools import partial

import numpy as np

from nnrt_device_service.memory.device_memory import DeviceHeap, DeviceMemory, DeviceRange
from nnrt_device_service.scheduling.joinable import LoopMembership
from nnrt_device_service.sessions.descriptions import REGION, Description
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.sequences import Sequence, Sequences
from nnrt_device_service.sessions.values import BatchedRows, NewValue, Value, own
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.sequences import Keeping
from nnrt_hdi.tensor import Array, Shape, TensorForm, TensorSpec, data_type_of, format_shape


class RunValues:
    """Values of one run of a sequence, from when its turn has come until `end`."""

    __slots__ = ("_memories", "_read", "_sequences", "arrays", "largest_input", "membership", "rows", "sequence")

    def __init__(self, sequences: Sequences, sequence: Sequence, membership: LoopMembership | None = None) -> None:
        """Make it for an operation of the sequence that has begun; `membership` is that of a run of a loop."""
        self.membership = membership
        self._sequences = sequences
        self.sequence = sequence
        # The batch in which the run was computed, whose rows its outputs are.
        self.rows: BatchedRows | None = None
        # Arrays that the backend was given to write outputs to; empty if none of them is for a value.
        self.arrays: Items[Array | None] = ()
        # Memory of the device for outputs that become values, by index, and the memory of inputs.
        self._memories: dict[int, DeviceMemory] = {}
        self._read: list[DeviceMemory] = []
        # Index of the largest input that is a value; None if none is.
        self.largest_input: int | None = None

    def read(self, description: Description, inputs: list[Array]) -> None:
        """Put values in place of inputs; raise InvalidParameter if one doesn't fit the model."""
        model, values = description.model, self.sequence.values
        for index, number in description.read_values:
            form = model.inputs[index]
            try:
                inputs[index] = self._array(model, index, form, number, values.get(number))
            except NnrtError as error:
                raise error.at(f"input {index}" + (f" {form.name!r}" if form.name else "")) from error
        read = [index for index, _ in description.read_values]
        self.largest_input = max(read, key=lambda index: inputs[index].nbytes, default=None)

    def _array(self, model: LoadedModel, index: int, form: TensorForm, number: int, value: Value | None) -> Array:
        if value is None:
            self.sequence.require_open()
            raise InvalidParameter(f"sequence {self.sequence.id} has no value {number}; write it first")
        array = value.array
        if array.dtype != form.dtype or not form.spec.accepts(array.shape):
            raise InvalidParameter(
                f"value {number} of sequence {self.sequence.id} is {array.dtype.name}{format_shape(array.shape)}; the"
                f" model takes {form.spec}"
            )
        if value.memory is None:
            return array
        prepared = model.shared.prepared
        if prepared.takes_device_buffers and model.group is None and index in prepared.reads_in_place:
            value.memory.__enter__()
            self._read.append(value.memory)
            return array
        return value.on_host()

    def device_arrays(
        self, description: Description, heap: DeviceHeap, specs: Items[TensorSpec], given: Items[Array | None]
    ) -> Items[Array | None]:
        """Return arrays for the outputs as `given`, with memory of the device for those that become values.

        Allocates none where the model can't use it. Raises OutOfMemory, and UnavailableDevice if the device fails.
        """
        arrays = list(given) or [None] * len(description.outputs)
        for index, keeping in description.kept:
            spec, form, place = specs[index], description.model.outputs[index], description.outputs[index].place
            if place == REGION or keeping.appends or keeping.window or spec.is_dynamic or not spec.byte_size:
                continue
            self._sequences.reserve_bytes(spec.byte_size)
            give_back = partial(self._sequences.release_bytes, spec.byte_size)
            try:
                memory = heap.allocate(spec.byte_size, give_back)
            except BaseException:
                give_back()
                raise
            if memory is None:
                give_back()
                break
            self._memories[index] = memory
            run_form = form.of_run(spec.shape)
            arrays[index] = DeviceRange(memory, 0, spec.byte_size).as_run_tensor(run_form or form)
        self.arrays = arrays if self._memories else ()
        return self.arrays or given

    def keep(self, description: Description, outputs: Items[Array]) -> None:
        """Make values of those outputs that become some.

        Raises InvalidParameter for an output that can't be appended, OutOfMemory, and UnknownHandle if the sequence
        has ended.
        """
        new = {}
        for index, keeping in description.kept:
            try:
                new[keeping.value] = self._new_value(index, keeping, outputs[index])
            except NnrtError as error:
                raise error.at(f"output {index}") from error
        self._sequences.keep(self.sequence, new)

    def _new_value(self, index: int, keeping: Keeping, output: Array) -> NewValue:
        if index in self._memories and isinstance(output, DeviceRegion):
            # The memory is the value's only once there is room for all values.
            return NewValue(0, lambda: Value(output, self._memories.pop(index)))
        former = self.sequence.values.get(keeping.value) if keeping.appends else None
        shape = list(output.shape)
        if former is not None:
            _require_appendable(former.array, output, keeping)
            shape[keeping.axis] += former.array.shape[keeping.axis]
        if keeping.window:
            shape[keeping.axis] = min(shape[keeping.axis], keeping.window)
        size_bytes = math.prod(shape) * output.dtype.itemsize
        if former is None and shape == list(output.shape):
            if self.rows is not None:
                return NewValue(size_bytes, partial(Value, output, None, self.rows))
            return NewValue(size_bytes, lambda: Value(own(output)))
        return NewValue(size_bytes, lambda: Value(_joined(former, output, keeping)))

    def end(self) -> None:
        """Free memory of the device that no value uses."""
        for memory in (*self._memories.values(), *self._read):
            memory.close()
        self._memories, self._read = {}, []


def _require_appendable(former: Array, output: Array, keeping: Keeping) -> None:
    """Raise InvalidParameter unless an output can be appended to a value."""
    axis = keeping.axis
    is_alike = former.dtype == output.dtype and len(former.shape) == len(output.shape)
    if not is_alike or _others(former.shape, axis) != _others(output.shape, axis):
        raise InvalidParameter(
            f"it is {_text(output)}, which can't be appended along axis {axis} to value {keeping.value},"
            f" {_text(former)}"
        )


def _joined(former: Value | None, output: Array, keeping: Keeping) -> Array:
    """Return the output appended to a value, or alone, of which only the window stays."""
    axis, window = keeping.axis, keeping.window
    parts = [output] if former is None else [former.on_host(), output]
    if window:
        extra = sum(part.shape[axis] for part in parts) - window
        lead = (slice(None),) * axis
        for at, part in enumerate(parts):
            dropped = min(max(extra, 0), part.shape[axis])
            kept = (*lead, slice(dropped, None))
            parts[at] = part[kept]
            extra -= dropped
    return np.concatenate(parts, axis)


def _others(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _text(array: Array) -> str:
    return f"{data_type_of(array.dtype).name.lower()}{format_shape(array.shape)}"
