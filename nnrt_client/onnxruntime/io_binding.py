"""Inputs and outputs that are bound to memory before a session runs."""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.onnxruntime.errors import BadBinding, BoundRunFailed, WrongType
from nnrt_client.onnxruntime.options import RunOptions
from nnrt_client.onnxruntime.ort_value import DEVICE, HOST, OrtValue, find_value, value_of
from nnrt_client.onnxruntime.placed_model import HasModel, PlacedModel, placed_model
from nnrt_client.onnxruntime.value_memory import ValueMemory
from nnrt_client.run.result import OutputTooSmall
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.packed_values import PackedSpec


@dataclass(slots=True)
class _Output:
    """Target of an output: a value, or None for a new value on this host or on the device."""

    value: OrtValue | None
    is_on_device: bool = False


class IOBinding:
    """Bound inputs and outputs for `InferenceSession.run_with_iobinding`. Made by `InferenceSession.io_binding`."""

    def __init__(self, session: HasModel) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, _Output] = {}
        self._results: list[OrtValue] = []

    @property
    def _iobinding(self) -> "IOBinding":
        """Inner binding that libraries expect in ONNX Runtime's class: this one."""
        return self

    # ---- inputs

    def bind_cpu_input(self, name: str, arr_on_cpu: NDArray[Any]) -> None:
        """Bind an input to an array of this host. Raise BadBinding for an unknown name, WrongType if it is no array."""
        self._require_input(name)
        if not isinstance(arr_on_cpu, np.ndarray):
            raise WrongType(f"input {name!r} is {type(arr_on_cpu).__name__}; give a numpy array")
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory.

        Args:
            name: name of the input.
            device_type: `cpu` for memory of this host, else `nnrt`.
            device_id: has no effect.
            element_type: numpy type, its name, or ONNX's number of the type.
            shape: dimensions of the input.
            buffer_ptr: address on this host, or `data_ptr()` of a value on the device.

        Raises:
            BadBinding: the model has no such input, or no such value is on a device.
            WrongType: no device takes the element type.
        """
        self._require_input(name)
        self._inputs[name] = find_value(buffer_ptr, device_type, element_type, shape, device_id)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value. Raise BadBinding for an unknown name, WrongType if it is no OrtValue."""
        self._require_input(name)
        self._inputs[name] = _require_value(ortvalue)

    def clear_binding_inputs(self) -> None:
        """Unbind all inputs."""
        self._inputs.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: a run reads its inputs when it begins."""

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
        """Bind an output to memory, or to a new value of each run.

        Args:
            name: name of the output.
            device_type: `cpu` for this host, `nnrt` for the session's device.
            device_id: has no effect.
            element_type: numpy type, its name, or ONNX's number of the type; needed with an address.
            shape: dimensions of the output; needed with an address.
            buffer_ptr: address on this host, or `data_ptr()` of a value on the device; None for a new value.

        Raises:
            BadBinding: the device type is unknown, there is no shape for the address, or no such value is on a device.
            WrongType: no device takes the element type.
        """
        if device_type not in (HOST, DEVICE):
            raise BadBinding(
                f"Unsupported device type: {device_type}; use {HOST!r} or {DEVICE!r}, the session's device"
            )
        value = None
        if buffer_ptr is not None:
            if shape is None:
                raise BadBinding(f"output {name!r} has an address and no shape; give shape and element_type")
            value = find_value(buffer_ptr, device_type, element_type, shape, device_id)
        self._outputs[name] = _Output(value, device_type == DEVICE)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to a value. Raise WrongType if it is no OrtValue."""
        self._outputs[name] = _Output(_require_value(ortvalue))

    def clear_binding_outputs(self) -> None:
        """Unbind all outputs."""
        self._outputs.clear()
        self._results = []

    def synchronize_outputs(self) -> None:
        """Do nothing: `run_with_iobinding` returns when the run has ended."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were bound."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[NDArray[Any]]:
        """Return the outputs of the last run as arrays."""
        return [value.numpy() for value in self._results]

    # ---- running

    def _run(self, run_options: RunOptions | None) -> None:
        model = placed_model(self._session)
        if not self._outputs:
            raise BoundRunFailed("Error in execution: At least one output should be requested.")
        for name, output in self._outputs.items():
            if name not in model.output_specs:
                raise BoundRunFailed(f"Error in execution: Invalid output name: {name}")
            spec = model.output_specs[name]
            if isinstance(spec, PackedSpec) and (output.is_on_device or output.value is not None):
                raise BoundRunFailed(
                    f"Error in execution: output {name!r} is {spec}; bind it to a new value on {HOST!r}"
                )
        feed = {
            name: value._memory.readable(model.connection, model.device) if isinstance(value, OrtValue) else value
            for name, value in self._inputs.items()
        }
        for name in model.input_specs:
            if name not in feed:
                raise BoundRunFailed(f"Error in execution: Missing Input: {name}")
        try:
            results = self._run_with_targets(model, feed, run_options)
            self._results = [self._result_value(model, name, results[name]) for name in self._outputs]
        except BoundRunFailed:
            raise
        except NnrtError as error:
            raise BoundRunFailed(f"Error in execution: {error}") from error

    def _run_with_targets(
        self, model: PlacedModel, feed: dict[str, Any], run_options: RunOptions | None
    ) -> Mapping[str, Any]:
        """Return the outputs of a run. If one is larger than its memory on the device, allocate more and run again."""
        taken: dict[str, ResidentTensor] = {}
        targets: dict[str, Any] = {}
        for name, output in self._outputs.items():
            if output.value is not None:
                targets[name] = output.value._memory.writable(model.connection, model.device)
            elif output.is_on_device and (spare := model.memory.take(name)):
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
                small = taken.pop(name)  # It is closed here, so it must not become spare memory.
                targets[name] = taken[name] = model.memory.replace(name, small, shapes[name])
            return model.run(feed, targets, run_options)
        except BaseException:
            for name, tensor in taken.items():
                model.memory.spare[name].append(tensor)
            raise

    def _result_value(self, model: PlacedModel, name: str, result: Any) -> OrtValue:
        """Return the result of a run as a value on the bound device, or in the bound value."""
        output, memory = self._outputs[name], model.memory
        if output.value is not None:
            output.value._memory.copy_result(result)
            return output.value
        if not output.is_on_device:
            return value_of(name, result)
        if isinstance(result, np.ndarray):  # The first result of unknown size came to this host.
            array, result = result, memory.allocate(name, result.shape)
            result.write(array)
        value = OrtValue(ValueMemory(result, keeper=self._session))
        # The memory of a collected value becomes spare.
        weakref.finalize(value, memory.spare[name].append, result).atexit = False
        return value

    def _require_input(self, name: str) -> None:
        if name not in placed_model(self._session).input_specs:
            raise BadBinding(f"Failed to find NodeArg with name: {name} in the def list")


def _require_value(ortvalue: OrtValue) -> OrtValue:
    if not isinstance(ortvalue, OrtValue):
        raise WrongType(f"it is {type(ortvalue).__name__}; give an OrtValue")
    return ortvalue
