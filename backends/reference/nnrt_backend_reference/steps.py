"""Steps of a run: one for each node of the graph, in order, with its kernel and the kernel's arguments.

Runs of one kind share their steps. Their inputs have the same shapes, and the same elements where elements determine
shapes. If the shapes of a node's tensors depend on what the run computes, the node has an OpenStep, which becomes a
Step when the run reaches the node.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, Kernel, require_memory
from nnrt_backend_reference.quantized import real_kernel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS, KnownTensors
from nnrt_hdi.ops.inference import complete_specs
from nnrt_hdi.ops.operands import MAX_SHAPE_VALUES
from nnrt_hdi.ops.quantized import RealView
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, Shape, TensorSpec

# The approximate size of a step.
STEP_BYTES = 1024


# A tensor that a step computes: its index in the graph, data type and shape.
Result = tuple[int, AnyDType, Shape]


class Step(NamedTuple):
    """Step of a node whose shapes are known.

    The run calls `kernel` with `call` and the operands that `operands_in` picks from the run's tensors. The results
    take `makes_bytes`. After the step the run drops the tensors in `last_uses`; those that it computed take
    `frees_bytes`.
    """

    node: int
    kernel: Kernel
    call: Call
    operands_in: Callable[[Sequence[AnyArray | None]], Sequence[AnyArray | None]]
    results: Sequence[Result]
    makes_bytes: int
    last_uses: tuple[int, ...]
    frees_bytes: int


@dataclass(slots=True, eq=False)
class OpenStep:
    """Step of a node whose shapes are known only when the run reaches it. `StepMaker.bind` then makes the Step."""

    node: int
    # Specs and elements of the operands that inference read in the latest run, and the Step that was made for them.
    latest: tuple[object, Step] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RunSteps:
    """Steps of all runs of one kind, and the specs of all tensors as far as they are known before a run."""

    tensors: Sequence[TensorSpec]
    steps: Sequence[Step | OpenStep]


class StepMaker:
    """Maker of the steps of a graph's runs."""

    def __init__(self, graph: Graph, max_tensor_bytes: int) -> None:
        """Prepare what all steps of a node share. The caller has inferred the graph's shapes."""
        self._graph = graph
        self._max_tensor_bytes = max_tensor_bytes
        given = {*graph.inputs, *graph.constants}
        self._nodes = {
            index: _NodeTemplate(
                SimpleNamespace(**OPERATORS[graph.nodes[index].type].bind(graph.nodes[index].attrs)),
                _picker(graph.nodes[index].inputs),
                [(at, graph.tensors[at].numpy_dtype) for at in graph.nodes[index].outputs],
                last_uses,
                [at for at in last_uses if at not in given],
            )
            for index, last_uses in zip(graph.order, graph.last_uses, strict=True)
        }

    def make(self, known: KnownTensors) -> RunSteps:
        """Make the steps of the runs whose tensors `known` describes. Raises OutOfMemory if a tensor is too large."""
        nodes, specs, undecided = self._graph.nodes, known.specs, known.branch.undecided
        unknown = {at for at, spec in enumerate(specs) if UNKNOWN_DIM in spec.shape}
        return RunSteps(
            specs,
            [
                OpenStep(index)
                if index in undecided or not unknown.isdisjoint(nodes[index].inputs)
                else self._step(index, specs)
                for index in self._graph.order
            ],
        )

    def bind(self, step: OpenStep, values: Sequence[AnyArray | None], specs: list[TensorSpec]) -> Step:
        """Return the Step of an open step that a run has reached.

        Args:
            step: The open step.
            values: The tensors that the run has so far.
            specs: The known specs of all tensors. Those of the node's results are added.

        Raises:
            OutOfMemory: A result is too large.
        """
        node = self._graph.nodes[step.node]
        inputs = tuple([specs[at] for at in node.inputs])
        # Inference reads the elements of small operands only.
        seen = [_if_small(values[at]) for at in node.inputs]
        operands = inputs, [None if array is None else array.tobytes() for array in seen]
        if step.latest is not None and step.latest[0] == operands:
            made = step.latest[1]
            for at, spec in zip(node.outputs, made.call.outputs, strict=True):
                specs[at] = spec
            return made
        declared = tuple([specs[at] for at in node.outputs])
        attrs = vars(self._nodes[step.node].attrs)
        inferred = OPERATORS[node.type].infer(list(zip(inputs, seen, strict=True)), attrs, declared)
        for at, spec in zip(node.outputs, complete_specs(inferred, declared), strict=True):
            specs[at] = spec
        made = self._step(step.node, specs)
        step.latest = operands, made
        return made

    def _step(self, index: int, specs: Sequence[TensorSpec]) -> Step:
        """Return the Step of a node whose tensors have these specs. Raises OutOfMemory if a result is too large."""
        node, template = self._graph.nodes[index], self._nodes[index]
        outputs = tuple([specs[at] for at in node.outputs])
        call = Call(template.attrs, tuple([specs[at] for at in node.inputs]), outputs, self._max_tensor_bytes)
        made = [spec.known_bytes for spec in outputs]
        try:
            if max(made) > self._max_tensor_bytes:
                for spec in outputs:
                    require_memory(call, spec.shape, spec.numpy_dtype)
            kernel = template.kernel(node.type, call) if any(made) else _empty_results
        except NnrtError as error:
            raise error.at(self._graph.place(index)) from error
        return Step(
            index,
            kernel,
            call,
            template.operands_in,
            [(at, dtype, spec.shape) for (at, dtype), spec in zip(template.results, outputs, strict=True)],
            sum(made),
            template.last_uses,
            sum([specs[at].known_bytes for at in template.frees]),
        )


@dataclass(slots=True, eq=False)
class _NodeTemplate:
    """Parts of a node's steps that don't depend on shapes."""

    attrs: SimpleNamespace
    operands_in: Callable[[Sequence[AnyArray | None]], Sequence[AnyArray | None]]
    results: Sequence[tuple[int, AnyDType]]
    last_uses: tuple[int, ...]
    # The tensors of `last_uses` that the run has computed, which are neither inputs nor constants.
    frees: Sequence[int]
    # Scalings to read quantized operands as real numbers, and to quantize results. None if the kernel takes the
    # elements themselves, and as long as `_is_viewed` is false.
    _view: RealView | None = None
    _is_viewed: bool = False

    def kernel(self, node_type: NodeType, call: Call) -> Kernel:
        """Return the node's kernel, wrapped to compute on real numbers if tensors are quantized."""
        if not self._is_viewed:
            self._view = OPERATORS[node_type].real_view(call.inputs, call.outputs)
            self._is_viewed = True
        kernel = KERNELS[node_type]
        return real_kernel(kernel, call, self._view) if self._view else kernel


def _picker(indices: tuple[int, ...]) -> Callable[[Sequence[AnyArray | None]], Sequence[AnyArray | None]]:
    """Return a function that picks the tensors with these indices from all tensors of a run."""
    return itemgetter(*indices) if len(indices) > 1 else lambda values: [values[index] for index in indices]


def _if_small(array: AnyArray | None) -> Array | None:
    """Return the array if it is small enough for inference to read its elements, else None."""
    return array if array is not None and array.size <= MAX_SHAPE_VALUES else None


def _empty_results(call: Call, *_: AnyArray) -> tuple[AnyArray, ...]:
    """Return results without elements. Steps call this instead of kernels, which needn't handle such results."""
    return tuple(np.empty(spec.shape, spec.numpy_dtype) for spec in call.outputs)
