"""Model in a session of ONNX Runtime, ready to run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from nnrt_onnx_lowering import Assertions
from nnrt_onnx_lowering.value import AnyArray
from onnxruntime.capi.onnxruntime_pybind11_state import OrtDevice, OrtValue, OrtValueVector
from typing_extensions import Self

from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.kernels import QUIET
from nnrt_backend_onnxruntime.profiling import Reopen, profile_run
from nnrt_backend_onnxruntime.programs.sizes import Sizes as FileSizes
from nnrt_backend_onnxruntime.session import release_memory
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.graph_model import OpenGraphModel
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.ops import KnownTensors
from nnrt_hdi.ops.in_place import InPlace
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array, TensorSpec

# Smaller outputs, all together, are copied: that costs no more than passing their addresses to ONNX Runtime.
LEAST_IN_PLACE_BYTES = 1 << 15
# The memory of this process. All inputs and outputs are there, whatever the provider.
HOST = OrtDevice(OrtDevice.cpu(), OrtDevice.default_memory(), 0)
Export = Callable[[], list[Part]]


class RunOutputs(NamedTuple):
    """Properties of the outputs of all runs whose inputs have the same shapes.

    `are_empty` says whether all outputs are known to have no elements. `may_bind` says whether it pays to pass the
    outputs' addresses to ONNX Runtime.
    """

    specs: tuple[TensorSpec, ...]
    are_empty: bool
    may_bind: bool

    @classmethod
    def from_known(cls, known: KnownTensors) -> Self:
        specs = known.sizes.outputs
        may_bind = not any(spec.is_dynamic or 0 in spec.shape for spec in specs)
        return cls(
            specs,
            all(0 in spec.shape and not spec.is_dynamic for spec in specs),
            may_bind and sum(spec.byte_size for spec in specs) >= LEAST_IN_PLACE_BYTES,
        )


class OnnxModel(OpenGraphModel[RunOutputs]):
    """Model that runs a session.

    ONNX Runtime reads inputs where they are. It writes outputs where the caller wants them, if they are large and their
    shapes follow from those of the inputs. Other outputs are in memory that ONNX Runtime allocates.
    """

    def __init__(
        self,
        session: Any,
        graph: Graph,
        input_count: int,
        weights: Mapping[str, AnyArray],
        max_tensor_bytes: int,
        deadlines: Deadlines,
        export: Export,
        reopen: Reopen,
        shared: InPlace,
        sizes: FileSizes | None = None,
    ) -> None:
        """Wrap an open session.

        Args:
            session: The session.
            graph: The graph. The first `input_count` inputs are those of a run, the others stand for constants.
            input_count: The number of inputs of a run.
            weights: The large constants, which have to live as long as the session.
            max_tensor_bytes: The most bytes that a tensor may have.
            deadlines: Ends runs at their deadlines.
            export: Returns the compiled model in parts.
            reopen: Opens another session of the same model, with a profile.
            shared: The inputs and outputs that may be in memory that the client can write to.
            sizes: The sizes of tensors, for a model that doesn't come from the graph.
        """
        super().__init__(graph, max_tensor_bytes, RunOutputs.from_known, input_count=input_count)
        self.session = session
        # None if there are no assertions, because each run tests this.
        self._assertions = Assertions.from_graph(graph) or None
        self._weights = weights
        self._deadlines = deadlines
        self._export = export
        self._reopen = reopen
        self._names = [entry.name for entry in session.get_inputs()]
        self._output_names = [entry.name for entry in session.get_outputs()]
        self._file_sizes = sizes
        self.reads_in_place = shared.inputs
        # Empty if there are assertions, because ONNX Runtime then returns more outputs than the graph has.
        self._writes_in_place = frozenset[int]() if self._assertions else shared.outputs

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        cancellation.check()
        if self._file_sizes is not None:
            self._file_sizes.require_run_fits(tuple([array.shape for array in inputs]))
        expected = self.prepared(inputs)
        if expected.are_empty and self.varies and not self._assertions:
            return [np.empty(spec.shape, spec.numpy_dtype) for spec in expected.specs]
        with StoppableRun(cancellation, self._deadlines) as options:
            if outputs and expected.may_bind and any(outputs[at] is not None for at in self._writes_in_place):
                return self._run_in_place(inputs, expected.specs, outputs, options)
            results: list[AnyArray] = self.session.run(
                self._output_names, dict(zip(self._names, inputs, strict=True)), options
            )
        return self._assertions.checked(results) if self._assertions else results

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        return profile_run(self, self._reopen, inputs, cancellation, outputs)

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        if self._file_sizes is None:
            return self._kinds.value_for(inputs).sizes
        multiply_adds = self._file_sizes.require_run_fits(tuple([array.shape for array in inputs]))
        sizes = self._kinds.value_for(inputs).sizes
        return sizes if multiply_adds <= sizes.multiply_adds else replace(sizes, multiply_adds=multiply_adds)

    def export(self) -> list[Part]:
        return self._export()

    def close(self) -> None:
        self.session = None
        self._weights = {}
        release_memory()

    def _run_in_place(
        self, inputs: Sequence[Array], specs: Sequence[TensorSpec], regions: Sequence[Array | None], options: Any
    ) -> list[Array]:
        """Run the model with outputs in these regions, or in new arrays."""
        outputs: list[Array] = []
        for at, (spec, region) in enumerate(zip(specs, regions, strict=True)):
            is_given = region is not None and at in self._writes_in_place
            outputs.append(region if is_given else np.empty(spec.shape, spec.numpy_dtype))  # type: ignore[arg-type]
        # ONNX Runtime's IOBinding does the same, but takes 30 microseconds longer (1.31).
        self.session.run_with_ortvaluevector(
            options, self._names, as_values(inputs), self._output_names, as_values(outputs), [HOST] * len(outputs)
        )
        return outputs


def as_values(arrays: Sequence[Array]) -> Any:
    """Return the arrays as ONNX Runtime's values, without a copy."""
    values = OrtValueVector()
    for array in arrays:
        values.push_back(OrtValue.ortvalue_from_numpy(array, HOST))
    return values


class StoppableRun:
    """Context that gives the options of a run. ONNX Runtime ends the run when it is cancelled or its deadline passes.

    Errors of ONNX Runtime become errors of NNRt. Every small run passes here: a generator would take a microsecond
    longer.
    """

    __slots__ = ("_cancellation", "_deadlines", "_take_back", "_ticket")

    def __init__(self, cancellation: Cancellation, deadlines: Deadlines) -> None:
        self._cancellation = cancellation
        self._deadlines = deadlines
        self._ticket: int | None = None

    def __enter__(self) -> Any:
        options = onnxruntime.RunOptions()
        options.log_severity_level = QUIET
        stop = partial(setattr, options, "terminate", True)
        self._take_back = self._cancellation.on_cancel(stop)
        if (deadline := self._cancellation.deadline) is not None:
            self._ticket = self._deadlines.add(deadline, stop)
        return options

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_back()
        if self._ticket is not None:
            self._deadlines.remove(self._ticket)
        if isinstance(error, Exception) and not isinstance(error, NnrtError):
            self._cancellation.check()
            raise translated_error(error) from error


def without_large_constants(graph: Graph) -> Graph:
    """Return the graph with its large constants as inputs after the others. Inference doesn't read their elements."""
    small = {at: constant for at, constant in graph.constants.items() if constant.shape_value is not None}
    if len(small) == len(graph.constants):
        return graph
    large = tuple(at for at in graph.constants if at not in small)
    return Graph(graph.tensors, graph.nodes, (*graph.inputs, *large), graph.outputs, small, graph.name)


def translated_error(error: Exception) -> NnrtError:
    """Return the NNRt error for an error of ONNX Runtime, which has no classes for the cases that matter."""
    return nnrt_error(type(error).__name__, str(error))


def nnrt_error(kind: str, message: str) -> NnrtError:
    """Return the NNRt error for an error of ONNX Runtime, given the name of its class and its message."""
    text = message.replace("\n", " ").strip()
    if any(sign in text for sign in ("Available memory of", "Failed to allocate", "bad_alloc", "out of memory")):
        return OutOfMemory(text)
    return InvalidParameter(text) if kind == "InvalidArgument" else OperationFailed(text)
