"""ONNX Runtime's InferenceSession on a device behind a daemon."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

from nnrt_client.model_session.load import load
from nnrt_client.onnxruntime.connections import use
from nnrt_client.onnxruntime.errors import (
    BadBinding,
    InvalidGraph,
    NotSupported,
    WrongType,
    of_run,
    translated,
)
from nnrt_client.onnxruntime.io_binding import IOBinding
from nnrt_client.onnxruntime.missing_methods import MissingMethods
from nnrt_client.onnxruntime.node_arg import ModelMetadata, NodeArg, model_metadata, node_args
from nnrt_client.onnxruntime.options import RunOptions, SessionOptions
from nnrt_client.onnxruntime.ort_value import DEVICE, HOST, OrtValue, placed
from nnrt_client.onnxruntime.placed_model import TERMINATED, PlacedModel
from nnrt_client.onnxruntime.providers import NNRT, Provider, chosen_options, load_options
from nnrt_client.onnxruntime.value_memory import ValueMemory
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)


# Takes the outputs of a run, what was given for it, and an error's text, which is empty where there is none.
OnDone = Callable[[list[NDArray[Any]], Any, str], object]


class InferenceSession(MissingMethods, Closable):
    """An ONNX model on a device, with the methods of ONNX Runtime's class of this name.

        session = InferenceSession("model.onnx", providers=[("NnrtExecutionProvider", {"device": "10.0.0.7:50051"})])
        (scores,) = session.run(["scores"], {"image": image})

    Without a device it is the first of NNRT_DEVICES that answers. There is no fallback, unless the provider's option
    `fallback` asks for one: what the device can't run is refused. The session ends when nobody refers to it any more,
    or with `close`. docs/reference/onnxruntime-interface.md has what is covered.
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
        self._close, self._providers, self._given = close, providers, given
        self._model = model = PlacedModel(session, device, connection, constants)
        held.callback(model.memory.close)
        dims = self._options._dims_by_name, self._options._dims_by_denotation
        self._inputs = node_args(self._header.inputs, model.input_specs, *dims)
        self._outputs = node_args(self._header.outputs, model.output_specs, *dims)

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
        return {
            name: {**given, "device": self._model.device.address} if name == NNRT else {} for name in self._providers
        }

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
        names = self._model.names(output_names)
        feed = self._model.feed(input_feed)
        try:
            results = self._model.run(feed, names if output_names else None, run_options)
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
        self._model.require_all(input_feed)
        # Memory on the device of a value that is collected is used again, and the run reads there.
        read = list(input_feed.values())
        try:
            names = self._model.names(output_names)
            future = self._model.start(self._model.feed(input_feed), names, run_options)
        except NnrtError as error:
            future, names = Future(), []
            self._model.device._latest.callbacks.submit(future.set_exception, of_run(error))

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
        """Run with values in place of arrays."""
        return [OrtValue(ValueMemory(array)) for array in self.run(output_names, input_dict_ort_values, run_options)]

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
        return placed(self._model.connection, self._model.device, shape, element_type)
