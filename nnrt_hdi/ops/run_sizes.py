"""Shapes, and the memory that a run takes, as they follow from its inputs before it starts."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Constant, Graph
from nnrt_hdi.ops.inference import inferred_graph
from nnrt_hdi.ops.operands import INDICES
from nnrt_hdi.ops.operator import OPERATORS
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array, Shape

# The latest inputs of a dynamic model that are remembered.
_MOST_REMEMBERED = 64
# Shapes of inputs, and the elements of those that decide others.
_Decided = tuple[tuple[Shape, ...], tuple[bytes, ...]]


class RunSizes:
    """The sizes of a model's runs, which are inferred once for each kind of inputs."""

    def __init__(self, graph: Graph, input_count: int, max_tensor_bytes: int) -> None:
        """Of `graph`, which has been inferred, the first inputs are those of a run; others stand for constants.

        Raises OutOfMemory for a tensor that is always too large.
        """
        self._graph = graph
        self._max_tensor_bytes = max_tensor_bytes
        self._deciding = _deciding(graph, input_count)
        self._known: OrderedDict[_Decided, Sizes] = OrderedDict()
        require_fits(graph, max_tensor_bytes)
        varies = self._deciding or any(spec.is_dynamic for spec in graph.tensors)
        self._always = None if varies else _sizes(graph)

    @property
    def are_fixed(self) -> bool:
        """True where all runs have the same."""
        return self._always is not None

    def of(self, inputs: Sequence[Array]) -> Sizes:
        """Raises OutOfMemory for inputs from which too large a tensor follows, and what inference says of others."""
        if self._always is not None:
            return self._always
        decided = (
            tuple(array.shape for array in inputs),
            tuple(inputs[at].tobytes() if inputs[at].nbytes <= INLINE_CONSTANT_BYTES else b"" for at in self._deciding),
        )
        if known := self._known.get(decided):
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
        self._known[decided] = sizes = _sizes(graph)
        while len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return sizes


def _sizes(graph: Graph) -> Sizes:
    return Sizes(graph.output_specs, peak_bytes(graph))


def require_fits(graph: Graph, max_tensor_bytes: int) -> None:
    """Raise OutOfMemory for a node with an output that is known to be larger than a tensor may be."""
    for index, node in enumerate(graph.nodes):
        for at in node.outputs:
            size = _size(graph, at)
            if size > max_tensor_bytes:
                raise OutOfMemory(
                    f"{graph.tensors[at]} needs {size} bytes; at most {max_tensor_bytes} are allowed",
                    place=graph.place(index),
                )


def peak_bytes(graph: Graph) -> int:
    """The most bytes that results of nodes take at a time, where each is kept from its node to the last that reads it,
    and outputs to the end. Results of unknown size count as none."""
    last_use: dict[int, int] = {}
    for position, index in enumerate(graph.order):
        for at in (*graph.nodes[index].inputs, *graph.nodes[index].outputs):
            last_use[at] = position
    for at in graph.outputs:
        last_use[at] = len(graph.nodes)
    made = {at for node in graph.nodes for at in node.outputs}
    dying = [0] * (len(graph.nodes) + 1)
    for at in made:
        dying[last_use[at]] += _size(graph, at)
    live = peak = 0
    for position, index in enumerate(graph.order):
        live += sum(_size(graph, at) for at in graph.nodes[index].outputs)
        peak = max(peak, live)
        live -= dying[position]
    return peak


def _size(graph: Graph, at: int) -> int:
    spec = graph.tensors[at]
    return 0 if spec.is_dynamic else spec.byte_size


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
