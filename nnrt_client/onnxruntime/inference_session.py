"""ONNX Runtime's InferenceSession on a daemon's device."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from functools import partial
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

from nnrt_client.model_session.known_file import known_file
from nnrt_client.model_session.load import load
from nnrt_client.onnx_import.declared import Header
from nnrt_client.onnxruntime.connections import connect
from nnrt_client.onnxruntime.errors import (
    BadBinding,
    InvalidGraph,
    NotSupported,
    WrongType,
    translate,
    translate_run_error,
)
from nnrt_client.onnxruntime.io_binding import IOBinding
from nnrt_client.onnxruntime.missing_methods import MissingMethods
from nnrt_client.onnxruntime.node_arg import ModelMetadata, NodeArg, make_metadata, make_node_args
from nnrt_client.onnxruntime.options import RunOptions, SessionOptions
from nnrt_client.onnxruntime.ort_value import DEVICE, HOST, OrtValue, allocate_on_device, value_of
from nnrt_client.onnxruntime.placed_model import TERMINATED, PlacedModel
from nnrt_client.onnxruntime.providers import NNRT, Provider, choose_options, load_options
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)


# Callback of a run: takes its outputs, the user data, and the error's text, which is empty without an error.
OnDone = Callable[[list[NDArray[Any]], Any, str], object]


class InferenceSession(MissingMethods, Closable):
    """ONNX model on a device, with the methods of ONNX Runtime's class of this name.

        session = InferenceSession("model.onnx", providers=[("NnrtExecutionProvider", {"device": "10.0.0.7:50051"})])
        (scores,) = session.run(["scores"], {"image": image})

    Without the option `device` the session uses the first device of NNRT_DEVICES that answers. A model that the device
    can't run is refused, unless the provider's option `fallback` is set. The session ends with `close`, or when it is
    garbage collected. docs/reference/onnxruntime-interface.md lists what is supported.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | Buffer,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **unused: object,
    ) -> None:
        """Load the model on the device.

        Args:
            path_or_bytes: path of the model, or its bytes.
            sess_options: options of the session.
            providers: providers, each a name or a pair of name and options.
            provider_options: options of the providers, if `providers` are names.
            **unused: ONNX Runtime's other arguments, which have no effect.

        Raises:
            UnknownProvider: the providers name no device, or are malformed.
            NoSuchFile: the model or its external data are missing or not accessible.
            InvalidProtobuf: the file is no ONNX model, or is damaged.
            InvalidGraph: the device can't run the model.
            Fail: no such device answers.
            WrongType: `path_or_bytes` or `sess_options` have another type.
            NotSupported: the package onnx is not installed.
            OnnxRuntimeError: any other error of `nnrt_client.load`, translated as in `nnrt_client.onnxruntime.errors`.
        """
        if not isinstance(path_or_bytes, str | os.PathLike | bytes | bytearray | memoryview):
            raise WrongType(f"Unable to load from type '{type(path_or_bytes)}'")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise WrongType(f"sess_options is {sess_options!r}; give nnrt_client.onnxruntime.SessionOptions")
        if unused:
            _log.debug("arguments without effect: %s", sorted(unused))
        self._source = path_or_bytes
        # Libraries such as Optimum read this attribute.
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, str | os.PathLike) else None
        self._options = sess_options or SessionOptions()
        names, given = choose_options(providers, provider_options)
        try:
            file = known_file(path_or_bytes, None, None, load_options(given)[0].get("cache", True))
            read = partial(_read_header, path_or_bytes)
            self._header = read() if file is None else file.header(read)
        except NnrtError as error:
            raise translate(error) from error
        self._open(names, given)

    def _open(self, providers: list[str], given: dict[str, Any]) -> None:
        options, settings = load_options(given)
        which, constants = options.pop("device", None), options.get("constants", {})
        resources = ExitStack()
        connection, close = connect(which, self, resources.close, settings)
        try:
            device = connection.device(which)
            session = resources.enter_context(load(self._source, device, shapes=self._shapes(), **options))
        except BaseException as error:
            close()
            if isinstance(error, NnrtError):
                raise translate(error, unsupported=InvalidGraph) from error
            raise
        self._close, self._providers, self._given = close, providers, given
        self._model = model = PlacedModel(session, device, connection, constants)
        resources.callback(model.memory.close)
        dims = self._options._dims_by_name, self._options._dims_by_denotation
        self._inputs = make_node_args(self._header.inputs, model.input_specs, *dims)
        self._outputs = make_node_args(self._header.outputs, model.output_specs, *dims)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs whose dimensions the session options fix."""
        shapes = {}
        for argument in self._header.inputs:
            settled = argument.with_dims(self._options._dims_by_name, self._options._dims_by_denotation).shape
            if settled is not None and settled != argument.shape:
                shapes[argument.name] = tuple(dim if isinstance(dim, int) else -1 for dim in settled)
        return shapes

    def close(self) -> None:
        """Free the model, also on the device. Idempotent."""
        self._close()

    @property
    def _sess(self) -> "InferenceSession":
        """Inner session that libraries expect in ONNX Runtime's class: this one."""
        return self

    # ---- the model

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs, in the model's order."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, in the model's order."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs for which the model has default values. Here these can't be overridden."""
        return make_node_args(self._header.optional_inputs, {}, {}, {})

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of the file."""
        return make_metadata(self._header)

    # ---- the session

    def get_session_options(self) -> SessionOptions:
        """Return the session options."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the names of the providers: the device's, and the others that the application named."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of the providers as texts; those of the device's provider include the address."""
        given = {name: str(value) for name, value in self._given.items()}
        return {
            name: {**given, "device": self._model.device.address} if name == NNRT else {} for name in self._providers
        }

    def set_providers(
        self, providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Load the model again if these providers have another device or other options.

        Args:
            providers: providers, each a name or a pair of name and options.
            provider_options: options of the providers, if `providers` are names.

        Raises:
            NnrtError: as the constructor. The session then keeps its model.
        """
        names, given = choose_options(providers, provider_options)
        if given == self._given:
            self._providers = names
            return
        close = self._close
        self._open(names, given)
        close()

    # ---- running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model and return its outputs.

        Args:
            output_names: names of the outputs, None or empty for all.
            input_feed: inputs by name: arrays, OrtValues, or anything that numpy makes an array of.
            run_options: options of the run.

        Returns:
            The outputs in the order of the names: arrays that the caller may write to, lists and dicts.

        Raises:
            MissingInputs: the feed lacks inputs.
            InvalidArgument: the model has no such input or output, or an array doesn't fit it.
            Fail: the device can't compute these inputs, or the options terminated the run.
            EPFail: the daemon died.
        """
        names = self._model.names(output_names)
        feed = self._model.feed(input_feed)
        try:
            results = self._model.run(feed, names if output_names else None, run_options)
        except NnrtError as error:
            raise translate_run_error(error) from error
        return [results[name] for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: OnDone,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Start a run. A thread of the runtime calls callback(outputs, user_data, error) when it has ended.

        Until then the session lives, even if the application drops it.

        Args:
            output_names: names of the outputs, None or empty for all.
            input_feed: inputs by name.
            callback: function that receives the outputs, or no outputs and the text of an error.
            user_data: second argument of the callback.
            run_options: options of the run.

        Raises:
            MissingInputs: the feed lacks inputs. The callback receives every other error.
        """
        self._model.require_all(input_feed)
        # Keep the inputs alive: the device memory of a collected value is reused, while the run may still read it.
        read = list(input_feed.values())
        try:
            names = self._model.names(output_names)
            future = self._model.start(self._model.feed(input_feed), names, run_options)
        except NnrtError as error:
            future, names = Future(), []
            self._model.device._latest.callbacks.submit(future.set_exception, translate_run_error(error))

        def done(ended: "Future[Any]", _kept: "InferenceSession" = self) -> None:
            read.clear()
            try:
                results = ended.result()
            except CancelledError:
                callback([], user_data, TERMINATED)
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
        """Run the model and return its outputs as values on this host.

        Args:
            output_names: names of the outputs, None or empty for all.
            input_dict_ort_values: inputs by name.
            run_options: options of the run.

        Returns:
            The outputs in the order of the names.

        Raises:
            NotSupported: an output is a sequence or a map.
            NnrtError: as `run`.
        """
        results = self.run(output_names, input_dict_ort_values, run_options)
        return [value_of(name, one) for name, one in zip(self._model.names(output_names), results, strict=True)]

    def io_binding(self) -> IOBinding:
        """Return an IOBinding, to which inputs and outputs can be bound."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run the model with the bound inputs and outputs. Raise BoundRunFailed if the run fails."""
        iobinding._run(run_options)

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = DEVICE,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Allocate a value on the session's device or on this host.

        Args:
            shape: dimensions of the value.
            element_type: numpy type, its name, or ONNX's number of the type.
            device_type: `nnrt` for the session's device, `cpu` for this host.
            device_id: has no effect.
            vendor_id: has no effect.

        Returns:
            The value.

        Raises:
            BadBinding: the device type is neither of these.
            WrongType: no device takes the element type.
        """
        if device_type == HOST:
            return OrtValue.ortvalue_from_shape_and_type(shape, element_type)
        if device_type != DEVICE:
            raise BadBinding(f"Unsupported device type: {device_type}; use {HOST!r} or {DEVICE!r}")
        return allocate_on_device(self._model.connection, self._model.device, shape, element_type)


def _read_header(path_or_bytes: str | os.PathLike[str] | Buffer) -> Header:
    try:
        # Imported here so that the error can say what to install if the extra nnrt[onnx] is missing.
        from nnrt_client.onnx_import.header import read_header
    except ImportError as error:
        raise NotSupported("ONNX models need the package onnx; install nnrt[onnx]") from error
    return read_header(path_or_bytes)
