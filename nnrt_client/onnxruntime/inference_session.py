"""ONNX Runtime's InferenceSession on a device behind a daemon."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from nnrt_client.model_session.arrays import NotWhole, converted, viewed_array
from nnrt_client.model_session.load import load
from nnrt_client.onnxruntime.connections import use
from nnrt_client.onnxruntime.element_types import has_type, type_text
from nnrt_client.onnxruntime.errors import (
    BadBinding,
    Fail,
    InvalidArgument,
    InvalidGraph,
    MissingInputs,
    NotSupported,
    WrongType,
    of_run,
    translated,
)
from nnrt_client.onnxruntime.io_binding import DeviceMemory, IOBinding
from nnrt_client.onnxruntime.node_arg import ModelMetadata, NodeArg, model_metadata, node_args
from nnrt_client.onnxruntime.options import RunOptions, SessionOptions
from nnrt_client.onnxruntime.ort_value import DEVICE, HOST, OrtValue, placed
from nnrt_client.onnxruntime.providers import NNRT, Provider, chosen_options, load_options
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import TensorSpec

_log = logging.getLogger(__name__)

_TERMINATED = "Exiting due to terminate flag being set to true."

# Takes the outputs of a run, what was given for it, and an error's text, which is empty where there is none.
OnDone = Callable[[list[NDArray[Any]], Any, str], object]


class InferenceSession(Closable):
    """An ONNX model on a device, with the methods of ONNX Runtime's class of this name.

        session = InferenceSession("model.onnx", providers=[("NnrtExecutionProvider", {"device": "10.0.0.7:50051"})])
        (scores,) = session.run(["scores"], {"image": image})

    Without a device it is the first of NNRT_DEVICES that answers. There is no fallback, unless the provider's option
    `fallback` asks for one: what the device can't run is refused. The session ends when nobody refers to it any more,
    or with `close`. docs/inference-session.md has what is covered.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | Buffer,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **unused: object,
    ) -> None:
        """Raises UnknownProvider, NoSuchFile, InvalidProtobuf, InvalidGraph for a model that the device can't run, Fail
        where no such device answers, and what `nnrt_client.load` raises, as `errors` names it."""
        if not isinstance(path_or_bytes, str | os.PathLike | bytes | bytearray | memoryview):
            raise WrongType(f"Unable to load from type '{type(path_or_bytes)}'")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise WrongType(f"sess_options is {sess_options!r}; give nnrt_client.onnxruntime.SessionOptions")
        if unused:
            _log.debug("arguments without effect: %s", sorted(unused))
        self._source = path_or_bytes
        # Libraries such as Optimum read it.
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, str | os.PathLike) else None
        self._options = sess_options or SessionOptions()
        try:
            # Not at the top: without the extra nnrt[onnx] this says what to install.
            from nnrt_client.onnx_import.header import read_header
        except ImportError as error:
            raise NotSupported("ONNX models need the package onnx; install nnrt[onnx]") from error
        try:
            self._header = read_header(path_or_bytes)
        except NnrtError as error:
            raise translated(error) from error
        self._open(*chosen_options(providers, provider_options))

    def _open(self, providers: list[str], given: dict[str, Any]) -> None:
        options, settings = load_options(given)
        which, constants = options.pop("device", None), options.get("constants", {})
        held = ExitStack()
        connection, close = use(which, self, held.close, settings)
        try:
            device = connection.device(which)
            session = held.enter_context(load(self._source, device, shapes=self._shapes(), **options))
        except BaseException as error:
            close()
            if isinstance(error, NnrtError):
                raise translated(error, unsupported=InvalidGraph) from error
            raise
        self._session, self._device, self._connection, self._close = session, device, connection, close
        self._providers, self._given, self._constants = providers, given, constants
        self._input_specs = _specs(session.inputs)
        self._output_specs = _specs(session.outputs)
        self._memory = DeviceMemory(device, self._output_specs)
        held.callback(self._memory.close)
        dims = self._options._dims_by_name, self._options._dims_by_denotation
        self._inputs = node_args(self._header.inputs, self._input_specs, *dims)
        self._outputs = node_args(self._header.outputs, self._output_specs, *dims)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs whose dimensions the options settle."""
        shapes = {}
        for argument in self._header.inputs:
            settled = argument.with_dims(self._options._dims_by_name, self._options._dims_by_denotation).shape
            if settled is not None and settled != argument.shape:
                shapes[argument.name] = tuple(dim if isinstance(dim, int) else -1 for dim in settled)
        return shapes

    def close(self) -> None:
        """Free the model, on the device too. Idempotent."""
        self._close()

    @property
    def _sess(self) -> "InferenceSession":
        """The session that libraries expect inside ONNX Runtime's class."""
        return self

    # ---- the model

    def get_inputs(self) -> list[NodeArg]:
        """Give the inputs, in the model's order."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Give the outputs, in the model's order."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Give the inputs that the model has values for; here they can't be given others."""
        return node_args(self._header.optional_inputs, {}, {}, {})

    def get_modelmeta(self) -> ModelMetadata:
        """Give what the file says of itself."""
        return model_metadata(self._header)

    # ---- the session

    def get_session_options(self) -> SessionOptions:
        """Give the options."""
        return self._options

    def get_providers(self) -> list[str]:
        """Name the providers: the device's, and those that were named beside it."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Give the options of the providers as texts; of the device's with the address."""
        given = {name: str(value) for name, value in self._given.items()}
        return {name: {**given, "device": self._device.address} if name == NNRT else {} for name in self._providers}

    def set_providers(
        self, providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Load the model anew, where these providers have another device or other options."""
        names, given = chosen_options(providers, provider_options)
        if given == self._given:
            self._providers = names
            return
        close = self._close
        self._open(names, given)
        close()

    def disable_fallback(self) -> None:
        """Do nothing: there is no fallback."""

    def enable_fallback(self) -> None:
        """Do nothing: there is no fallback."""

    # ---- running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[NDArray[Any]]:
        """Run, and give the outputs of these names, or all; they may be written to.

        Raises MissingInputs, InvalidArgument for names and arrays that the model doesn't have, Fail where the device
        can't run it so, or it was terminated, EPFail if the daemon dies.
        """
        names = self._names(output_names)
        feed = self._feed(input_feed)
        try:
            results = self._run_checked(feed, names if output_names else None, run_options)
        except NnrtError as error:
            raise of_run(error) from error
        return [results[name] for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: OnDone,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Start a run; callback(outputs, user_data, error) is called in a thread of the runtime when it has ended.

        The session stays until then, also where nobody else refers to it. Raises MissingInputs at once; all else that
        is wrong is told to the callback.
        """
        self._require_all(input_feed)
        # Memory on the device of a value that is collected is used again, and the run reads there.
        read = list(input_feed.values())
        try:
            names = self._names(output_names)
            future = self._started(self._feed(input_feed), names, run_options)
        except NnrtError as error:
            future, names = Future(), []
            self._device._latest.callbacks.submit(future.set_exception, of_run(error))

        def done(ended: "Future[Any]", _kept: "InferenceSession" = self) -> None:
            read.clear()
            try:
                results = ended.result()
            except CancelledError:
                callback([], user_data, _TERMINATED)
            except NnrtError as error:
                callback([], user_data, error.message)
            else:
                callback([results[name] for name in names], user_data, "")

        future.add_done_callback(done)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run with values in place of arrays."""
        return [OrtValue(array) for array in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Give inputs and outputs to be bound."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with what is bound. Raises BoundRunFailed."""
        iobinding._run(run_options)

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = DEVICE,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A value with room for a shape, on the session's device (`nnrt`) or on this host."""
        if device_type == HOST:
            return OrtValue.ortvalue_from_shape_and_type(shape, element_type)
        if device_type != DEVICE:
            raise BadBinding(f"Unsupported device type: {device_type}; use {HOST!r} or {DEVICE!r}")
        return placed(self._connection, self._device, shape, element_type)

    def _run_checked(
        self, feed: Mapping[str, Any], wanted: Sequence[str] | Mapping[str, Any] | None, run_options: RunOptions | None
    ) -> Mapping[str, Any]:
        if run_options is None:
            return self._session.run(feed, outputs=wanted, writable=True)
        future = self._started(feed, wanted, run_options)
        try:
            results: Mapping[str, Any] = future.result()
            return results
        except CancelledError as error:
            raise Fail(_TERMINATED) from error
        except BaseException:
            future.cancel()
            raise

    def _started(
        self, feed: Mapping[str, Any], wanted: Sequence[str] | Mapping[str, Any] | None, run_options: RunOptions | None
    ) -> "Future[Any]":
        if run_options is None:
            return self._session.submit(feed, outputs=wanted, writable=True)
        if not isinstance(run_options, RunOptions):
            raise WrongType(f"run_options is {run_options!r}; give nnrt_client.onnxruntime.RunOptions")
        timeout_ms = run_options.timeout_ms
        future: Future[Any] | None = run_options._started(
            lambda: self._session.submit(feed, outputs=wanted, writable=True, timeout_ms=timeout_ms)
        )
        if future is None:
            raise Fail(_TERMINATED)
        return future

    def _names(self, output_names: Sequence[str] | None) -> list[str]:
        if isinstance(output_names, str):
            raise WrongType(f"output_names is {output_names!r}; give a list of names")
        names = list(output_names or self._output_specs)
        for name in names:
            if not isinstance(name, str):
                raise WrongType(f"output_names has {name!r}; give names")
            if name not in self._output_specs:
                raise InvalidArgument(f"Invalid output name:{name}; the model's are {list(self._output_specs)}")
        return names

    def _require_all(self, feed: Mapping[str, Any]) -> None:
        if not isinstance(feed, Mapping):
            raise WrongType(f"the input feed is {type(feed).__name__}; give a mapping of names to arrays")
        missing = [name for name in self._input_specs if name not in feed]
        if missing:
            raise MissingInputs(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")

    def _feed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs as the session takes them. Raises what ONNX Runtime does for those that aren't the model's."""
        self._require_all(given)
        specs = self._input_specs
        if self._constants:
            given = {name: one for name, one in given.items() if not self._is_frozen(name, one)}
        for name in given if len(given) != len(specs) else ():
            if not isinstance(name, str):
                raise WrongType(f"the input feed names {name!r}; give names of inputs")
            if name not in specs and given[name] is not None:
                raise InvalidArgument(f"Invalid input name: {name}; the model's are {list(specs)}")
        return {name: self._fitting(name, spec, given[name]) for name, spec in specs.items()}

    def _is_frozen(self, name: str, given: Any) -> bool:
        """Tell if an input is frozen, so that it need not be given. Raises InvalidArgument where it is given another
        value."""
        if name not in self._constants:
            return False
        try:
            array = np.asarray(given)
        except Exception as error:  # What is given may have code of its own.
            raise _no_array(name, given, error) from error
        if not np.array_equal(array, np.asarray(self._constants[name])):
            raise InvalidArgument(f"input {name!r} is {given!r:.80}; this session has it frozen to another value")
        return True

    def _fitting(self, name: str, spec: TensorSpec, given: Any) -> Any:
        if type(given) is not np.ndarray:
            given = self._readable(name, spec, given)
        is_tensor = isinstance(given, RunTensor)
        own = given.desc._to_spec() if is_tensor else given
        dtype = own.numpy_dtype if is_tensor else own.dtype
        if dtype != spec.numpy_dtype and dtype.newbyteorder("=") != spec.numpy_dtype:
            raise _other_type(name, dtype, spec)
        if not spec.accepts(own.shape):
            raise InvalidArgument(_misfit(name, own.shape, spec.shape))
        return given

    def _readable(self, name: str, spec: TensorSpec, given: Any) -> Any:
        """Make an array or a tensor of an input that is given. Raises what ONNX Runtime does where it is none."""
        if isinstance(given, OrtValue):
            return given._readable(self._connection, self._device)
        if isinstance(given, RunTensor):
            return given
        if given is None:
            raise Fail(f"input {name!r} is None; give an array")
        try:
            array = converted(given, spec.numpy_dtype) if isinstance(given, list | tuple) else viewed_array(given)
        except NotWhole as error:
            raise InvalidArgument(
                f"Unexpected input data type. Actual: (tensor(double)) , expected: ({type_text(spec.numpy_dtype)});"
                f" in input {name!r} {error}"
            ) from error
        except Exception as error:  # What is given may have code of its own.
            raise _no_array(name, given, error) from error
        if array is None:
            raise BadBinding(f"Unable to handle object of type {type(given)}; give input {name!r} as an array")
        return array

    # ---- what there isn't

    def end_profiling(self) -> NoReturn:
        """Refuse: the daemon computes, and `nnrt bench` says where time goes."""
        raise NotSupported("end_profiling: nothing is profiled; run `nnrt bench`, or read NamedOutputs.times")

    def get_profiling_start_time_ns(self) -> NoReturn:
        """Refuse, as `end_profiling`."""
        raise NotSupported("get_profiling_start_time_ns: nothing is profiled; run `nnrt bench`")

    def get_tuning_results(self) -> NoReturn:
        """Refuse: the daemon tunes nothing that a client may see."""
        raise NotSupported("get_tuning_results: the daemon has none; leave the call out")

    def set_tuning_results(self, results: object, *, error_on_invalid: bool = False) -> NoReturn:
        """Refuse, as `get_tuning_results`."""
        raise NotSupported("set_tuning_results: the daemon takes none; leave the call out")

    def run_with_ortvaluevector(self, *arguments: object) -> NoReturn:
        """Refuse: it is for training."""
        raise NotSupported("run_with_ortvaluevector: use run_with_iobinding or run_with_ort_values")


def _no_array(name: str, given: object, error: Exception) -> NnrtError:
    """The error of an input of which no array can be made, for a reason of its own."""
    if isinstance(error, NnrtError):
        return translated(error)
    what = "given input list" if isinstance(given, list | tuple) else type(given).__name__
    return BadBinding(f"Could not create tensor from {what}: input {name!r}: {error!r}")


def _other_type(name: str, dtype: np.dtype[Any], spec: TensorSpec) -> NnrtError:
    """The error of an array of another data type than the model's."""
    advice = f"; give input {name!r} as {spec.numpy_dtype}"
    if not has_type(dtype):
        return BadBinding(f"Numpy_type {dtype.num} can't be converted to MLDataType.{advice}")
    actual, expected = type_text(dtype), type_text(spec.numpy_dtype)
    return InvalidArgument(f"Unexpected input data type. Actual: ({actual}) , expected: ({expected}){advice}")


def _misfit(name: str, shape: Sequence[int], declared: Sequence[int]) -> str:
    advice = "Please fix either the inputs/outputs or the model."
    if len(shape) != len(declared):
        return f"Invalid rank for input: {name} Got: {len(shape)} Expected: {len(declared)} {advice}"
    pairs = enumerate(zip(shape, declared, strict=True))
    wrong = [f" index: {at} Got: {got} Expected: {dim}" for at, (got, dim) in pairs if dim not in (-1, got)]
    return "\n".join((f"Got invalid dimensions for input: {name} for the following indices", *wrong, f" {advice}"))


def _specs(descs: Sequence[Any]) -> dict[str, TensorSpec]:
    return {desc.name: desc._to_spec() for desc in descs}
