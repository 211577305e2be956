"""Shapes, and the memory that a run takes, as they follow from its inputs before it starts."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import too_much
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Graph, Node
from nnrt_hdi.ops.inference import InferredTensors, infer_tensors, raise_first
from nnrt_hdi.ops.operands import INTEGERS
from nnrt_hdi.ops.operator import OPERATORS
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array, Shape, TensorSpec

# The latest kinds of inputs of a dynamic model that are remembered.
MOST_REMEMBERED = 64
# Shapes of inputs, and the elements of those that decide others.
_Decided = tuple[tuple[Shape, ...], tuple[bytes, ...]]
KindT = TypeVar("KindT")


class RunKinds(Generic[KindT]):
    """What follows from the inputs of a run: worked out once for each kind of inputs, and kept for the latest kinds.

    Inputs are of a kind that have the same shapes and, where elements decide shapes, the same elements.
    """

    def __init__(
        self,
        graph: Graph,
        input_count: int,
        max_tensor_bytes: int,
        work_out: Callable[[InferredTensors], KindT],
        most: int = MOST_REMEMBERED,
    ) -> None:
        """Of `graph`, which has been inferred, the first inputs are those of a run; others stand for constants.
        `work_out` says what follows from the graph's tensors as a run has them; of it the `most` latest are kept.

        Raises OutOfMemory for a tensor that is always too large, and what `work_out` raises.
        """
        self._graph = graph
        self._max_tensor_bytes = max_tensor_bytes
        self._work_out = work_out
        self._most = most
        self._deciding = _deciding(graph, input_count)
        self._known: OrderedDict[_Decided, KindT] = OrderedDict()
        self._latest: tuple[_Decided, KindT] | None = None
        self._lock = threading.Lock()
        require_fits(graph, graph.tensors, max_tensor_bytes)
        self.varies = bool(self._deciding) or any(spec.is_dynamic for spec in graph.tensors)
        self._always = None if self.varies else work_out(InferredTensors.of(graph))

    def __len__(self) -> int:
        """Give the number of kinds that are remembered, of a model with several."""
        return len(self._known)

    def of(self, inputs: Sequence[Array]) -> KindT:
        """Raises OutOfMemory for inputs from which too large a tensor follows, what inference says of others, and what
        `work_out` raises."""
        if self._always is not None:
            return self._always
        shapes = tuple([array.shape for array in inputs])
        decided = shapes, tuple([_elements(inputs[at]) for at in self._deciding])
        latest = self._latest
        if latest is not None and latest[0] == decided:
            return latest[1]
        with self._lock:
            known = self._known.get(decided)
            if known is not None:
                self._known.move_to_end(decided)
        if known is None:
            known = self._worked_out(inputs)
            with self._lock:
                known = self._known.setdefault(decided, known)  # Of two that worked it out at once, the first one's.
                while len(self._known) > self._most:
                    self._known.popitem(last=False)
        self._latest = decided, known
        return known

    def _worked_out(self, inputs: Sequence[Array]) -> KindT:
        graph = self._graph
        tensors, values = list(graph.tensors), dict(graph.shape_values)
        for index, array in zip(graph.inputs, inputs, strict=False):
            tensors[index] = tensors[index].with_shape(array.shape)
        for at in self._deciding:
            if inputs[at].nbytes <= INLINE_CONSTANT_BYTES:
                values[graph.inputs[at]] = inputs[at]
        inferred = infer_tensors(graph, tensors, values)
        raise_first(inferred.problems)
        require_fits(graph, inferred.specs, self._max_tensor_bytes)
        return self._work_out(inferred)


def sizes_of(graph: Graph, tensors: Sequence[TensorSpec]) -> Sizes:
    """The sizes of a run in which the tensors of a graph are these."""
    return Sizes(tuple([tensors[at] for at in graph.outputs]), peak_bytes(graph, tensors))


def require_fits(graph: Graph, tensors: Sequence[TensorSpec], max_tensor_bytes: int) -> None:
    """Raise OutOfMemory for a node with an output that is known to be larger than a tensor may be."""
    for index, node in enumerate(graph.nodes):
        for at in node.outputs:
            size = tensors[at].known_bytes
            if size > max_tensor_bytes:
                raise too_much(f"{tensors[at]} needs {size} bytes", max_tensor_bytes, place=graph.place(index))


def peak_bytes(graph: Graph, tensors: Sequence[TensorSpec]) -> int:
    """The most bytes that results of nodes take at a time, where each is kept from its node to the last that reads it,
    and outputs to the end. Results of unknown size count as none."""
    sizes: dict[int, int] = {}
    live = peak = 0
    for index, last_uses in zip(graph.order, graph.last_uses, strict=True):
        for at in graph.nodes[index].outputs:
            sizes[at] = size = tensors[at].known_bytes
            live += size
        peak = max(peak, live)
        for at in last_uses:
            live -= sizes.get(at, 0)
    return peak


def _elements(array: Array) -> bytes:
    """The elements of an input at which inference may look."""
    return array.tobytes() if array.nbytes <= INLINE_CONSTANT_BYTES else b""


def _deciding(graph: Graph, input_count: int) -> tuple[int, ...]:
    """The inputs whose elements say shapes, axes or positions, and not only which elements to pick."""
    found = {tensor for node in graph.nodes for tensor in deciding_operands(node)}
    return tuple(at for at, tensor in enumerate(graph.inputs[:input_count]) if tensor in found)


def deciding_operands(node: Node) -> Iterator[int]:
    """The operands of a node whose elements say shapes, axes or positions."""
    rules = OPERATORS[node.type].operands
    for position, tensor in enumerate(node.inputs):
        accepts = rules[min(position, len(rules) - 1)].accepts
        if node.type is NodeType.CONSTANT_OF_SHAPE or (accepts.data_types == INTEGERS and accepts.max_rank):
            yield tensor
