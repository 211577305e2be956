"""Inputs and outputs of a session that are bound to where they are before it runs."""

import weakref
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.onnxruntime.errors import BadBinding, BoundRunFailed, WrongType
from nnrt_client.onnxruntime.ort_value import DEVICE, HOST, OrtValue, resident, value_at
from nnrt_client.run.result import OutputTooSmall
from nnrt_client.session.device import Device
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import TensorSpec

if TYPE_CHECKING:
    from nnrt_client.onnxruntime.inference_session import InferenceSession
    from nnrt_client.onnxruntime.options import RunOptions


@dataclass(slots=True)
class _Output:
    """Where an output goes: to a value, or to a new one on this host or on the device."""

    value: OrtValue | None
    is_on_device: bool = False


class IOBinding:
    """Inputs and outputs of runs with `InferenceSession.run_with_iobinding`. Made by `InferenceSession.io_binding`."""

    def __init__(self, session: "InferenceSession") -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, _Output] = {}
        self._results: list[OrtValue] = []

    @property
    def _iobinding(self) -> "IOBinding":
        """The binding that libraries expect inside ONNX Runtime's class."""
        return self

    # ---- inputs

    def bind_cpu_input(self, name: str, arr_on_cpu: NDArray[Any]) -> None:
        """Have runs read an array of this host."""
        self._require_input(name)
        if not isinstance(arr_on_cpu, np.ndarray):
            raise WrongType(f"input {name!r} is {type(arr_on_cpu).__name__}; give a numpy array")
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Have runs read what is at an address: of this host, or `data_ptr` of a value on the device."""
        self._require_input(name)
        self._inputs[name] = value_at(buffer_ptr, device_type, element_type, shape, device_id)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Have runs read a value."""
        self._require_input(name)
        self._inputs[name] = _checked(ortvalue)

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: a run begins with what its inputs have then."""

    # ---- outputs

    def bind_output(
        self,
        name: str,
        device_type: str = HOST,
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Have runs write to an address, or to a new value: on this host, or on the session's device (`nnrt`)."""
        if device_type not in (HOST, DEVICE):
            raise BadBinding(
                f"Unsupported device type: {device_type}; use {HOST!r} or {DEVICE!r}, the session's device"
            )
        value = None
        if buffer_ptr is not None:
            if shape is None:
                raise BadBinding(f"output {name!r} has an address and no shape; give shape and element_type")
            value = value_at(buffer_ptr, device_type, element_type, shape, device_id)
        self._outputs[name] = _Output(value, device_type == DEVICE)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have runs write to a value."""
        self._outputs[name] = _Output(_checked(ortvalue))

    def clear_binding_outputs(self) -> None:
        """Forget all outputs."""
        self._outputs.clear()
        self._results = []

    def synchronize_outputs(self) -> None:
        """Do nothing: a run has ended when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """Give the outputs of the last run, in the order in which they were bound."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[NDArray[Any]]:
        """Give the outputs of the last run as arrays."""
        return [value.numpy() for value in self._results]

    # ---- running

    def _run(self, run_options: "RunOptions | None") -> None:
        session, device = self._session, self._session._device
        if not self._outputs:
            raise BoundRunFailed("Error in execution: At least one output should be requested.")
        for name in self._outputs:
            if name not in session._output_specs:
                raise BoundRunFailed(f"Error in execution: Invalid output name: {name}")
        feed = {
            name: value._readable(session._connection, device) if isinstance(value, OrtValue) else value
            for name, value in self._inputs.items()
        }
        for name in session._input_specs:
            if name not in feed:
                raise BoundRunFailed(f"Error in execution: Missing Input: {name}")
        try:
            results = self._results_of(feed, run_options)
            self._results = [self._kept(name, results[name]) for name in self._outputs]
        except BoundRunFailed:
            raise
        except NnrtError as error:
            raise BoundRunFailed(f"Error in execution: {error}") from error

    def _results_of(self, feed: dict[str, Any], run_options: "RunOptions | None") -> Mapping[str, Any]:
        """Run, once more where an output on the device turned out to be larger than its memory: such a run has written
        nothing."""
        session = self._session
        taken: dict[str, ResidentTensor] = {}
        targets: dict[str, Any] = {}
        for name, output in self._outputs.items():
            if output.value is not None:
                targets[name] = output.value._writable_place(session._connection, session._device)
            elif output.is_on_device and (spare := session._memory.taken(name)):
                targets[name] = taken[name] = spare
            else:
                targets[name] = None
        try:
            try:
                return session._run_checked(feed, targets, run_options)
            except OutputTooSmall as error:
                if not taken:
                    raise
                shapes = dict(zip(session._output_specs, error.shapes, strict=True))
            for name in list(taken):
                small = taken.pop(name)  # Nobody's spare: it is closed.
                targets[name] = taken[name] = session._memory.replaced(name, small, shapes[name])
            return session._run_checked(feed, targets, run_options)
        except BaseException:
            for name, tensor in taken.items():
                session._memory.spare[name].append(tensor)
            raise

    def _kept(self, name: str, result: Any) -> OrtValue:
        """The result of a run as a value, where it was bound to be."""
        output, memory = self._outputs[name], self._session._memory
        if output.value is not None:
            output.value._take(result)
            return output.value
        if not output.is_on_device:
            return OrtValue(result)
        if isinstance(result, np.ndarray):  # It was not known how much memory it takes.
            array, result = result, memory.made(name, result.shape)
            result.write(array)
        value = OrtValue._of_resident(result, self._session)
        # When the value is collected its memory is spare.
        weakref.finalize(value, memory.spare[name].append, result).atexit = False
        return value

    def _require_input(self, name: str) -> None:
        if name not in self._session._input_specs:
            raise BadBinding(f"Failed to find NodeArg with name: {name} in the def list")


class DeviceMemory:
    """Memory on a session's device for its outputs. What the value in it is done with is used again."""

    # What an output of unknown size may grow by before it needs other memory.
    _GROWTH = 2

    def __init__(self, device: Device, specs: Mapping[str, TensorSpec]) -> None:
        self.spare: defaultdict[str, deque[ResidentTensor]] = defaultdict(deque)
        self._device = device
        self._specs = specs
        self._tensors: list[ResidentTensor] = []

    def taken(self, name: str) -> ResidentTensor | None:
        """Memory for an output; None where its size is known only after the first run."""
        spare, spec = self.spare[name], self._specs[name]
        with suppress(IndexError):  # Another thread may take the last.
            while True:
                tensor = spare.pop()
                if tensor._memory.session.is_alive:
                    return tensor
                self._tensors.remove(tensor)  # It is gone with its daemon.
        return None if spec.is_dynamic else self.made(name, spec.shape)

    def made(self, name: str, shape: Sequence[int]) -> ResidentTensor:
        """New memory for an output of this shape, and for larger ones where its size varies."""
        spec = self._specs[name]
        size_bytes = int(np.prod(shape, dtype=np.int64)) * spec.item_size
        tensor = resident(
            self._device, spec.numpy_dtype, spec.shape, size_bytes * self._GROWTH if spec.is_dynamic else size_bytes
        )
        self._tensors.append(tensor)
        return tensor

    def replaced(self, name: str, tensor: ResidentTensor, shape: Sequence[int]) -> ResidentTensor:
        """Other memory for an output that has no room in this one."""
        self._tensors.remove(tensor)
        tensor.close()
        return self.made(name, shape)

    def close(self) -> None:
        """Free it all."""
        for tensor in self._tensors:
            tensor.close()
        self._tensors.clear()


def _checked(ortvalue: OrtValue) -> OrtValue:
    if not isinstance(ortvalue, OrtValue):
        raise WrongType(f"it is {type(ortvalue).__name__}; give an OrtValue")
    return ortvalue
