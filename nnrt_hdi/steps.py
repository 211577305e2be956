"""Steps of a run for a library that computes node by node: each node in order, with its kernel and its arguments.

Runs of one kind share their steps. Their inputs have the same shapes, and the same elements where elements determine
shapes. If the shapes of a node's tensors depend on what the run computes, the node has an OpenStep, which becomes a
Step when the run reaches the node.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from types import SimpleNamespace
from typing import NamedTuple, NoReturn

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import NnrtError, too_much
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.kernels import AnyDType, Call, Kernel, Library, Value, real_kernel
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.ops import OPERATORS, KnownTensors
from nnrt_hdi.ops.inference import complete_specs
from nnrt_hdi.ops.operands import MAX_SHAPE_VALUES
from nnrt_hdi.ops.quantized import RealView
from nnrt_hdi.ops.run_sizes import MOST_REMEMBERED
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, Shape, TensorSpec

# The approximate size of a step.
STEP_BYTES = 1024
# The most nodes whose steps a model keeps, of all kinds of inputs together. One kind is kept in any case.
KEPT_NODES = 1 << 14
# The least memory that a result may not keep as a small view of it, for that memory counts as freed.
LARGE_BYTES = 1 << 20
# The most bytes of results that are folded: of a tensor, and of all of a kind.
FOLDED_BYTES, ALL_FOLDED_BYTES = 1 << 14, 1 << 16
# Nodes that need only the shapes of their operands, and nodes that are there for their errors.
_OF_SHAPES = (NodeType.SHAPE, NodeType.RANK)
_NEVER_FOLDED = (NodeType.ASSERT,)

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
    operands_in: Callable[[Sequence[Value]], Sequence[Value]]
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


class Folded(NamedTuple):
    """Steps that are left of a kind after folding, the tensors from which its runs begin, and the bytes of results.

    The tensors are the constants and what was computed of them and of shapes, where later steps or outputs need it.
    """

    run: RunSteps
    values: list[Value]
    makes_bytes: int


class _Thread(threading.local):
    check: Callable[[], None] | None = None


_thread = _Thread()


@contextmanager
def stoppable(check: Callable[[], None]) -> Iterator[None]:
    """Make `check_stop` call `check` in this thread while the block runs."""
    _thread.check = check
    try:
        yield
    finally:
        _thread.check = None


def check_stop() -> None:
    """Raise the error that ends the run, if it was cancelled or its deadline has passed. Long kernels call this."""
    if _thread.check is not None:
        _thread.check()


def refuse_results(step: Step, live_bytes: int, most_bytes: int) -> NoReturn:
    """Raise the error for a step whose results are too large, before the kernel computes them."""
    with_outputs = ", ".join(map(str, step.call.outputs))
    raise too_much(f"with {with_outputs} the run holds {live_bytes} bytes at a time", most_bytes, "--run-bytes")


class StepMaker:
    """Maker of the steps of a graph's runs. `most_kinds` is how many kinds of runs a model keeps steps for."""

    def __init__(self, graph: Graph, max_tensor_bytes: int, library: Library) -> None:
        """Prepare what all steps of a node share. The caller has inferred the graph's shapes."""
        self._graph = graph
        self._library = library
        self._max_tensor_bytes = max_tensor_bytes
        self.most_kinds = max(1, min(KEPT_NODES // max(len(graph.nodes), 1), MOST_REMEMBERED))
        given = {*graph.inputs, *graph.constants}
        self._nodes = {
            index: _NodeTemplate(
                SimpleNamespace(**OPERATORS[graph.nodes[index].type].bind(graph.nodes[index].attrs)),
                picker(graph.nodes[index].inputs),
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

    def bind(self, step: OpenStep, values: Sequence[Value], specs: list[TensorSpec]) -> Step:
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
        seen = [self._if_small(values[at], specs[at]) for at in node.inputs]
        operands = inputs, [None if array is None else array.tobytes() for array in seen]
        latest = step.latest  # Other runs may replace it.
        if latest is not None and latest[0] == operands:
            made = latest[1]
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

    def timed(
        self,
        steps: Iterable[Step | OpenStep],
        times: list[OperatorTime],
        wait: Callable[[], object] = lambda: None,
    ) -> Iterator[Step | OpenStep]:
        """Yield the steps; time each until the next is requested, and `wait` has waited for the device."""
        began_ns = time.perf_counter_ns()
        for step in steps:
            step_began_ns = time.perf_counter_ns()
            yield step
            wait()
            node, took_ns = self._graph.nodes[step.node], time.perf_counter_ns() - step_began_ns
            times.append(OperatorTime(node.name, node.type.name, step_began_ns - began_ns, took_ns))

    def fold(
        self, run: RunSteps, constants: Sequence[Value], compute: Callable[[Step, Sequence[Value]], Sequence[Value]]
    ) -> Folded:
        """Compute what all runs of a kind have in common: small results that follow from constants and shapes.

        A step that was open because of such a result becomes a Step. A step that fails stays, for runs to fail.

        Args:
            run: The steps of the kind.
            constants: The graph's constants, by the index of their tensor.
            compute: Computes the results of a step.
        """
        values, specs, left = list(constants), list(run.tensors), list[Step | OpenStep]()
        computed, folded_bytes = set[int](), 0
        for step in run.steps:
            node = self._graph.nodes[step.node]
            closed = step if isinstance(step, Step) else self._closed(step, values, specs)
            has_operands = all(values[at] is not None for at in node.inputs) or self._needs_no_elements(node)
            if (
                closed is not None
                and has_operands
                and node.type not in _NEVER_FOLDED
                and closed.makes_bytes <= FOLDED_BYTES
                and folded_bytes + closed.makes_bytes <= ALL_FOLDED_BYTES
            ):
                with suppress(NnrtError):
                    for (index, _, _), value in zip(closed.results, compute(closed, values), strict=True):
                        values[index] = value
                        computed.add(index)
                    folded_bytes += closed.makes_bytes
                    continue
            left.append(closed or step)
        needed = {at for step in left for at in self._graph.nodes[step.node].inputs}.union(self._graph.outputs)
        for index in computed - needed:
            values[index] = None
        makes_bytes = sum(specs[index].known_bytes for index in computed & needed)
        return Folded(RunSteps(specs, left), values, makes_bytes)

    def _needs_no_elements(self, node: Node) -> bool:
        return node.type in _OF_SHAPES and not any(self._graph.tensors[at].is_quantized for at in node.inputs)

    def _closed(self, step: OpenStep, values: Sequence[Value], specs: list[TensorSpec]) -> Step | None:
        """Return the Step of an open step and add its results to `specs`; None if a run decides its shapes."""
        node = self._graph.nodes[step.node]
        if any(UNKNOWN_DIM in specs[at].shape for at in node.inputs):
            return None
        bound = list(specs)
        try:
            made = self.bind(OpenStep(step.node), values, bound)
        except NnrtError:
            return None
        if any(UNKNOWN_DIM in spec.shape for spec in made.call.outputs):
            return None
        specs[:] = bound
        return made

    def _step(self, index: int, specs: Sequence[TensorSpec]) -> Step:
        """Return the Step of a node whose tensors have these specs. Raises OutOfMemory if a result is too large."""
        node, template = self._graph.nodes[index], self._nodes[index]
        outputs = tuple([specs[at] for at in node.outputs])
        library, inputs = self._library, tuple([specs[at] for at in node.inputs])
        call = library.call(template.attrs, inputs, outputs, self._max_tensor_bytes)
        made = [spec.known_bytes for spec in outputs]
        try:
            if max(made) > self._max_tensor_bytes:
                for spec in outputs:
                    call.require_memory(spec.shape, spec.numpy_dtype)
            kernel = template.kernel(node.type, call, library) if any(made) else library.empty
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

    def _if_small(self, value: Value, spec: TensorSpec) -> Array | None:
        """Return the elements of a tensor if it is small enough for inference to read them, else None."""
        is_small = value is not None and math.prod(spec.shape) <= MAX_SHAPE_VALUES
        return self._library.elements(value) if is_small else None


@dataclass(slots=True, eq=False)
class _NodeTemplate:
    """Parts of a node's steps that don't depend on shapes."""

    attrs: SimpleNamespace
    operands_in: Callable[[Sequence[Value]], Sequence[Value]]
    results: Sequence[tuple[int, AnyDType]]
    last_uses: tuple[int, ...]
    # The tensors of `last_uses` that the run has computed, which are neither inputs nor constants.
    frees: Sequence[int]
    # Scalings to read quantized operands as real numbers, and to quantize results. None if the kernel takes the
    # elements themselves, and as long as `_is_viewed` is false.
    _view: RealView | None = None
    _is_viewed: bool = False

    def kernel(self, node_type: NodeType, call: Call, library: Library) -> Kernel:
        """Return the node's kernel, wrapped to compute on real numbers if tensors are quantized."""
        if not self._is_viewed:
            self._view = OPERATORS[node_type].real_view(call.inputs, call.outputs)
            self._is_viewed = True
        kernel = library.kernels[node_type]
        return real_kernel(kernel, call, self._view, library) if self._view else kernel


def picker(indices: tuple[int, ...]) -> Callable[[Sequence[Value]], Sequence[Value]]:
    """Return a function that picks the tensors with these indices from all tensors of a run."""
    return itemgetter(*indices) if len(indices) > 1 else lambda values: [values[index] for index in indices]
