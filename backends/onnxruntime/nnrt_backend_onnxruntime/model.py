"""A model in a session of ONNX Runtime, ready to run."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime

from nnrt_backend_onnxruntime.builder import AnyArray
from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.kernels import QUIET
from nnrt_backend_onnxruntime.program import asserted
from nnrt_backend_onnxruntime.session import release_memory
from nnrt_hdi.backend import Cancellation, DimRange, PreparedModel
from nnrt_hdi.container import Part
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Constant, Graph
from nnrt_hdi.ops import OPERATORS, infer_graph
from nnrt_hdi.ops.operands import INDICES
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM, Array, Shape, TensorSpec

# Most elements that a failed ASSERT shows: messages are short.
MOST_SHOWN = 100
# Input shapes that a dynamic model has been checked for, the latest ones.
MOST_SHAPES = 64
# Shapes of inputs, and the elements of those that decide others.
Decided = tuple[tuple[Shape, ...], tuple[bytes, ...]]
Export = Callable[[], list[Part]]


class OnnxModel(PreparedModel):
    """Runs a session. Inputs are read where they are, outputs are the memory that ONNX Runtime made them in."""

    def __init__(
        self,
        session: Any,
        graph: Graph,
        input_count: int,
        weights: Mapping[str, AnyArray],
        max_tensor_bytes: int,
        deadlines: Deadlines,
        export: Export,
    ) -> None:
        """Of `graph` the first inputs are those of a run; the others stand for constants."""
        self.session = session
        self._graph = graph
        self._asserted = asserted(graph)
        self._weights = weights
        self._max_tensor_bytes = max_tensor_bytes
        self._deadlines = deadlines
        self._export = export
        self._names = [entry.name for entry in session.get_inputs()]
        self._deciding = _deciding(graph, input_count)
        self._depends = bool(self._deciding) or any(spec.is_dynamic for spec in graph.tensors)
        self._fitting: OrderedDict[Decided, tuple[TensorSpec, ...]] = OrderedDict()
        self.inputs = graph.input_specs[:input_count]
        self.outputs = graph.output_specs
        require_fits(graph, max_tensor_bytes)

    def run(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Array]:
        cancellation.check()
        if self._depends:
            outputs = self._inferred(inputs)
            if not self._asserted and all(0 in spec.shape and not spec.is_dynamic for spec in outputs):
                return [np.empty(spec.shape, spec.numpy_dtype) for spec in outputs]
        feeds = dict(zip(self._names, inputs, strict=True))
        options = onnxruntime.RunOptions()
        options.log_severity_level = QUIET
        with self._stopped_by(cancellation, options):
            try:
                results: list[AnyArray] = self.session.run(None, feeds, options)
            except Exception as error:
                cancellation.check()
                raise _translated(error) from error
        return self._checked(results)

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

    @contextmanager
    def _stopped_by(self, cancellation: Cancellation, options: Any) -> Iterator[None]:
        """While the block lasts, a cancellation or the deadline makes ONNX Runtime end the run."""

        def stop() -> None:
            options.terminate = True

        cancellation.on_cancel(stop)
        remaining = cancellation.remaining
        if remaining is None:
            yield
            return
        ticket = self._deadlines.add(remaining, stop)
        try:
            yield
        finally:
            self._deadlines.remove(ticket)

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
        inference = infer_graph(replace(self._graph, tensors=tuple(tensors), inputs=rest, constants=constants))
        inference.raise_first_problem()
        require_fits(inference.graph, self._max_tensor_bytes)
        self._fitting[decided] = outputs = inference.graph.output_specs
        while len(self._fitting) > MOST_SHAPES:
            self._fitting.popitem(last=False)
        return outputs


def _deciding(graph: Graph, input_count: int) -> tuple[int, ...]:
    """The inputs whose elements say shapes, axes or places, and not only which elements to pick."""
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


def _translated(error: Exception) -> NnrtError:
    """The error of NNRt for one of ONNX Runtime, which has no classes for what matters."""
    text = str(error).replace("\n", " ").strip()
    if any(sign in text for sign in ("Available memory of", "Failed to allocate", "bad_alloc", "out of memory")):
        return OutOfMemory(text)
    kind = type(error).__name__
    return InvalidParameter(text) if kind == "InvalidArgument" else OperationFailed(text)
