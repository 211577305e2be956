"""Shapes and memory of a run, as far as they follow from its inputs before it starts."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Generic, TypeVar, cast

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import too_much
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Graph, Node
from nnrt_hdi.ops.inference import infer_tensors, raise_first, with_known_tensors
from nnrt_hdi.ops.multiply_adds import multiply_adds
from nnrt_hdi.ops.open_dims import OpenDim, Tape, larger
from nnrt_hdi.ops.operands import INTEGERS
from nnrt_hdi.ops.operator import OPERATORS
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, Shape, TensorSpec

# Number of kinds of inputs, the latest ones, that are remembered for a dynamic model.
MOST_REMEMBERED = 64
# Number of branches of inference, the latest ones, that are remembered for one model, and of their nodes in total. If
# that many were recorded in a row and none served a second kind of inputs, recording stops: it costs as much as a
# second inference.
_MOST_BRANCHES = 8
_BRANCHES_NODES = 1 << 14
# Approximate size of a branch in bytes per node.
BRANCH_BYTES = 1024
# Kind of inputs: their shapes, and the elements of those inputs that determine shapes.
_Decided = tuple[tuple[Shape, ...], tuple[bytes, ...]]
KindT = TypeVar("KindT")


class Branch:
    """Result of inference for all runs whose open dimensions make inference take the same branches."""

    def __init__(
        self,
        graph: Graph,
        specs: Sequence[TensorSpec],
        undecided: frozenset[int],
        tape: Tape,
        elements: tuple[bytes, ...] = (),
    ) -> None:
        """Create a branch from one inference, and end the recording on its tape.

        Args:
            graph: The graph.
            specs: The inferred tensors. Some of their dimensions are `OpenDim`s of the tape.
            undecided: The nodes with an output dimension that inference doesn't know, even if it is declared.
            tape: The tape.
            elements: The elements of the inputs that determine shapes.
        """
        self.graph = graph
        self.undecided = undecided
        self.elements = elements
        self._tape = tape
        self._specs = specs
        # Indices on the tape: those of the dimensions of open shapes by tensor, of the peak memory and of the
        # multiply-adds.
        self._shapes = {
            at: tuple([tape.index_of(dim) for dim in spec.shape])
            for at, spec in enumerate(specs)
            if any(isinstance(dim, OpenDim) for dim in spec.shape)
        }
        self._peak_bytes = tape.index_of(peak_bytes(graph, specs))
        self._multiply_adds = tape.index_of(multiply_adds(graph, specs))
        tape.end()

    def known(self, lengths: Sequence[int]) -> "KnownTensors | None":
        """Return the tensors of a run with these open dimensions, or None if inference may take another branch."""
        values = self._tape.replay(lengths)
        return None if values is None else KnownTensors(self, values)

    def specs(self, tensors: Iterable[int], values: Sequence[int]) -> list[TensorSpec]:
        """Return the specs of these tensors, given the values of the tape."""
        specs, shapes = self._specs, self._shapes
        return [
            specs[at].with_sound_shape(tuple([values[place] for place in shapes[at]])) if at in shapes else specs[at]
            for at in tensors
        ]

    def sizes(self, values: Sequence[int]) -> Sizes:
        """Return the sizes of a run, given the values of the tape."""
        outputs = tuple(self.specs(self.graph.outputs, values))
        return Sizes(outputs, values[self._peak_bytes], values[self._multiply_adds])


class KnownTensors:
    """Tensors of a graph in one run, as far as they are known before it starts."""

    def __init__(self, branch: Branch, values: Sequence[int]) -> None:
        """Create the tensors from the values of a branch's tape; only Branch and RunKinds call this."""
        self.branch = branch
        self._values = values

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the run."""
        return self.branch.sizes(self._values)

    @cached_property
    def specs(self) -> list[TensorSpec]:
        """Specs of all tensors."""
        return self.branch.specs(range(len(self.branch.graph.tensors)), self._values)

    @property
    def graph(self) -> Graph:
        """Graph with these tensors."""
        return with_known_tensors(self.branch.graph, self.specs, self.branch.undecided)


class RunKinds(Generic[KindT]):
    """Cache of a value that depends only on the kind of a run's inputs, for the latest kinds.

    Inputs of one kind have the same shapes and, where elements determine shapes, the same elements. Nodes are inferred
    for a kind only if inference takes another branch than for earlier kinds.
    """

    def __init__(
        self,
        graph: Graph,
        input_count: int,
        max_tensor_bytes: int,
        work_out: Callable[[KnownTensors], KindT],
        most: int = MOST_REMEMBERED,
    ) -> None:
        """Prepare the cache for a graph.

        Args:
            graph: An inferred graph. Its first `input_count` inputs are those of a run, the others stand for constants.
            input_count: The number of inputs of a run.
            max_tensor_bytes: The limit of a tensor's bytes.
            work_out: Computes the value of a kind from the tensors of a run.
            most: The limit of cached values.

        Raises:
            OutOfMemory: A tensor is too large whatever the inputs are. Errors of `work_out` are raised too.
        """
        self._graph = graph
        self._max_tensor_bytes = max_tensor_bytes
        self._work_out = work_out
        self._most = most
        self._deciding = _deciding(graph, input_count)
        self._open = [
            (at, axis)
            for at, tensor in enumerate(graph.inputs[:input_count])
            for axis, dim in enumerate(graph.tensors[tensor].shape)
            if dim == UNKNOWN_DIM
        ]
        # The latest first.
        self._branches: list[Branch] = []
        self._most_branches = max(1, min(_MOST_BRANCHES, _BRANCHES_NODES // max(len(graph.nodes), 1)))
        # Number of branches recorded since a recorded one was last used.
        self._unused = 0
        self._known: OrderedDict[_Decided, KindT] = OrderedDict()
        self._latest: tuple[_Decided, KindT] | None = None
        self._lock = threading.Lock()
        require_fits(graph, graph.tensors, max_tensor_bytes)
        self.varies = bool(self._deciding) or any(spec.is_dynamic for spec in graph.tensors)
        self.kept_bytes = self._most_branches * len(graph.nodes) * BRANCH_BYTES if self.varies else 0
        # The value of all runs, if there is only one kind.
        self.always: KindT | None = None
        if not self.varies:
            tape = Tape()
            always = Branch(graph, graph.tensors, graph.undecided or frozenset(), tape)
            self.always = work_out(KnownTensors(always, tape.values))

    def __len__(self) -> int:
        """Return the number of cached kinds; 0 for a model with only one."""
        return len(self._known)

    def value_for(self, inputs: Sequence[Array]) -> KindT:
        """Return the value of the kind of these inputs.

        Raises:
            OutOfMemory: A tensor would be too large. Errors of inference and of `work_out` are raised too.
        """
        if self.always is not None:
            return self.always
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
            known = self._work_out(self._known_tensors(inputs, decided))
            with self._lock:
                known = self._known.setdefault(decided, known)  # Another thread's value stays.
                while len(self._known) > self._most:
                    self._known.popitem(last=False)
        self._latest = decided, known
        return known

    def forget(self) -> None:
        """Drop all values."""
        with self._lock:
            self.always = self._latest = None
            self._known.clear()

    def _known_tensors(self, inputs: Sequence[Array], decided: _Decided) -> KnownTensors:
        shapes, elements = decided
        lengths = [shapes[at][axis] for at, axis in self._open]
        for branch in self._branches:
            if branch.elements == elements and (known := branch.known(lengths)) is not None:
                self._unused = 0
                return known
        tape = Tape()
        if self._unused == self._most_branches:
            return KnownTensors(self._inferred(inputs, lengths, elements, tape), tape.values)
        branch = self._inferred(inputs, tape.dims(lengths), elements, tape)
        with self._lock:
            self._branches = [branch, *self._branches[: self._most_branches - 1]]
            self._unused = min(self._unused + 1, self._most_branches)
        return KnownTensors(branch, tape.values)

    def _inferred(
        self, inputs: Sequence[Array], dims: Sequence[int | OpenDim], elements: tuple[bytes, ...], tape: Tape
    ) -> Branch:
        """Infer every node for these inputs, with `dims` as their open dimensions."""
        graph = self._graph
        tensors, values = list(graph.tensors), dict(graph.shape_values)
        shapes = [list(array.shape) for array in inputs]
        for (at, axis), dim in zip(self._open, dims, strict=True):
            shapes[at][axis] = cast("int", dim)
        for index, shape in zip(graph.inputs, shapes, strict=False):
            tensors[index] = tensors[index].with_shape(shape)
        for at in self._deciding:
            if inputs[at].nbytes <= INLINE_CONSTANT_BYTES:
                values[graph.inputs[at]] = inputs[at]
        inferred = infer_tensors(graph, tensors, values)
        raise_first(inferred.problems)
        require_fits(graph, inferred.specs, self._max_tensor_bytes)
        return Branch(graph, inferred.specs, inferred.undecided, tape, elements)


def sizes_of(graph: Graph, tensors: Sequence[TensorSpec]) -> Sizes:
    """Return the sizes of a run with these tensors."""
    outputs = tuple([tensors[at] for at in graph.outputs])
    return Sizes(outputs, peak_bytes(graph, tensors), multiply_adds(graph, tensors))


def require_fits(graph: Graph, tensors: Sequence[TensorSpec], max_tensor_bytes: int) -> None:
    """Raise OutOfMemory for a node with an output that is known to exceed the limit of a tensor."""
    for index, node in enumerate(graph.nodes):
        for at in node.outputs:
            size = tensors[at].known_bytes
            if size > max_tensor_bytes:
                raise too_much(f"{tensors[at]} needs {size} bytes", max_tensor_bytes, place=graph.place(index))


def peak_bytes(graph: Graph, tensors: Sequence[TensorSpec]) -> int:
    """Return the peak memory of the nodes' results in bytes. Results of unknown size count as 0.

    Each result is kept until the last node that reads it has run, and outputs until the end.
    """
    sizes: dict[int, int] = {}
    live = peak = 0
    for index, last_uses in zip(graph.order, graph.last_uses, strict=True):
        for at in graph.nodes[index].outputs:
            sizes[at] = size = tensors[at].known_bytes
            live += size
        peak = larger(peak, live)
        for at in last_uses:
            live -= sizes.get(at, 0)
    return peak


def _elements(array: Array) -> bytes:
    """Return the elements of an input if inference may read them, else b""."""
    return array.tobytes() if array.nbytes <= INLINE_CONSTANT_BYTES else b""


def _deciding(graph: Graph, input_count: int) -> tuple[int, ...]:
    """Return the positions of the run's inputs whose elements determine shapes: sizes, axes and positions."""
    found = {tensor for node in graph.nodes for tensor in deciding_operands(node)}
    return tuple(at for at, tensor in enumerate(graph.inputs[:input_count]) if tensor in found)


def deciding_operands(node: Node) -> Iterator[int]:
    """Yield the operands of a node whose elements determine shapes: sizes, axes and positions."""
    rules = OPERATORS[node.type].operands
    for position, tensor in enumerate(node.inputs):
        accepts = rules[min(position, len(rules) - 1)].accepts
        if node.type is NodeType.CONSTANT_OF_SHAPE or (accepts.data_types == INTEGERS and accepts.max_rank):
            yield tensor
