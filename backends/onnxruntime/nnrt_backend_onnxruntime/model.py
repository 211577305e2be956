"""A model in a session of ONNX Runtime, ready to run."""

from collections.abc import Callable, Mapping, Sequence
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
from nnrt_backend_onnxruntime.profiling import Reopen, profiled
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

# Outputs of fewer bytes together are copied: that costs no more than to tell ONNX Runtime where they go.
LEAST_IN_PLACE_BYTES = 1 << 15
# The memory of this process, in which all inputs and outputs are, whatever the provider.
HERE = OrtDevice(OrtDevice.cpu(), OrtDevice.default_memory(), 0)
Export = Callable[[], list[Part]]


class Plan(NamedTuple):
    """The outputs of runs of a kind: their specs, whether all are known to be without elements, and whether it is worth
    while to tell ONNX Runtime where each is to go."""

    specs: tuple[TensorSpec, ...]
    are_empty: bool
    may_bind: bool

    @classmethod
    def of(cls, known: KnownTensors) -> Self:
        specs = known.sizes.outputs
        may_bind = not any(spec.is_dynamic or 0 in spec.shape for spec in specs)
        return cls(
            specs,
            all(0 in spec.shape and not spec.is_dynamic for spec in specs),
            may_bind and sum(spec.byte_size for spec in specs) >= LEAST_IN_PLACE_BYTES,
        )


class OnnxModel(OpenGraphModel[Plan]):
    """Runs a session. Inputs are read where they are; outputs are written where they go if they are large and their
    shapes follow from those of the inputs, else they are the memory that ONNX Runtime made them in."""

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
        """Of `graph` the first inputs are those of a run; the others stand for constants. `shared` says which may be
        where the client can write. A session of a model that doesn't come from the graph has `sizes`."""
        super().__init__(graph, max_tensor_bytes, Plan.of, input_count=input_count)
        self.session = session
        # None where there is none: each run asks.
        self._assertions = Assertions.of(graph) or None
        self._weights = weights
        self._deadlines = deadlines
        self._export = export
        self._reopen = reopen
        self._names = [entry.name for entry in session.get_inputs()]
        self._output_names = [entry.name for entry in session.get_outputs()]
        self._file_sizes = sizes
        self.reads_in_place = shared.inputs
        # None, where what ONNX Runtime gives is more than the outputs.
        self._writes_in_place = frozenset[int]() if self._assertions else shared.outputs

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        cancellation.check()
        if self._file_sizes is not None:
            self._file_sizes.require_run_fits(inputs)
        plan = self.prepared(inputs)
        if plan.are_empty and self.varies and not self._assertions:
            return [np.empty(spec.shape, spec.numpy_dtype) for spec in plan.specs]
        with Stopping(cancellation, self._deadlines) as options:
            if outputs and plan.may_bind and any(outputs[at] is not None for at in self._writes_in_place):
                return self._run_in_place(inputs, plan.specs, outputs, options)
            results: list[AnyArray] = self.session.run(
                self._output_names, dict(zip(self._names, inputs, strict=True)), options
            )
        return self._assertions.checked(results) if self._assertions else results

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        return profiled(self, self._reopen, inputs, cancellation, outputs)

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        if self._file_sizes is not None:
            self._file_sizes.require_run_fits(inputs)
        return self._kinds.of(inputs).sizes

    def export(self) -> list[Part]:
        return self._export()

    def close(self) -> None:
        self.session = None
        self._weights = {}
        release_memory()

    def _run_in_place(
        self, inputs: Sequence[Array], specs: Sequence[TensorSpec], regions: Sequence[Array | None], options: Any
    ) -> list[Array]:
        """Run with outputs in these regions, or in memory of their own."""
        outputs: list[Array] = []
        for at, (spec, region) in enumerate(zip(specs, regions, strict=True)):
            is_given = region is not None and at in self._writes_in_place
            outputs.append(region if is_given else np.empty(spec.shape, spec.numpy_dtype))  # type: ignore[arg-type]
        # ONNX Runtime's IOBinding does the same for 30 microseconds more (1.31).
        self.session.run_with_ortvaluevector(
            options, self._names, values_of(inputs), self._output_names, values_of(outputs), [HERE] * len(outputs)
        )
        return outputs


def values_of(arrays: Sequence[Array]) -> Any:
    """The arrays as ONNX Runtime takes them, where they are."""
    values = OrtValueVector()
    for array in arrays:
        values.push_back(OrtValue.ortvalue_from_numpy(array, HERE))
    return values


class Stopping:
    """Gives a block options with which ONNX Runtime ends a run as soon as it must; its errors become those of NNRt.

    Every small run comes here: a generator would take a microsecond more.
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
            raise translated(error) from error


def skeleton(graph: Graph) -> Graph:
    """A graph with its large constants as inputs behind the others: what inference needs, and no more."""
    small = {at: constant for at, constant in graph.constants.items() if constant.shape_value is not None}
    if len(small) == len(graph.constants):
        return graph
    large = tuple(at for at in graph.constants if at not in small)
    return Graph(graph.tensors, graph.nodes, (*graph.inputs, *large), graph.outputs, small, graph.name)


def translated(error: Exception) -> NnrtError:
    """The error of NNRt for one of ONNX Runtime, which has no classes for what matters."""
    return error_of(type(error).__name__, str(error))


def error_of(kind: str, said: str) -> NnrtError:
    """The error of NNRt for one of ONNX Runtime's, by the name of its class and what it says."""
    text = said.replace("\n", " ").strip()
    if any(sign in text for sign in ("Available memory of", "Failed to allocate", "bad_alloc", "out of memory")):
        return OutOfMemory(text)
    return InvalidParameter(text) if kind == "InvalidArgument" else OperationFailed(text)
