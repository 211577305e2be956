"""Tensors that a run reads and writes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nnrt_client.enums import Format
from nnrt_client.run.result import OutputTooSmall, RunResult
from nnrt_client.run.signature import Signature
from nnrt_client.tensors.device_buffer import DeviceBuffer, Elements, Stored
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc, hdi_data_type
from nnrt_hdi.enums import Format as HdiFormat
from nnrt_hdi.errors import InvalidParameter, NnrtError, NullPointer, OperationFailed
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, TensorSpec, data_type_of, flat_bytes, format_shape


class NewArray:
    """Placeholder among output tensors for an output that comes as a new array."""


class _Known(NamedTuple):
    """Results of earlier checks, which hold for all runs whose tensors have the same kinds."""

    # Index, data type, shape and size of each input that is a tensor.
    reads: list[tuple[int, np.dtype[np.generic], Shape, int]]
    # Index of each output tensor, and the least bytes that it needs.
    writes: list[tuple[int, int]]


# Number of kinds that a signature remembers.
_MOST_KINDS = 64


class RunTensors:
    """Tensors of one run, checked in the order of NNRt's RunSync and kept alive until `release`.

    `given` has the run's inputs; `inputs` has them as arrays or as views of tensors' memory. `sources` has the memory
    of input tensors. `targets` has the memory of output tensors, with None for each output that is a new array.
    """

    def __init__(self, signature: Signature, outputs: Sequence[RunTensor[Any] | NewArray] | None) -> None:
        """Create it, without keeping a tensor alive yet."""
        self.given: Sequence[Any] = ()
        self.inputs: list[Any] = []
        self.sources: list[SharedMemory | DeviceBuffer | None] = []
        self.targets: list[SharedMemory | DeviceBuffer | None] | None = None
        self.outputs = outputs
        # The kind of each input and output, the key of the run's description; None if one has no kind.
        self.kinds: tuple[Any, ...] | None = None
        self._signature = signature
        self._retained: list[RunTensor[Any]] = []

    def retain(self, inputs: Sequence[Any]) -> None:
        """Check the input and output tensors, and keep them alive until `release`.

        The caller calls `release` even if this raises.

        Raises:
            NullPointer: A tensor is missing.
            InvalidParameter: A tensor doesn't fit the model.
            OperationFailed: A tensor's memory is smaller than its description says.
        """
        self.given = inputs
        # The application may change a desc at any time, so read its values once, for checks and use.
        kinds = (*map(_kind_of, inputs), *map(_target_kind_of, self.outputs or ()))
        known = self._signature.known_kinds
        found: _Known | None = known.get(kinds)
        if found is None or not self._retain_known(found, inputs):
            self.release()
            found = self._retain_checked(inputs, kinds)
            if len(known) >= _MOST_KINDS:
                known.clear()
            if None not in kinds:
                known[kinds] = found
        if None not in kinds:
            self.kinds = kinds

    def _retain_known(self, known: _Known, inputs: Sequence[Any]) -> bool:
        """Retain tensors whose kinds an earlier run has checked.

        Return False if one of them can't be used. `_retain_checked` then raises the reason.
        """
        self.inputs, self.sources = list(inputs), [None] * len(inputs)
        for at, dtype, shape, size_bytes in known.reads:
            memory = self._usable(inputs[at], size_bytes)
            if memory is None:
                return False
            self.sources[at] = memory
            if isinstance(memory, SharedMemory):
                self.inputs[at] = memory.array(dtype, shape)
            elif memory.is_written:
                self.inputs[at] = Stored(dtype, shape, size_bytes, memory.region)
            else:
                return False
        if (outputs := self.outputs) is not None:
            self.targets = [None] * len(outputs)
            for at, size_bytes in known.writes:
                self.targets[at] = self._usable(outputs[at], size_bytes)
                if self.targets[at] is None:
                    return False
        return True

    def _usable(self, tensor: Any, size_bytes: int) -> SharedMemory | DeviceBuffer | None:
        """Retain a tensor and return its memory, or None if that is too small or in another daemon."""
        self._retained.append(tensor)  # First: the next line may be interrupted.
        try:
            memory: SharedMemory | DeviceBuffer = tensor._retain(self)
        except NnrtError as error:
            if raised_by_handler(error):
                raise
            return None
        is_elsewhere = isinstance(memory, DeviceBuffer) and memory.session is not self._signature.session
        return None if is_elsewhere or memory.room_bytes < size_bytes else memory

    def _retain_checked(self, inputs: Sequence[Any], kinds: Sequence[Any]) -> _Known:
        """Check the tensors and retain them. Raise the errors of `retain`."""
        signature, outputs = self._signature, self.outputs
        _require_inputs(signature, inputs)
        reads = {
            at: (given, TensorDesc._of_values(*kinds[at][1:]))
            for at, given in enumerate(inputs)
            if isinstance(given, RunTensor)
        }
        for at, (_, desc) in reads.items():
            signature.require_in_range(at, shape_in_run(signature.inputs[at], desc))
        for at, given in enumerate(outputs or ()):
            if not isinstance(given, RunTensor | NewArray):
                raise InvalidParameter(f"it is {given!r}; give a Tensor", place=signature.output_place(at))
        writes = {
            at: (given, TensorDesc._of_values(*kinds[len(inputs) + at][1:]))
            for at, given in enumerate(outputs or ())
            if isinstance(given, RunTensor)
        }
        sources = {at: self._retain(*read, signature.input_place(at)) for at, read in reads.items()}
        targets = {at: self._retain(*write, signature.output_place(at)) for at, write in writes.items()}
        for at, (_, desc) in reads.items():
            _require_input(signature.inputs[at], desc, signature.input_place(at))
            _require_written(sources[at], signature.input_place(at))
        for at, (_, desc) in writes.items():
            _require_output(signature.outputs[at], desc, targets[at], signature.output_place(at))
        self.inputs = list(inputs)
        self.sources = [sources.get(at) for at in range(len(inputs))]
        self.targets = None if outputs is None else [targets.get(at) for at in range(len(outputs))]
        known = _Known([], [(at, _least_bytes(signature.outputs[at], desc)) for at, (_, desc) in writes.items()])
        for at, (_, desc) in reads.items():
            spec = signature.inputs[at].with_shape(shape_in_run(signature.inputs[at], desc))
            self.inputs[at] = _elements(sources[at], spec)
            known.reads.append((at, spec.numpy_dtype, spec.shape, spec.byte_size))
        return known

    def _retain(self, tensor: RunTensor[Any], desc: TensorDesc, place: str) -> SharedMemory | DeviceBuffer:
        self._retained.append(tensor)  # First: the next line may be interrupted.
        try:
            memory: SharedMemory | DeviceBuffer = tensor._retain(self)
        except NnrtError as error:
            if raised_by_handler(error):
                raise
            raise error.at(place) from error
        if isinstance(memory, DeviceBuffer):
            self._signature.require_here(memory, place)
        shape = desc.shape or ()
        size_bytes = math.prod(shape) * desc.item_size
        if min(shape, default=1) > 0 and size_bytes > memory.room_bytes:
            raise OperationFailed(
                f"the tensor has {memory.room_bytes} bytes; its {desc} says {size_bytes}", place=place
            )
        return memory

    def begin(self) -> None:
        """Mark the output buffers as not written. Called before the run is sent, because it may fail halfway."""
        for target in self.targets or ():
            if isinstance(target, DeviceBuffer):
                target.is_written = False

    def require_fit(self, results: Sequence[Elements]) -> None:
        """Raise OutputTooSmall or OperationFailed if results don't fit into the output tensors."""
        targets = self.targets or [None] * len(results)
        for at, (form, target, array) in enumerate(zip(self._signature.output_forms, targets, results, strict=True)):
            if array.dtype != form.dtype and data_type_of(array.dtype) != form.spec.data_type:
                raise OperationFailed(
                    f"the device gave {array.dtype.name}; the model says {form.spec}",
                    place=self._signature.output_place(at),
                )
            if target is None:
                continue
            if array.nbytes > target.room_bytes:
                shapes = [each.shape for each in results]
                _require_room(target, array.nbytes, array.shape, self._signature.output_place(at), shapes)
            if isinstance(target, DeviceBuffer) and not isinstance(array, Stored):
                raise OperationFailed("the device put it elsewhere", place=self._signature.output_place(at))

    def result(self, outputs: Sequence[Elements]) -> RunResult[Any]:
        """Write the results into the output tensors, and their shapes into the tensors' descs.

        Returns:
            The output tensors, and arrays for the outputs without a tensor.

        Raises:
            NnrtError: As `require_fit`.
        """
        assert self.outputs is not None and self.targets is not None
        self.require_fit(outputs)
        results: list[Any] = []
        for tensor, target, output in zip(self.outputs, self.targets, outputs, strict=True):
            if target is None or isinstance(tensor, NewArray):
                results.append(output)
                continue
            if isinstance(target, DeviceBuffer):
                target.is_written = True
            elif isinstance(output, np.ndarray):
                base: object = output.base
                if base is not target.view:  # Else the daemon has written into the tensor.
                    target.array(output.dtype, output.shape)[...] = output
            tensor._take_shape(output.shape)
            results.append(tensor)
        return RunResult(results, [output.shape for output in outputs])

    def collected(self, results: Sequence[Any]) -> RunResult[Any]:
        """Return the result of a run of model parts. Copy results that are arrays into their output tensors.

        Raises:
            UnavailableDevice: An array can't be sent to the device; also ConnectionFailed and TimedOut.
            NnrtError: As `result`.
        """
        elements: list[Elements] = []
        for spec, given in zip(self._signature.outputs, results, strict=True):
            is_tensor = isinstance(given, RunTensor)
            elements.append(_elements(given._memory, spec.with_shape(given.desc.shape or ())) if is_tensor else given)
        shapes = [array.shape for array in elements]
        for at, (target, array) in enumerate(zip(self.targets or (), elements, strict=True)):
            if isinstance(target, DeviceBuffer) and not isinstance(array, Stored):
                _require_room(target, array.nbytes, array.shape, self._signature.output_place(at), shapes)
                target.write(flat_bytes(np.ascontiguousarray(array)))
                elements[at] = Stored(array.dtype, array.shape, array.nbytes, target.region)
        return self.result(elements)

    def release(self) -> None:
        """Release the tensors, because the run has ended or won't start."""
        retained, self._retained, self.inputs, self.sources, self.targets = self._retained, [], [], [], None
        for tensor in retained:
            if isinstance(tensor, ResidentTensor) and not tensor._is_open:
                # This may free the buffer by an RPC, for which the thread that ends runs must not wait.
                self._signature.session.call_back(tensor._release, self)
            else:
                tensor._release(self)


def _kind_of(given: Any) -> Any:
    """Return the kind of an input: the values on which its checks depend. None if it is no array and no tensor."""
    kind = type(given)
    if kind is np.ndarray:
        return given.shape
    if kind is Tensor or kind is ResidentTensor or isinstance(given, RunTensor):  # isinstance takes ten times as long.
        desc = given._desc
        return kind, desc._data_type, desc._shape, desc._format
    return None


def _target_kind_of(given: Any) -> Any:
    """Return the kind of an output tensor: the values on which its checks depend. None if it is no tensor."""
    kind = type(given)
    if kind is NewArray:
        return kind
    if kind is Tensor or kind is ResidentTensor or isinstance(given, RunTensor):
        desc = given._target_desc
        return kind, desc._data_type, desc._shape, desc._format
    return None


def _least_bytes(spec: TensorSpec, desc: TensorDesc) -> int:
    """Return the least bytes that an output needs, from the shapes of the model and the desc."""
    shape = desc.shape or ()
    described = math.prod(shape) * desc.item_size if min(shape, default=1) > 0 else 0
    return max(described, spec.known_bytes)


def shape_in_run(spec: TensorSpec, desc: TensorDesc) -> Shape:
    """Return the shape that a desc means in a run. The shapes () and (1,) stand for each other.

    NNRt has no tensor without dimensions, so a scalar's desc has the shape (1,).
    """
    shape = desc.shape or ()
    return spec.shape if {shape, spec.shape} == {(), (1,)} else shape


def _require_inputs(signature: Signature, inputs: Sequence[Any]) -> None:
    for at, given in enumerate(inputs):
        if given is None:
            error = InvalidParameter if signature.input_ranges() is None else NullPointer
            raise error("it is None; give a Tensor or an array", place=signature.input_place(at))


def _require_input(spec: TensorSpec, desc: TensorDesc, place: str) -> None:
    _require_type(spec, desc, place)
    if not spec.accepts(shape_in_run(spec, desc)):
        raise InvalidParameter(f"it is {desc}; the model takes {spec}", place=place)


def _require_output(spec: TensorSpec, desc: TensorDesc, target: SharedMemory | DeviceBuffer, place: str) -> None:
    """Raise InvalidParameter or OutputTooSmall if no output of the model can fit the tensor.

    The desc may have open dimensions, or the shape of an earlier run.
    """
    _require_type(spec, desc, place)
    shape = shape_in_run(spec, desc)
    if len(shape) != spec.rank or any(
        given > 0 and declared not in (UNKNOWN_DIM, given) for given, declared in zip(shape, spec.shape, strict=True)
    ):
        raise InvalidParameter(f"it is {desc}; the model gives {spec}", place=place)
    if not spec.is_dynamic:
        _require_room(target, spec.byte_size, spec.shape, place)


def _require_written(source: SharedMemory | DeviceBuffer, place: str) -> None:
    if isinstance(source, DeviceBuffer):
        try:
            source.require_written()
        except NnrtError as error:
            if raised_by_handler(error):
                raise
            raise error.at(place) from error


def _elements(source: SharedMemory | DeviceBuffer, spec: TensorSpec) -> Elements:
    if isinstance(source, DeviceBuffer):
        return Stored(spec.numpy_dtype, spec.shape, spec.byte_size, source.region)
    return source.array(spec.numpy_dtype, spec.shape)


def _require_type(spec: TensorSpec, desc: TensorDesc, place: str) -> None:
    wanted = Format[spec.format.name]
    if hdi_data_type(desc.data_type) != spec.data_type:
        raise InvalidParameter(f"its data type is {desc.data_type.name}; the model's is {spec}", place=place)
    if spec.format is not HdiFormat.NONE and desc.format not in (Format.NONE, Format.ND, wanted):
        raise InvalidParameter(f"its format is {desc.format.name}; the model's is {wanted.name}", place=place)


def _require_room(
    target: SharedMemory | DeviceBuffer, size_bytes: int, shape: Shape, place: str, shapes: Sequence[Shape] = ()
) -> None:
    if size_bytes > target.room_bytes:
        raise OutputTooSmall(
            f"its memory has {target.room_bytes} bytes; the result {format_shape(shape)} has {size_bytes}",
            place=place,
            shapes=shapes,
        )
