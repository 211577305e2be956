"""Parts of a model that run in this process, in ONNX Runtime, which is an optional package."""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.model_session.partition.device_part import OnPartDone
from nnrt_client.model_session.partition.kept_values import KeptValues
from nnrt_client.model_session.real_onnxruntime import require_onnxruntime
from nnrt_client.onnx_import.cut import OnnxGraph
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_hdi.errors import OperationFailed, Unsupported
from nnrt_hdi.tensor import NUMPY_DTYPES, UNKNOWN_DIM, TensorSpec, data_type_of

_log = logging.getLogger(__name__)

# Data types by ONNX Runtime's names.
_DTYPES = {f"tensor({dtype.name})": dtype for dtype in NUMPY_DTYPES.values()} | {
    "tensor(double)": np.dtype(np.float64),
    "tensor(float)": np.dtype(np.float32),
}
_PROVIDERS = ["CPUExecutionProvider"]
_ERROR = 3


def learn_types(graph: OnnxGraph) -> None:
    """Add types of values to the graph, as ONNX Runtime infers them.

    These are values whose types the package onnx can't infer, because it doesn't know their operators.
    """
    untyped = graph.untyped_values
    if not untyped:
        return
    onnxruntime = require_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERROR + 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(graph.serialize_for_inference(untyped), options, providers=_PROVIDERS)
    except Exception as error:  # ONNX Runtime has no error class. The build of the parts says what is wrong.
        _log.info("ONNX Runtime does not say what these values are: %s: %s", untyped, error)
        return
    for info in session.get_outputs():
        if (dtype := _DTYPES.get(info.type)) is not None:
            # A scalar and a value of unknown rank both have an empty shape here.
            graph.set_type(info.name, dtype, info.shape or None)


class ClientPart:
    """Part of a model in this process, ready to run."""

    def __init__(
        self, data: bytes, place: str, threads: ThreadPoolExecutor, shared: Mapping[str, KeptValues[Tensor]]
    ) -> None:
        """Load a part from the bytes of an ONNX file, to run it in a thread of `threads`.

        `shared` has memory for the outputs that the device reads. Raises Unsupported if ONNX Runtime doesn't take the
        part.
        """
        onnxruntime = require_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _ERROR
        self.place = place
        self.threads = threads
        self.run_options = onnxruntime.RunOptions
        try:
            self.session = onnxruntime.InferenceSession(data, options, providers=_PROVIDERS)
        except Exception as error:  # ONNX Runtime has no error class.
            raise Unsupported(f"ONNX Runtime does not take it: {error}", place=place) from error
        self.inputs = [info.name for info in self.session.get_inputs()]
        self.outputs = [info.name for info in self.session.get_outputs()]
        # Values of other types can't be bound to memory.
        ends = (*self.session.get_inputs(), *self.session.get_outputs())
        self.shared = shared if all(info.type in _DTYPES for info in ends) else {}

    def output_spec(self, name: str) -> TensorSpec | None:
        """Return an output as ONNX Runtime describes it, or None if it is no tensor of NNRt.

        Unknown dimensions are -1.
        """
        info = next(info for info in self.session.get_outputs() if info.name == name)
        dtype = _DTYPES.get(info.type)
        if dtype is None:
            return None
        shape = tuple(dim if isinstance(dim, int) else UNKNOWN_DIM for dim in info.shape)
        return TensorSpec(data_type_of(dtype), shape, name=name)

    def call(
        self,
        values: Mapping[str, Any],
        sizes: Mapping[str, int],
        timeout_ms: int | None,
        targets: Mapping[str, RunTensor[Any]],
        on_behalf_of: str | None,
    ) -> "ClientCall":
        """Prepare a run on these values, with the sizes of named dimensions.

        The run writes to none of `targets`: when all parts have run, the dispatcher copies the outputs there.
        """
        return ClientCall(self, {name: values[name] for name in self.inputs}, sizes)


class ClientCall:
    """One run of a part in this process."""

    is_writing = False

    def __init__(self, part: ClientPart, inputs: dict[str, Any], sizes: Mapping[str, int]) -> None:
        self._part = part
        self._inputs = inputs
        self._sizes = sizes
        self._targets: dict[str, Tensor] = {}
        self._options = part.run_options()
        self._options.log_severity_level = _ERROR + 1  # Errors are raised.
        self._is_stopped = False

    def start(self, done: OnPartDone) -> None:
        """Let a thread run the part."""
        self._part.threads.submit(self._run, done)

    def _run(self, done: OnPartDone) -> None:
        part = self._part
        try:
            if self._is_stopped:
                raise OperationFailed("the run was given up")
            inputs = {name: _array(given) for name, given in self._inputs.items()}
            try:
                outputs = self._run_bound(inputs) if part.shared else None
                if outputs is None:
                    results = part.session.run(part.outputs, inputs, self._options)
                    outputs = dict(zip(part.outputs, map(_read_only, results), strict=True))
            except Exception as error:
                raise OperationFailed(f"ONNX Runtime: {error}", place=part.place) from error
        except BaseException as error:
            done(None, error)
        else:
            done(outputs, None)
        if self._is_stopped:  # `stop` may have come before the memory was taken.
            self._close_targets()

    def _run_bound(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Any] | None:
        """Run the part, and let ONNX Runtime write outputs into memory that the device reads.

        Return None if the outputs' shapes are unknown, or differ from what the names of their dimensions say.
        """
        part, binding = self._part, self._part.session.io_binding()
        views: dict[str, NDArray[Any]] = {}
        for name, values in part.shared.items():
            if (taken := values.take(self._sizes)) is not None:
                tensor, shape = taken
                self._targets[name] = tensor
                tensor._take_shape(shape)
                views[name] = tensor.numpy()  # Keeps the memory while ONNX Runtime writes to it.
        if not views:
            return None
        for name, array in inputs.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name in part.outputs:
            if (view := views.get(name)) is not None:
                binding.bind_output(name, "cpu", 0, view.dtype, view.shape, view.ctypes.data)
            else:
                binding.bind_output(name)
        try:
            part.session.run_with_iobinding(binding, self._options)
        except Exception:
            if self._is_stopped:
                raise
            self._close_targets()
            return None  # The run without bindings says what is wrong, if anything is.
        results = dict(zip(part.outputs, binding.get_outputs(), strict=True))
        return {name: self._targets.get(name) or _read_only(result.numpy()) for name, result in results.items()}

    def stop(self) -> None:
        """End the run soon, with an error; any thread may call this."""
        self._is_stopped = True
        self._options.terminate = True
        self._close_targets()

    def settle(self) -> None:
        """Give back the memory of the outputs, which are no longer read, for later runs."""
        targets, self._targets = self._targets, {}
        for name, tensor in targets.items():
            self._part.shared[name].give_back(tensor)

    def _close_targets(self) -> None:
        targets, self._targets = self._targets, {}
        for tensor in targets.values():
            tensor.close()


def _array(given: Any) -> Any:
    """Return a value as ONNX Runtime takes it: a tensor as an array, other values (such as sequences) as they are."""
    return given.numpy() if isinstance(given, Tensor | ResidentTensor) else given


def _read_only(result: Any) -> Any:
    if isinstance(result, np.ndarray):
        array: NDArray[Any] = result
        array.flags.writeable = False
    return result
