"""A model in a session of ONNX Runtime, ready to run."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import OrtDevice, OrtValue, OrtValueVector

from nnrt_backend_onnxruntime.builder import AnyArray
from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.kernels import QUIET
from nnrt_backend_onnxruntime.program import asserted
from nnrt_backend_onnxruntime.programs.sizes import Sizes
from nnrt_backend_onnxruntime.session import release_memory
from nnrt_hdi.backend import Cancellation, DimRange, PreparedModel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Constant, Graph
from nnrt_hdi.ops import OPERATORS, inferred_graph
from nnrt_hdi.ops.in_place import InPlace
from nnrt_hdi.ops.operands import INDICES
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM, Array, Shape, TensorSpec

# Most elements that a failed ASSERT shows: messages are short.
MOST_SHOWN = 100
# Input shapes that a dynamic model has been checked for, the latest ones.
MOST_SHAPES = 64
# Outputs of fewer bytes together are copied: that costs no more than to tell ONNX Runtime where they go.
LEAST_IN_PLACE_BYTES = 1 << 15
# The memory of this process, in which all inputs and outputs are, whatever the provider.
HERE = OrtDevice(OrtDevice.cpu(), OrtDevice.default_memory(), 0)
# Shapes of inputs, and the elements of those that decide others.
Decided = tuple[tuple[Shape, ...], tuple[bytes, ...]]
Export = Callable[[], list[Part]]


class OnnxModel(PreparedModel):
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
        shared: InPlace,
        sizes: Sizes | None = None,
    ) -> None:
        """Of `graph` the first inputs are those of a run; the others stand for constants. `shared` says which may be
        where the client can write. A session of a model that doesn't come from the graph has `sizes`."""
        self.session = session
        self._graph = graph
        self._asserted = asserted(graph)
        self._weights = weights
        self._max_tensor_bytes = max_tensor_bytes
        self._deadlines = deadlines
        self._export = export
        self._names = [entry.name for entry in session.get_inputs()]
        self._output_names = [entry.name for entry in session.get_outputs()]
        self._deciding = _deciding(graph, input_count)
        self._sizes = sizes
        self._depends = bool(self._deciding) or any(spec.is_dynamic for spec in graph.tensors)
        self._fitting: OrderedDict[Decided, tuple[TensorSpec, ...]] = OrderedDict()
        self.inputs = graph.input_specs[:input_count]
        self.outputs = graph.output_specs
        self.reads_in_place = shared.inputs
        # None, where what ONNX Runtime gives is more than the outputs.
        self._writes_in_place = frozenset[int]() if self._asserted else shared.outputs
        require_fits(graph, max_tensor_bytes)

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        cancellation.check()
        if self._sizes is not None:
            self._sizes.require_run_fits(inputs)
        specs = self.output_specs(inputs)
        if self._depends and not self._asserted and all(0 in spec.shape and not spec.is_dynamic for spec in specs):
            return [np.empty(spec.shape, spec.numpy_dtype) for spec in specs]
        with stopping(cancellation, self._deadlines) as options:
            if outputs and self._may_bind(specs, outputs):
                return self._run_in_place(inputs, specs, outputs, options)
            results: list[AnyArray] = self.session.run(
                self._output_names, dict(zip(self._names, inputs, strict=True)), options
            )
        return self._checked(results) if self._asserted else results

    def output_specs(self, inputs: Sequence[Array]) -> tuple[TensorSpec, ...]:
        return self._inferred(inputs) if self._depends else self.outputs

    def export(self) -> list[Part]:
        return self._export()

    def input_ranges(self) -> list[DimRange]:
        return [
            DimRange(
                tuple(0 if dim == UNKNOWN_DIM else dim for dim in spec.shape),
                tuple(MAX_DIM if dim == UNKNOWN_DIM else dim for dim in spec.shape),
            )
            for spec in self.inputs
        ]

    def close(self) -> None:
        self.session = None
        self._weights = {}
        release_memory()

    def _may_bind(self, specs: Sequence[TensorSpec], regions: Sequence[Array | None]) -> bool:
        """ONNX Runtime can be told where each output is to go, and that is worth while."""
        if not any(regions[at] is not None for at in self._writes_in_place):
            return False
        if any(spec.is_dynamic or 0 in spec.shape for spec in specs):
            return False
        return sum(spec.byte_size for spec in specs) >= LEAST_IN_PLACE_BYTES

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

    def _checked(self, results: list[AnyArray]) -> list[Array]:
        """The outputs, if every assertion holds."""
        count = len(self.outputs)
        for number, index in enumerate(self._asserted):
            condition, data = results[count + 2 * number : count + 2 * number + 2]
            if not np.all(condition):
                raise _assertion_failed(self._graph, index, condition, data)
        return list(results[:count])

    def _inferred(self, inputs: Sequence[Array]) -> tuple[TensorSpec, ...]:
        """The outputs, as far as they follow from the inputs' shapes, and from elements of these that decide shapes.

        Refuses inputs from which too large a tensor follows, or an error.
        """
        decided = (
            tuple(array.shape for array in inputs),
            tuple(inputs[at].tobytes() if inputs[at].nbytes <= INLINE_CONSTANT_BYTES else b"" for at in self._deciding),
        )
        if known := self._fitting.get(decided):
            return known
        tensors = list(self._graph.tensors)
        constants = dict(self._graph.constants)
        for index, array in zip(self._graph.inputs, inputs, strict=False):
            tensors[index] = tensors[index].with_shape(array.shape)
        for at in self._deciding:
            constants[self._graph.inputs[at]] = Constant(b"", inputs[at].nbytes, inputs[at])
        rest = tuple(index for index in self._graph.inputs if index not in constants)
        graph = inferred_graph(replace(self._graph, tensors=tuple(tensors), inputs=rest, constants=constants))
        require_fits(graph, self._max_tensor_bytes)
        self._fitting[decided] = outputs = graph.output_specs
        while len(self._fitting) > MOST_SHAPES:
            self._fitting.popitem(last=False)
        return outputs


def values_of(arrays: Sequence[Array]) -> Any:
    """The arrays as ONNX Runtime takes them, where they are."""
    values = OrtValueVector()
    for array in arrays:
        values.push_back(OrtValue.ortvalue_from_numpy(array, HERE))
    return values


@contextmanager
def stopping(cancellation: Cancellation, deadlines: Deadlines) -> Iterator[Any]:
    """Options with which ONNX Runtime ends a run as soon as it must; its errors become those of NNRt."""
    options = onnxruntime.RunOptions()
    options.log_severity_level = QUIET

    def stop() -> None:
        options.terminate = True

    cancellation.on_cancel(stop)
    deadline = cancellation.deadline
    ticket = None if deadline is None else deadlines.add(deadline, stop)
    try:
        yield options
    except NnrtError:
        raise
    except Exception as error:
        cancellation.check()
        raise translated(error) from error
    finally:
        if ticket is not None:
            deadlines.remove(ticket)


def _deciding(graph: Graph, input_count: int) -> tuple[int, ...]:
    """The inputs whose elements say shapes, axes or positions, and not only which elements to pick."""
    found = set()
    for node in graph.nodes:
        rules = OPERATORS[node.type].operands
        for position, tensor in enumerate(node.inputs):
            accepts = rules[min(position, len(rules) - 1)].accepts
            if node.type is NodeType.CONSTANT_OF_SHAPE or (accepts.data_types == INDICES and accepts.max_rank):
                found.add(tensor)
    return tuple(at for at, tensor in enumerate(graph.inputs[:input_count]) if tensor in found)


def require_fits(graph: Graph, max_tensor_bytes: int) -> None:
    """Raise OutOfMemory for a node with an output that is known to be larger than a tensor may be."""
    for index, node in enumerate(graph.nodes):
        for at in node.outputs:
            spec = graph.tensors[at]
            if not spec.is_dynamic and spec.byte_size > max_tensor_bytes:
                raise OutOfMemory(
                    f"{spec} needs {spec.byte_size} bytes; at most {max_tensor_bytes} are allowed",
                    place=graph.place(index),
                )


def _assertion_failed(graph: Graph, index: int, condition: AnyArray, data: AnyArray) -> OperationFailed:
    node = graph.nodes[index]
    shown = data.reshape(-1)[: min(OPERATORS[node.type].bind(node.attrs)["summarize"], MOST_SHOWN)]
    spec = graph.tensors[node.inputs[1]].with_shape(data.shape)
    begins = f"; data {spec} begins with {', '.join(map(str, shown))}" if shown.size else ""
    false = condition.size - np.count_nonzero(condition)
    return OperationFailed(
        f"{false} of {condition.size} elements of condition are false{begins}", place=graph.place(index)
    )


def skeleton(graph: Graph) -> Graph:
    """A graph with its large constants as inputs behind the others: what inference needs, and no more."""
    small = {at: constant for at, constant in graph.constants.items() if constant.shape_value is not None}
    large = tuple(at for at in graph.constants if at not in small)
    return Graph(graph.tensors, graph.nodes, (*graph.inputs, *large), graph.outputs, small, graph.name)


def translated(error: Exception) -> NnrtError:
    """The error of NNRt for one of ONNX Runtime, which has no classes for what matters."""
    text = str(error).replace("\n", " ").strip()
    if any(sign in text for sign in ("Available memory of", "Failed to allocate", "bad_alloc", "out of memory")):
        return OutOfMemory(text)
    kind = type(error).__name__
    return InvalidParameter(text) if kind == "InvalidArgument" else OperationFailed(text)
