"""Graph: a model as plain immutable values, with checks of its structure.

This module doesn't know what nodes compute (see `nnrt_hdi.ops`). It checks that indices exist, that each tensor has one
source, and that the nodes have an order.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from typing_extensions import Self

from nnrt_hdi.enums import NodeType, QuantType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.mapped_files import sha256_of
from nnrt_hdi.tensor import Array, TensorSpec, flat_bytes

AttrValue = bool | int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[tuple[int, ...], ...]

# Constants up to this size may decide shapes (axes, permutations, target shapes), so they travel with the graph. Larger
# ones travel by digest, and decide nothing before a run.
INLINE_CONSTANT_BYTES = 1024

# Limits of a model, so that checking takes seconds and megabytes at most, whatever a message or file contains.
MAX_NODES = 1 << 16
MAX_TENSORS = 1 << 18
MAX_REFERENCES = 1 << 20  # operands and results of all nodes, inputs and outputs of the graph
MAX_QUANT_PARAMS = 1 << 20  # of all tensors
MAX_ATTRIBUTE_VALUES = 1024  # of one list

# Characters of a name that messages quote.
_QUOTED_LENGTH = 64


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Elements of a constant tensor: their digest and size, and the data if they are loaded.

    Constants up to 1 KiB always have data; they may decide shapes. Larger ones have none in `Backend.supported`.
    """

    sha256: bytes
    size_bytes: int
    data: Array | None = None

    @classmethod
    def of(cls, data: Array) -> Self:
        """Return a constant with this array, which nobody may change from now on."""
        return cls(sha256_of(flat_bytes(data)), data.nbytes, data)

    @property
    def shape_value(self) -> Array | None:
        """Elements of a constant up to 1 KiB, which may decide shapes; None for a larger one."""
        return self.data if self.size_bytes <= INLINE_CONSTANT_BYTES else None


@dataclass(frozen=True, slots=True)
class Node:
    """Node: an operator, and the indices of the tensors that it reads and writes.

    `attrs` has only the attributes that the model sets; `Operator.bind` adds the defaults. Optional last operands may
    be missing in `inputs`. `name` is for messages, and may be empty or not unique.
    """

    type: NodeType
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    name: str = ""
    quant_type: QuantType = QuantType.NONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))


@dataclass(frozen=True, eq=False)
class Graph:
    """Model: tensors, constants by tensor index, nodes in any order, and the tensors that a run takes and returns.

    Each tensor has one source (an input, a constant, or a node), and is used; there is no cycle. The constructor raises
    InvalidParameter, with the place, for parts that don't fit together.
    """

    tensors: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, Constant] = field(default_factory=dict)
    name: str = ""
    # Nodes with output dimensions that inference doesn't know, even if they are declared. `nnrt_hdi.ops.infer_graph`
    # alone sets it, for a graph without problems; None otherwise, and for a copy with other parts.
    undecided: frozenset[int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        self._check_indices()
        self._check_constants()
        self._check_sources()
        _ = self.order

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Indices of the nodes, each after the nodes that it reads from. Raises InvalidParameter for a cycle."""
        producer = {tensor: index for index, node in enumerate(self.nodes) for tensor in node.outputs}
        readers: list[list[int]] = [[] for _ in self.nodes]
        missing: list[int] = []  # For each node, how many of its sources are not in order yet.
        for index, node in enumerate(self.nodes):
            sources = {producer[tensor] for tensor in node.inputs if tensor in producer}
            missing.append(len(sources))
            for source in sources:
                readers[source].append(index)
        ready = [index for index in reversed(range(len(self.nodes))) if not missing[index]]
        order: list[int] = []
        while ready:
            index = ready.pop()
            order.append(index)
            for reader in reversed(readers[index]):
                missing[reader] -= 1
                if not missing[reader]:
                    ready.append(reader)
        if len(order) < len(self.nodes):
            stuck = next(index for index, count in enumerate(missing) if count)
            raise InvalidParameter("the node depends on its own output; a graph has no cycles", place=self.place(stuck))
        return tuple(order)

    def place(self, node: int) -> str:
        """Return how messages name a node: CONV2D_FUSION node 3 'conv1'."""
        subject = self.nodes[node]
        return f"{subject.type.name} node {node}" + quoted_name(subject.name)

    def tensor_place(self, tensor: int) -> str:
        """Return how messages name a tensor: tensor 7 'image'."""
        return f"tensor {tensor}" + quoted_name(self.tensors[tensor].name)

    @cached_property
    def last_uses(self) -> tuple[tuple[int, ...], ...]:
        """For each node, in `order`, the tensors that no later node reads, except constants and outputs."""
        needed = {*self.outputs, *self.constants}
        last_uses: list[tuple[int, ...]] = []
        for index in reversed(self.order):
            node = self.nodes[index]
            used = [tensor for tensor in dict.fromkeys((*node.inputs, *node.outputs)) if tensor not in needed]
            last_uses.append(tuple(used))
            needed.update(used)
        return tuple(reversed(last_uses))

    def part(
        self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], name: str
    ) -> tuple["Graph", Mapping[int, int]]:
        """Return the graph of some nodes, with these inputs and outputs, and the new index of each of its tensors."""
        chosen = [self.nodes[index] for index in nodes]
        used = {tensor for node in chosen for tensor in (*node.inputs, *node.outputs)}
        kept = {tensor: new for new, tensor in enumerate(sorted(used.union(inputs)))}

        def renumbered(tensors: Sequence[int]) -> tuple[int, ...]:
            return tuple(kept[tensor] for tensor in tensors)

        part = Graph(
            tensors=tuple(self.tensors[tensor] for tensor in kept),
            nodes=tuple(
                replace(node, inputs=renumbered(node.inputs), outputs=renumbered(node.outputs)) for node in chosen
            ),
            inputs=renumbered(inputs),
            outputs=renumbered(outputs),
            constants={kept[tensor]: constant for tensor, constant in self.constants.items() if tensor in kept},
            name=name,
        )
        return part, kept

    def with_tensors(self, tensors: Sequence[TensorSpec]) -> Self:
        """Return a copy with other, better known specs of the tensors."""
        if len(tensors) != len(self.tensors):
            return replace(self, tensors=tuple(tensors))
        return self._with(tensors=tuple(tensors), undecided=None)

    def with_constants(self, constants: Mapping[int, Constant]) -> Self:
        """Return a copy with the data of large constants, on which no shape depends."""
        if constants.keys() != self.constants.keys():
            return replace(self, constants=constants)
        return self._with(constants=MappingProxyType(dict(constants)))

    def _with(self, **parts: Any) -> Self:
        """Return a copy with other tensors or constants, of which it checks only that their sizes agree."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **parts)
        copy.__dict__.pop("shape_values", None)
        copy._check_constants()
        return copy

    @property
    def is_inferred(self) -> bool:
        """True if every tensor is inferred as far as possible, and no node has a problem."""
        return self.undecided is not None

    @cached_property
    def shape_values(self) -> Mapping[int, Array]:
        """Elements of the constants that may decide shapes, by tensor index."""
        values = ((index, constant.shape_value) for index, constant in self.constants.items())
        return {index: value for index, value in values if value is not None}

    @property
    def input_specs(self) -> tuple[TensorSpec, ...]:
        return tuple(self.tensors[index] for index in self.inputs)

    @property
    def output_specs(self) -> tuple[TensorSpec, ...]:
        return tuple(self.tensors[index] for index in self.outputs)

    def _references(self) -> Iterator[tuple[str, int]]:
        yield from (("the graph's inputs", index) for index in self.inputs)
        yield from (("the graph's outputs", index) for index in self.outputs)
        yield from (("the constants", index) for index in self.constants)
        for number, node in enumerate(self.nodes):
            place = self.place(number)
            for index in (*node.inputs, *node.outputs):
                yield place, index

    def _check_indices(self) -> None:
        if not self.outputs:
            raise InvalidParameter("the graph has no outputs; name at least one tensor")
        if len(set(self.outputs)) < len(self.outputs):
            twice = next(index for index, count in Counter(self.outputs).items() if count > 1)
            raise InvalidParameter(
                f"tensor index {twice} comes twice; name each tensor once", place="the graph's outputs"
            )
        count = len(self.tensors)
        used = {*self.inputs, *self.outputs, *self.constants}
        for node in self.nodes:
            used.update(node.inputs, node.outputs)
        missing = used.symmetric_difference(range(count))
        if not missing:
            return
        for place, index in self._references():
            if not 0 <= index < count:
                raise InvalidParameter(
                    f"there is no tensor {index}; the graph has {count}, counted from 0", place=place
                )
        raise InvalidParameter("no node reads or writes it; leave it out", place=self.tensor_place(min(missing)))

    def _check_constants(self) -> None:
        for index, constant in self.constants.items():
            spec = self.tensors[index]
            if spec.is_dynamic:
                raise InvalidParameter(
                    f"it has data, but is {spec}; give it every dimension", place=self.tensor_place(index)
                )
            if constant.size_bytes != spec.byte_size:
                raise InvalidParameter(
                    f"its data has {constant.size_bytes} bytes; {spec} has {spec.byte_size}",
                    place=self.tensor_place(index),
                )

    def _check_sources(self) -> None:
        """Check that each tensor has exactly one source: an input, its data, or one node."""
        sources = [*self.constants, *self.inputs, *(index for node in self.nodes for index in node.outputs)]
        # Each tensor is used, which was checked before.
        if len(sources) == len(set(sources)) == len(self.tensors) and all(node.outputs for node in self.nodes):
            return
        source = dict.fromkeys(self.constants, "the model's data")
        for index in self.inputs:
            self._claim(source, index, "the graph's inputs")
        for number, node in enumerate(self.nodes):
            place = self.place(number)
            if not node.outputs:
                raise InvalidParameter("the node writes no tensor; give it an output", place=place)
            for index in node.outputs:
                self._claim(source, index, place)
        for place, index in self._references():
            if index not in source:
                raise InvalidParameter(
                    "nothing writes it; give it data, or make it an input of the graph or an output of a node",
                    place=f"{self.tensor_place(index)} of {place}",
                )

    def _claim(self, source: dict[int, str], index: int, claimant: str) -> None:
        if index in source:
            raise InvalidParameter(
                f"both {source[index]} and {claimant} write it; a tensor has one source",
                place=self.tensor_place(index),
            )
        source[index] = claimant


def require_moderate(tensors: int, nodes: int, references: int, quant_params: int) -> None:
    """Raise InvalidParameter for more parts than any real model has; called before they are copied."""
    require_at_most(MAX_TENSORS, tensors, "tensors")
    require_at_most(MAX_NODES, nodes, "nodes")
    require_at_most(MAX_REFERENCES, references, "references to tensors")
    require_at_most(MAX_QUANT_PARAMS, quant_params, "quantization parameters")


def require_at_most(limit: int, count: int, what: str) -> None:
    """Raise InvalidParameter if a count is above its limit."""
    if count > limit:
        raise InvalidParameter(f"there are {count} {what}; use at most {limit}")


def quoted_name(name: str) -> str:
    """Return a space and the name in quotes, shortened if it is long; for places in messages."""
    if not name:
        return ""
    return f" {name!r}" if len(name) <= _QUOTED_LENGTH else f" {name[:_QUOTED_LENGTH]!r}..."
