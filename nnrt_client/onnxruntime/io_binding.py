"""Inputs and outputs of a session that are bound to where they are before it runs."""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.onnxruntime.errors import BadBinding, BoundRunFailed, WrongType
from nnrt_client.onnxruntime.options import RunOptions
from nnrt_client.onnxruntime.ort_value import DEVICE, HOST, OrtValue, value_at
from nnrt_client.onnxruntime.placed_model import HasModel, PlacedModel, placed_model
from nnrt_client.onnxruntime.value_memory import ValueMemory
from nnrt_client.run.result import OutputTooSmall
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_hdi.errors import NnrtError


@dataclass(slots=True)
class _Output:
    """Where an output goes: to a value, or to a new one on this host or on the device."""

    value: OrtValue | None
    is_on_device: bool = False


class IOBinding:
    """Inputs and outputs of runs with `InferenceSession.run_with_iobinding`. Made by `InferenceSession.io_binding`."""

    def __init__(self, session: HasModel) -> None:
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

    def _run(self, run_options: RunOptions | None) -> None:
        model = placed_model(self._session)
        if not self._outputs:
            raise BoundRunFailed("Error in execution: At least one output should be requested.")
        for name in self._outputs:
            if name not in model.output_specs:
                raise BoundRunFailed(f"Error in execution: Invalid output name: {name}")
        feed = {
            name: value._memory.readable(model.connection, model.device) if isinstance(value, OrtValue) else value
            for name, value in self._inputs.items()
        }
        for name in model.input_specs:
            if name not in feed:
                raise BoundRunFailed(f"Error in execution: Missing Input: {name}")
        try:
            results = self._results_of(model, feed, run_options)
            self._results = [self._kept(model, name, results[name]) for name in self._outputs]
        except BoundRunFailed:
            raise
        except NnrtError as error:
            raise BoundRunFailed(f"Error in execution: {error}") from error

    def _results_of(
        self, model: PlacedModel, feed: dict[str, Any], run_options: RunOptions | None
    ) -> Mapping[str, Any]:
        """Run, once more where an output on the device turned out to be larger than its memory: such a run has written
        nothing."""
        taken: dict[str, ResidentTensor] = {}
        targets: dict[str, Any] = {}
        for name, output in self._outputs.items():
            if output.value is not None:
                targets[name] = output.value._memory.writable_place(model.connection, model.device)
            elif output.is_on_device and (spare := model.memory.taken(name)):
                targets[name] = taken[name] = spare
            else:
                targets[name] = None
        try:
            try:
                return model.run(feed, targets, run_options)
            except OutputTooSmall as error:
                if not taken:
                    raise
                shapes = dict(zip(model.output_specs, error.shapes, strict=True))
            for name in list(taken):
                small = taken.pop(name)  # Nobody's spare: it is closed.
                targets[name] = taken[name] = model.memory.replaced(name, small, shapes[name])
            return model.run(feed, targets, run_options)
        except BaseException:
            for name, tensor in taken.items():
                model.memory.spare[name].append(tensor)
            raise

    def _kept(self, model: PlacedModel, name: str, result: Any) -> OrtValue:
        """The result of a run as a value, where it was bound to be."""
        output, memory = self._outputs[name], model.memory
        if output.value is not None:
            output.value._memory.take(result)
            return output.value
        if not output.is_on_device:
            return OrtValue(ValueMemory(result))
        if isinstance(result, np.ndarray):  # It was not known how much memory it takes.
            array, result = result, memory.made(name, result.shape)
            result.write(array)
        value = OrtValue(ValueMemory(result, keeper=self._session))
        # When the value is collected its memory is spare.
        weakref.finalize(value, memory.spare[name].append, result).atexit = False
        return value

    def _require_input(self, name: str) -> None:
        if name not in placed_model(self._session).input_specs:
            raise BadBinding(f"Failed to find NodeArg with name: {name} in the def list")


def _checked(ortvalue: OrtValue) -> OrtValue:
    if not isinstance(ortvalue, OrtValue):
        raise WrongType(f"it is {type(ortvalue).__name__}; give an OrtValue")
    return ortvalue
