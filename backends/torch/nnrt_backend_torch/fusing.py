"""Fusion of steps that torch computes with one function, or with fewer passes through memory.

ONNX files say many functions as several nodes. A pattern is an expression of nodes that read one tensor, X, and
constants. All of its steps follow X, and only the last result is read elsewhere. So one step computes it in the place
of the first of them, and has the name of that one in profiles.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import torch

from nnrt_backend_torch.kernels.activation import activated, gelu
from nnrt_backend_torch.kernels.kernel import Call, Kernel, cast
from nnrt_backend_torch.kernels.linear import biased_product
from nnrt_hdi import kernels
from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.operands import FLOATS
from nnrt_hdi.steps import Folded, OpenStep, RunSteps, Step, picker

# Operators whose operands may stand in any order.
COMMUTATIVE = (NodeType.ADD_FUSION, NodeType.MUL_FUSION)


class Leaf(Enum):
    """Operand of a pattern: the tensor X, the same wherever it stands, or any constant."""

    X = "x"
    CONSTANT = "constant"


class Match(NamedTuple):
    """Match of a part of a pattern: its steps, the last one first, X, and the constants in their order."""

    steps: tuple[Step, ...] = ()
    x: int | None = None
    constants: tuple[int, ...] = ()


# A node type with the patterns of its operands, a number, or a leaf.
Pattern = tuple[Any, ...] | float | Leaf
# Returns the kernel for X and the constants of a match, or None if it doesn't fit.
Fuse = Callable[[Match, Graph], Kernel | None]


def fused(graph: Graph, folded: Folded) -> Folded:
    """Return the steps of a kind with those fused that match a pattern."""
    steps = list[Step | OpenStep | None](folded.run.steps)
    matcher = _Matcher(graph, folded)
    for last in folded.run.steps:
        if isinstance(last, Step) and (made := matcher.fused(last)) is not None:
            match, step = made
            places = sorted(matcher.places.pop(each.node) for each in match.steps)
            steps[places[0]] = step
            for place in places[1:]:
                steps[place] = None
    return folded._replace(run=RunSteps(folded.run.tensors, [step for step in steps if step is not None]))


class _Matcher:
    """Matcher of the patterns with the steps of a kind. `places` are those of steps that aren't fused, by node."""

    def __init__(self, graph: Graph, folded: Folded) -> None:
        self.places = {step.node: at for at, step in enumerate(folded.run.steps)}
        self._graph = graph
        self._values = folded.values
        self._steps = folded.run.steps
        closed = [step for step in folded.run.steps if isinstance(step, Step)]
        self._makers = {index: step for step in closed for index, _, _ in step.results}
        read = (graph.nodes[step.node].inputs for step in folded.run.steps)
        self._readers = Counter(itertools.chain(graph.outputs, *read))

    def fused(self, last: Step) -> tuple[Match, Step] | None:
        """Return a match that ends with a step, and the step in its place, or None."""
        if not last.makes_bytes:  # Kernels needn't handle results without elements.
            return None
        for pattern, fuse in RULES.get(self._graph.nodes[last.node].type, ()):
            for match in self._of_step(pattern, last):
                if (kernel := fuse(match, self._graph)) is not None and (step := self._step(match, kernel)) is not None:
                    return match, step
        return None

    def _step(self, match: Match, kernel: Kernel) -> Step | None:
        """Return the step in place of those of a match; None if a step between them needs what they drop."""
        last, *others = match.steps
        first = min(match.steps, key=lambda step: self.places[step.node])
        drops = dict.fromkeys(itertools.chain.from_iterable(step.last_uses for step in match.steps))
        own = {step.node for step in match.steps}
        between = (step.node for step in self._steps[self.places[first.node] : self.places[last.node]])
        if any(not drops.keys().isdisjoint(self._graph.nodes[at].inputs) for at in between if at not in own):
            return None
        assert match.x is not None
        return last._replace(
            node=first.node,
            kernel=kernel,
            operands_in=picker((match.x, *match.constants)),
            last_uses=tuple(drops),
            frees_bytes=sum(step.frees_bytes for step in match.steps) - sum(step.makes_bytes for step in others),
        )

    def _of_step(self, pattern: tuple[Any, ...], step: Step) -> Iterator[Match]:
        """Yield the matches of a pattern that end with a step."""
        node = self._graph.nodes[step.node]
        node_type, *parts = pattern
        if node.type is not node_type or step.node not in self.places or not _is_plain(step.call):
            return
        orders = itertools.permutations(node.inputs) if node_type in COMMUTATIVE else (node.inputs,)
        for operands in orders:
            yield from self._of_operands(parts, operands, Match((step,)))

    def _of_operands(self, parts: Sequence[Pattern], operands: Sequence[int], before: Match) -> Iterator[Match]:
        if len(parts) != len(operands):
            return
        if not parts:
            yield before
            return
        for match in self._of_tensor(parts[0], operands[0], before):
            yield from self._of_operands(parts[1:], operands[1:], match)

    def _of_tensor(self, part: Pattern, index: int, before: Match) -> Iterator[Match]:
        value = self._values[index]
        if part is Leaf.X:
            if before.x in (None, index) and value is None:
                yield before._replace(x=index)
        elif part is Leaf.CONSTANT:
            if value is not None:
                yield before._replace(constants=(*before.constants, index))
        elif isinstance(part, tuple):
            maker = self._makers.get(index)
            if maker is None or self._readers[index] > 1 or _activation(maker.call) is not ActivationType.NO_ACTIVATION:
                return
            for match in self._of_step(part, maker):
                if before.x in (None, match.x):
                    steps, constants = before.steps + match.steps, before.constants + match.constants
                    yield Match(steps, match.x, constants)
        elif value is not None and _is_number(value, part):
            yield before


def _is_number(value: torch.Tensor, number: float) -> bool:
    """Return whether a tensor is one number, as precisely as its type has it."""
    is_one = value.numel() == 1 and value.dtype.is_floating_point
    return is_one and math.isclose(value.item(), number, rel_tol=torch.finfo(value.dtype).eps)


def _activation(call: kernels.Call) -> ActivationType:
    found: ActivationType = getattr(call.attrs, "activation_type", ActivationType.NO_ACTIVATION)
    return found


def _is_plain(call: kernels.Call) -> bool:
    """Return whether a node computes real numbers of one type."""
    specs = (*call.inputs, *call.outputs)
    return call.outputs[0].data_type in FLOATS and not any(spec.is_quantized for spec in specs)


def _are_alike(match: Match) -> bool:
    """Return whether the results of all steps have the type and shape of the last one."""
    spec = match.steps[0].call.outputs[0]
    made = (step.call.outputs[0] for step in match.steps)
    return all((each.data_type, each.shape) == (spec.data_type, spec.shape) for each in made)


def _biased_product(match: Match, graph: Graph) -> Kernel | None:
    """Add a vector to the rows of a product, as part of it."""
    add, matmul = match.steps
    attrs, (weight, bias) = matmul.call.attrs, (graph.tensors[index] for index in match.constants)
    is_one = len({spec.data_type for spec in (*matmul.call.inputs, *add.call.inputs)}) == 1
    fits = weight.rank == 2 and bias.shape == matmul.call.outputs[0].shape[-1:] and not attrs.transpose_a
    return biased_product(attrs.transpose_b) if is_one and fits and _are_alike(match) else None


def _gelu(match: Match, _: Graph) -> Kernel | None:
    """Compute a GELU with torch's function."""
    divided = match.steps[-1].call
    if not _are_alike(match) or divided.inputs[0].shape != divided.outputs[0].shape:
        return None
    return lambda call, x: activated(call, gelu(cast(x, call.dtype), False))


def _blend(match: Match, _: Graph) -> Kernel | None:
    """Weight two gathered tensors and add them in the memory of one."""
    if not _are_alike(match):
        return None
    gathers = [step for step in match.steps if len(step.call.inputs) == 3]

    def blend(call: Call, x: torch.Tensor, *constants: torch.Tensor) -> torch.Tensor:
        x = cast(x, call.dtype).contiguous()
        (first, weight), (second, other) = (
            (step.kernel(step.call, x, *constants[at : at + 2]), cast(constants[at + 2], call.dtype))
            for step, at in zip(gathers, (0, 3), strict=True)
        )
        return activated(call, first.mul_(weight).addcmul_(second, other))

    return blend


_X, _C = Leaf.X, Leaf.CONSTANT
_ADD, _MUL, _DIV = NodeType.ADD_FUSION, NodeType.MUL_FUSION, NodeType.DIV_FUSION
_PHI_TWICE = (_ADD, (NodeType.ERF, (_DIV, _X, math.sqrt(2))), 1.0)
_WEIGHTED = (_MUL, (NodeType.GATHER, _X, _C, _C), _C)
# The patterns that end with a node of a type.
RULES: Mapping[NodeType, Sequence[tuple[tuple[Any, ...], Fuse]]] = {
    _ADD: [
        ((_ADD, (NodeType.MATMUL_FUSION, _X, _C), _C), _biased_product),
        ((_ADD, _WEIGHTED, _WEIGHTED), _blend),
    ],
    _MUL: [
        ((_MUL, (_MUL, _X, _PHI_TWICE), 0.5), _gelu),
        ((_MUL, (_MUL, _X, 0.5), _PHI_TWICE), _gelu),
    ],
}
