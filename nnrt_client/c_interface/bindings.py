"""Bindings of an executor's inputs and outputs, which applications of NNRt's API 9 set one by one before a run."""

import math
import threading
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from nnrt_client.enums import TensorType
from nnrt_client.run.executor import Executor
from nnrt_client.run.result import OutputTooSmall, RunResult
from nnrt_client.run.run_tensors import shape_in_run
from nnrt_client.run.signature import item_at
from nnrt_client.session.fork import LockOwner
from nnrt_client.tensors.legacy_tensor import LegacyTensor
from nnrt_client.tensors.tensor_desc import TensorDesc, hdi_data_type
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter, OperationForbidden
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Array, Shape, TensorSpec, format_shape

Bytes = NDArray[np.uint8]
Side = Literal["input", "output"]


class Memory:
    """Memory for one input or output, behind an OH_NN_Memory. Made and freed by Bindings."""

    def __init__(self, length: int) -> None:
        self._region = SharedMemory.allocate(length)

    @property
    def data(self) -> memoryview:
        """Writable view of the bytes, valid as long as it is referenced.

        Raises:
            InvalidParameter: the memory has been freed.
        """
        return self._region.view

    @property
    def length(self) -> int:
        """Size in bytes."""
        return self._region.size_bytes

    def _close(self) -> None:
        """Free the memory. Idempotent."""
        self._region.close()


@dataclass(frozen=True, slots=True)
class _Input:
    """Shape of an input, and the memory of its elements."""

    shape: Shape
    source: Bytes | Memory


class Bindings(LockOwner, Closable):
    """Inputs and outputs that are bound to an executor's runs until they are bound anew.

    `set_input` copies an input; `set_input_memory` doesn't. `run` writes the outputs to the bound memory if it
    succeeds. All methods raise InvalidParameter for an index that the model doesn't have and for values that don't fit
    it, and OperationForbidden after `close`.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._signature = executor._dispatcher.signature
        super().__init__()
        self._is_open = True
        self._inputs: dict[int, _Input] = {}
        self._outputs: dict[int, Bytes | Memory] = {}
        self._memories: dict[Memory, tuple[Side, int]] = {}

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._running = threading.Lock()

    def set_input(
        self,
        index: int,
        tensor: LegacyTensor | TensorDesc,
        data: Array | np.generic | Buffer,
        length: int | None = None,
    ) -> None:
        """Bind an input to a copy of its elements.

        Args:
            index: index of the input.
            tensor: data type and shape of the input. Every dimension must be known.
            data: elements of the input. There may be more bytes than the tensor needs.
            length: number of bytes of the data to use, by default all.

        Raises:
            InvalidParameter: the model has no such input, or tensor, data or length don't fit it.
            OperationForbidden: the bindings are closed.
            UnavailableDevice: the device, which says what dimensions it accepts, is gone.
        """
        source = _bytes_of(data, "the data")
        if length is not None:
            if not 1 <= length <= source.size:
                raise InvalidParameter(f"the length is {length}; the data have {source.size} bytes")
            source = source[:length]
        shape, size_bytes = self._require_input(index, tensor, source.size)
        self._bind(self._inputs, index, _Input(shape, source[:size_bytes].copy()))

    def set_input_memory(self, index: int, tensor: LegacyTensor | TensorDesc, memory: Memory) -> None:
        """Bind an input to a memory, which each run reads when it begins.

        Args:
            index: index of the input.
            tensor: data type and shape of the input. Every dimension must be known.
            memory: memory that any Bindings allocated.

        Raises:
            InvalidParameter: the model has no such input, or tensor or memory don't fit it.
            OperationForbidden: the bindings are closed.
            UnavailableDevice: the device, which says what dimensions it accepts, is gone.
        """
        _require_memory(memory)
        shape, _ = self._require_input(index, tensor, memory.length)
        self._bind(self._inputs, index, _Input(shape, memory))

    def set_output(self, index: int, buffer: Array | Buffer) -> None:
        """Bind an output to the beginning of a buffer, to which the bindings hold a reference until the next call.

        `run` checks the size of an output whose shape is unknown.

        Args:
            index: index of the output.
            buffer: writable buffer.

        Raises:
            InvalidParameter: the model has no such output, or the buffer is read-only or too small.
            OperationForbidden: the bindings are closed.
        """
        target = _bytes_of(buffer, "the buffer")
        if not target.flags.writeable:
            raise InvalidParameter("the buffer is read-only; give one that can be written")
        self._require_output(index, target.size)
        self._bind(self._outputs, index, target)

    def set_output_memory(self, index: int, memory: Memory) -> None:
        """Bind an output to the beginning of a memory.

        Args:
            index: index of the output.
            memory: memory that any Bindings allocated.

        Raises:
            InvalidParameter: the model has no such output, or the memory is too small or freed.
            OperationForbidden: the bindings are closed.
        """
        _require_memory(memory)
        self._require_output(index, memory.length)
        self._bind(self._outputs, index, memory)

    def run(self) -> RunResult[Array]:
        """Run the model with the bound inputs, write the bound outputs, and return the outputs too.

        Runs are executed one at a time, because all of them write to the same memory. A run that fails writes nothing.

        Returns:
            The outputs, in their order.

        Raises:
            InvalidParameter: an input or output is not set, or its memory has been freed.
            OutputTooSmall: an output needs more memory than was set.
            NnrtError: as `Executor.run_sync`.
        """
        with self._running:
            return self._run_next()

    def _run_next(self) -> RunResult[Array]:
        with self._lock:
            self._require_open()
            inputs, outputs = dict(self._inputs), dict(self._outputs)
        arrays = [_elements(_get(inputs, index, "input"), spec) for index, spec in enumerate(self._signature.inputs)]
        targets = [_bytes(_get(outputs, index, "output")) for index in range(len(self._signature.outputs))]
        results: RunResult[Array] = self._executor.run_sync(arrays)
        shapes = [result.shape for result in results]
        for index, (target, result) in enumerate(zip(targets, results, strict=True)):
            if result.nbytes > target.size:
                raise OutputTooSmall(
                    f"its place has {target.size} bytes; the result {format_shape(result.shape)} has {result.nbytes}",
                    place=self._signature.output_place(index),
                    shapes=shapes,
                )
        for target, result in zip(targets, results, strict=True):
            target[: result.nbytes] = result.reshape(-1).view(np.uint8)
        return results

    def allocate_input_memory(self, index: int, length: int) -> Memory:
        """Allocate zeroed memory for an input. Raise OutOfMemory beyond 1 GiB."""
        item_at(self._signature.inputs, index, "input")
        return self._allocate("input", index, length)

    def allocate_output_memory(self, index: int, length: int) -> Memory:
        """Allocate zeroed memory for an output. Raise OutOfMemory beyond 1 GiB."""
        item_at(self._signature.outputs, index, "output")
        return self._allocate("output", index, length)

    def destroy_input_memory(self, index: int, memory: Memory) -> None:
        """Free memory that `allocate_input_memory` returned. Views of it stay valid while they are referenced."""
        item_at(self._signature.inputs, index, "input")
        self._destroy("input", index, memory)

    def destroy_output_memory(self, index: int, memory: Memory) -> None:
        """Free memory that `allocate_output_memory` returned. Views of it stay valid while they are referenced."""
        item_at(self._signature.outputs, index, "output")
        self._destroy("output", index, memory)

    def close(self) -> None:
        """Unbind all inputs and outputs, and free all memory of these bindings. Idempotent."""
        with self._lock:
            self._is_open = False
            memories = list(self._memories)
            for kept in (self._inputs, self._outputs, self._memories):
                kept.clear()
        for memory in memories:
            memory._close()

    def _allocate(self, side: Side, index: int, length: int) -> Memory:
        self._signature.require_alive()
        memory = Memory(length)
        try:
            self._bind(self._memories, memory, (side, index))
        except OperationForbidden:
            memory._close()
            raise
        return memory

    def _destroy(self, side: Side, index: int, memory: Memory) -> None:
        with self._lock:
            if not isinstance(memory, Memory) or self._memories.get(memory) != (side, index):
                raise InvalidParameter(f"the memory is {memory!r}; give one that was allocated here for {side} {index}")
            del self._memories[memory]
        memory._close()

    def _bind(self, bound: dict[Any, Any], key: Any, value: Any) -> None:
        with self._lock:
            self._require_open()
            bound[key] = value

    def _require_open(self) -> None:
        if not self._is_open:
            raise OperationForbidden("the bindings are closed; make new ones")

    def _require_input(self, index: int, tensor: LegacyTensor | TensorDesc, length: int) -> tuple[Shape, int]:
        """Return the shape of an input and its size in bytes.

        Raises:
            InvalidParameter: It doesn't fit the model or the device, or needs more than `length` bytes.
        """
        spec = item_at(self._signature.inputs, index, "input")
        place = self._signature.input_place(index)
        if not isinstance(tensor, LegacyTensor | TensorDesc):
            raise InvalidParameter(f"the tensor is {tensor!r}; give a LegacyTensor or a TensorDesc", place=place)
        if isinstance(tensor, LegacyTensor):
            tensor = tensor._checked()
            if tensor.type is not TensorType.TENSOR:
                raise InvalidParameter(f"its type is {tensor.type.name}; inputs are TENSOR", place=place)
            desc = tensor._to_desc()
        else:
            desc = tensor
        shape = shape_in_run(spec, desc)
        if min(shape, default=1) < 1:
            raise InvalidParameter(f"its shape is {format_shape(shape)}; a run needs every dimension", place=place)
        self._signature.require_in_range(index, shape)
        if hdi_data_type(desc.data_type) != spec.data_type or not spec.accepts(shape):
            raise InvalidParameter(
                f"it is {desc.data_type.name}{format_shape(shape)}; the model takes {spec}", place=place
            )
        size_bytes = math.prod(shape) * spec.item_size
        if length < size_bytes:
            raise InvalidParameter(f"there are {length} bytes; {format_shape(shape)} has {size_bytes}", place=place)
        self._signature.require_alive()
        return shape, size_bytes

    def _require_output(self, index: int, length: int) -> None:
        spec = item_at(self._signature.outputs, index, "output")
        if not spec.is_dynamic and length < spec.byte_size:
            raise InvalidParameter(
                f"its place has {length} bytes; {spec} has {spec.byte_size}", place=self._signature.output_place(index)
            )
        self._signature.require_alive()


def _get(bound: dict[int, Any], index: int, side: Side) -> Any:
    if index not in bound:
        raise InvalidParameter(f"{side} {index} is not set; set it before the run")
    return bound[index]


def _elements(bound: _Input, spec: TensorSpec) -> Array:
    elements: Array = np.ndarray(bound.shape, spec.numpy_dtype, _bytes(bound.source))
    return elements


def _bytes(place: Bytes | Memory) -> Bytes:
    return np.frombuffer(place.data, np.uint8) if isinstance(place, Memory) else place


def _bytes_of(buffer: object, what: str) -> Bytes:
    """Return the bytes of a buffer without a copy. Raise InvalidParameter for an empty buffer or another object."""
    try:
        found: Bytes = np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload]
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidParameter(f"{what} is {type(buffer).__name__}; give contiguous bytes, or an array") from error
    if not found.size:
        raise InvalidParameter(f"{what} is empty")
    return found


def _require_memory(memory: Memory) -> None:
    if not isinstance(memory, Memory):
        raise InvalidParameter(f"the memory is {memory!r}; give one that was allocated here")
    _ = memory.data  # Raises if it has been freed.
