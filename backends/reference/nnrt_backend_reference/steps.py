"""The steps of a run: the nodes of a graph in order, each with its kernel and all that this one needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, Kernel, require_memory
from nnrt_backend_reference.quantized import on_real_numbers
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.inference import agreed
from nnrt_hdi.ops.operands import MAX_SHAPE_VALUES
from nnrt_hdi.tensor import Array, Shape, TensorSpec

# About as many bytes as a step takes.
STEP_BYTES = 1024


class Result(NamedTuple):
    """A tensor that a step makes."""

    tensor: int
    dtype: AnyDType
    shape: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One node, its shapes known: what is called with which of a run's tensors, and how many bytes of results the run
    holds more with it, and fewer after it."""

    node: int
    kernel: Kernel
    call: Call
    operands_in: Callable[[Sequence[AnyArray | None]], Sequence[AnyArray | None]]
    results: tuple[Result, ...]
    makes_bytes: int
    last_uses: tuple[int, ...]
    frees_bytes: int


@dataclass(slots=True, eq=False)
class OpenStep:
    """One node, its shapes known only when the run gets there."""

    node: int
    last_uses: tuple[int, ...]
    # Operands of the latest run, as inference sees them, and the step that they made of it.
    latest: tuple[object, Step] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RunSteps:
    """The steps of all runs of a kind, and their tensors as far as they are known before."""

    tensors: Sequence[TensorSpec]
    steps: Sequence[Step | OpenStep]


class StepMaker:
    """Makes the steps of the runs of a graph."""

    def __init__(self, graph: Graph, max_tensor_bytes: int) -> None:
        """`graph` has been inferred."""
        self._graph = graph
        self._max_tensor_bytes = max_tensor_bytes
        self._attrs = [SimpleNamespace(**OPERATORS[node.type].bind(node.attrs)) for node in graph.nodes]
        self._operands_in = [_picking(node.inputs) for node in graph.nodes]
        self._given = {*graph.inputs, *graph.constants}

    def of(self, known: Graph) -> RunSteps:
        """The steps of runs in which the graph is known so well. Raises OutOfMemory for too large a tensor."""
        graph, specs, undecided = self._graph, known.tensors, known.undecided or ()
        steps: list[Step | OpenStep] = []
        for index, last_uses in zip(graph.order, graph.last_uses, strict=True):
            node = graph.nodes[index]
            is_open = index in undecided or any(specs[at].is_dynamic for at in node.inputs)
            steps.append(OpenStep(index, last_uses) if is_open else self._step(index, specs, last_uses))
        return RunSteps(specs, steps)

    def bound(self, step: OpenStep, values: Sequence[AnyArray | None], specs: list[TensorSpec]) -> Step:
        """The step of a run that has come to an open one: its tensors so far, and what is known of all. Results become
        known."""
        node = self._graph.nodes[step.node]
        inputs = tuple([specs[at] for at in node.inputs])
        # Inference looks at no operand of more elements.
        seen = [_if_few(values[at]) for at in node.inputs]
        operands = inputs, [None if array is None else array.tobytes() for array in seen]
        if step.latest is not None and step.latest[0] == operands:
            made = step.latest[1]
            for at, spec in zip(node.outputs, made.call.outputs, strict=True):
                specs[at] = spec
            return made
        declared = tuple([specs[at] for at in node.outputs])
        attrs = vars(self._attrs[step.node])
        inferred = OPERATORS[node.type].infer(list(zip(inputs, seen, strict=True)), attrs, declared)
        for at, spec in zip(node.outputs, agreed(inferred, declared), strict=True):
            specs[at] = spec
        made = self._step(step.node, specs, step.last_uses)
        step.latest = operands, made
        return made

    def _step(self, index: int, specs: Sequence[TensorSpec], last_uses: tuple[int, ...]) -> Step:
        node = self._graph.nodes[index]
        outputs = tuple([specs[at] for at in node.outputs])
        call = Call(self._attrs[index], tuple([specs[at] for at in node.inputs]), outputs, self._max_tensor_bytes)
        try:
            for spec in outputs:
                require_memory(call, spec.shape, spec.numpy_dtype)
            kernel = _kernel(node.type, call)
        except NnrtError as error:
            raise error.at(self._graph.place(index)) from error
        return Step(
            index,
            kernel,
            call,
            self._operands_in[index],
            tuple([Result(at, spec.numpy_dtype, spec.shape) for at, spec in zip(node.outputs, outputs, strict=True)]),
            sum([spec.byte_size for spec in outputs]),
            last_uses,
            sum([specs[at].byte_size for at in last_uses if at not in self._given]),
        )


def _picking(indices: tuple[int, ...]) -> Callable[[Sequence[AnyArray | None]], Sequence[AnyArray | None]]:
    """The function that picks these of a run's tensors."""
    return itemgetter(*indices) if len(indices) > 1 else lambda values: [values[index] for index in indices]


def _if_few(array: AnyArray | None) -> Array | None:
    return array if array is not None and array.size <= MAX_SHAPE_VALUES else None


def _kernel(node_type: NodeType, call: Call) -> Kernel:
    """The kernel, which need know neither results without elements nor quantized operands."""
    if call.is_empty:
        return _nothing
    view = OPERATORS[node_type].real_view(call.inputs, call.outputs)
    return on_real_numbers(KERNELS[node_type], call, view) if view else KERNELS[node_type]


def _nothing(call: Call, *_: AnyArray) -> tuple[AnyArray, ...]:
    return tuple(np.empty(spec.shape, spec.numpy_dtype) for spec in call.outputs)
