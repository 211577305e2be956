"""Model on the device that a session's providers name, and checks of its inputs."""

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol

import numpy as np

from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.packed import described_specs
from nnrt_client.onnxruntime.connections import Connection
from nnrt_client.onnxruntime.device_memory import DeviceMemory
from nnrt_client.onnxruntime.element_types import has_type, type_text
from nnrt_client.onnxruntime.errors import BadBinding, Fail, InvalidArgument, MissingInputs, WrongType, translate
from nnrt_client.onnxruntime.options import RunOptions
from nnrt_client.onnxruntime.ort_value import OrtValue
from nnrt_client.run.arrays import NotWhole, convert_numbers, view_array
from nnrt_client.session.device import Device
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.packed_values import PackedSpec, is_text, value_shape
from nnrt_hdi.tensor import TensorSpec

TERMINATED = "Exiting due to terminate flag being set to true."


class PlacedModel:
    """Model of an InferenceSession on one device. `set_providers` can replace it by another one."""

    def __init__(
        self, session: ModelSession, device: Device, connection: Connection, constants: Mapping[str, Any]
    ) -> None:
        """Wrap a session that has loaded the model. `constants` are the values of its frozen inputs."""
        self.session = session
        self.device = device
        self.connection = connection
        self.input_specs = {spec.name: spec for spec in described_specs(session.inputs, session.values)}
        self.output_specs = {spec.name: spec for spec in described_specs(session.outputs, session.values)}
        takes_strings = any(isinstance(spec, PackedSpec) for spec in self.input_specs.values())
        self._fitting = self._fitting_strings if takes_strings else self._require_fit
        self.memory = DeviceMemory(device, self.output_specs)
        self._constants = constants

    def run(
        self, feed: Mapping[str, Any], wanted: Sequence[str] | Mapping[str, Any] | None, run_options: RunOptions | None
    ) -> Mapping[str, Any]:
        """Run the model and return the outputs by name. Raise Fail if the options terminate the run."""
        if run_options is None:
            return self.session.run(feed, outputs=wanted, writable=True)
        future = self.start(feed, wanted, run_options)
        try:
            results: Mapping[str, Any] = future.result()
            return results
        except CancelledError as error:
            raise Fail(TERMINATED) from error
        except BaseException:
            future.cancel()
            raise

    def start(
        self, feed: Mapping[str, Any], wanted: Sequence[str] | Mapping[str, Any] | None, run_options: RunOptions | None
    ) -> "Future[Any]":
        """Start a run. Raise Fail if the options have `terminate` set."""
        if run_options is None:
            return self.session.submit(feed, outputs=wanted, writable=True)
        if not isinstance(run_options, RunOptions):
            raise WrongType(f"run_options is {run_options!r}; give nnrt_client.onnxruntime.RunOptions")
        timeout_ms = run_options.timeout_ms
        future: Future[Any] | None = run_options._start(
            lambda: self.session.submit(feed, outputs=wanted, writable=True, timeout_ms=timeout_ms)
        )
        if future is None:
            raise Fail(TERMINATED)
        return future

    def names(self, output_names: Sequence[str] | None) -> list[str]:
        """Return the given names, or those of all outputs. Raise InvalidArgument for a name that is no output."""
        if isinstance(output_names, str):
            raise WrongType(f"output_names is {output_names!r}; give a list of names")
        names = list(output_names or self.output_specs)
        for name in names:
            if not isinstance(name, str):
                raise WrongType(f"output_names has {name!r}; give names")
            if name not in self.output_specs:
                raise InvalidArgument(f"Invalid output name:{name}; the model's are {list(self.output_specs)}")
        return names

    def require_all(self, feed: Mapping[str, Any]) -> None:
        """Raise MissingInputs if the feed doesn't name all inputs."""
        if not isinstance(feed, Mapping):
            raise WrongType(f"the input feed is {type(feed).__name__}; give a mapping of names to arrays")
        missing = [name for name in self.input_specs if name not in feed]
        if missing:
            raise MissingInputs(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")

    def feed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs for the session. Raise the errors of ONNX Runtime for inputs that don't fit the model."""
        self.require_all(given)
        specs = self.input_specs
        if self._constants:
            given = {name: one for name, one in given.items() if not self._is_frozen(name, one)}
        for name in given if len(given) != len(specs) else ():
            if not isinstance(name, str):
                raise WrongType(f"the input feed names {name!r}; give names of inputs")
            if name not in specs and given[name] is not None:
                raise InvalidArgument(f"Invalid input name: {name}; the model's are {list(specs)}")
        return {name: self._fitting(name, spec, given[name]) for name, spec in specs.items()}

    def _is_frozen(self, name: str, given: Any) -> bool:
        """Return whether an input is frozen. Raise InvalidArgument if `given` differs from its frozen value."""
        if name not in self._constants:
            return False
        try:
            array = np.asarray(given)
        except Exception as error:  # `given` may have conversion code that raises anything.
            raise _conversion_error(name, given, error) from error
        if not np.array_equal(array, np.asarray(self._constants[name])):
            raise InvalidArgument(f"input {name!r} is {given!r:.80}; this session has it frozen to another value")
        return True

    def _require_fit(self, name: str, spec: TensorSpec, given: Any) -> Any:
        if type(given) is not np.ndarray:
            given = self._convert(name, spec, given)
        is_tensor = isinstance(given, RunTensor)
        own = given.desc._to_spec() if is_tensor else given
        dtype = own.numpy_dtype if is_tensor else own.dtype
        if dtype != spec.numpy_dtype and dtype.newbyteorder("=") != spec.numpy_dtype:
            raise _type_error(name, dtype, spec)
        if not spec.accepts(own.shape):
            raise InvalidArgument(_describe_misfit(name, own.shape, spec.shape))
        return given

    def _fitting_strings(self, name: str, spec: TensorSpec, given: Any) -> Any:
        """Return an input as `_require_fit` does, or an array of strings. Raise the same errors."""
        if not isinstance(spec, PackedSpec):
            return self._require_fit(name, spec, given)
        if isinstance(given, list | tuple):
            given = np.asarray(given, object)
        elif type(given) is not np.ndarray:
            given = self._convert(name, spec, given)
        if isinstance(given, RunTensor) or not is_text(given.dtype):
            dtype = given.desc._to_spec().numpy_dtype if isinstance(given, RunTensor) else given.dtype
            raise InvalidArgument(
                f"Unexpected input data type. Actual: ({type_text(dtype)}) , expected: ({spec.value.name}); give input"
                f" {name!r} as strings"
            )
        shape = value_shape(spec)
        if len(given.shape) != len(shape) or any(
            dim not in (-1, got) for got, dim in zip(given.shape, shape, strict=True)
        ):
            raise InvalidArgument(_describe_misfit(name, given.shape, shape))
        return given

    def _convert(self, name: str, spec: TensorSpec, given: Any) -> Any:
        """Convert an input to an array or a tensor. Raise the errors of ONNX Runtime if that is impossible."""
        if isinstance(given, OrtValue):
            return given._memory.readable(self.connection, self.device)
        if isinstance(given, RunTensor):
            return given
        if given is None:
            raise Fail(f"input {name!r} is None; give an array")
        try:
            array = convert_numbers(given, spec.numpy_dtype) if isinstance(given, list | tuple) else view_array(given)
        except NotWhole as error:
            raise InvalidArgument(
                f"Unexpected input data type. Actual: (tensor(double)) , expected: ({type_text(spec.numpy_dtype)});"
                f" in input {name!r} {error}"
            ) from error
        except Exception as error:  # `given` may have conversion code that raises anything.
            raise _conversion_error(name, given, error) from error
        if array is None:
            raise BadBinding(f"Unable to handle object of type {type(given)}; give input {name!r} as an array")
        return array


class HasModel(Protocol):
    """Interface of a session for its bindings. `set_providers` replaces its model."""

    _model: PlacedModel


def placed_model(session: HasModel) -> PlacedModel:
    """Return the current model of a session."""
    return session._model


def _conversion_error(name: str, given: object, error: Exception) -> NnrtError:
    """Return the error for an input that can't be converted to an array."""
    if isinstance(error, NnrtError):
        return translate(error)
    what = "given input list" if isinstance(given, list | tuple) else type(given).__name__
    return BadBinding(f"Could not create tensor from {what}: input {name!r}: {error!r}")


def _type_error(name: str, dtype: np.dtype[Any], spec: TensorSpec) -> NnrtError:
    """Return the error for an array whose data type is not that of the input."""
    advice = f"; give input {name!r} as {spec.numpy_dtype}"
    if not has_type(dtype):
        return BadBinding(f"Numpy_type {dtype.num} can't be converted to MLDataType.{advice}")
    actual, expected = type_text(dtype), type_text(spec.numpy_dtype)
    return InvalidArgument(f"Unexpected input data type. Actual: ({actual}) , expected: ({expected}){advice}")


def _describe_misfit(name: str, shape: Sequence[int], declared: Sequence[int]) -> str:
    advice = "Please fix either the inputs/outputs or the model."
    if len(shape) != len(declared):
        return f"Invalid rank for input: {name} Got: {len(shape)} Expected: {len(declared)} {advice}"
    pairs = enumerate(zip(shape, declared, strict=True))
    wrong = [f" index: {at} Got: {got} Expected: {dim}" for at, (got, dim) in pairs if dim not in (-1, got)]
    return "\n".join((f"Got invalid dimensions for input: {name} for the following indices", *wrong, f" {advice}"))
