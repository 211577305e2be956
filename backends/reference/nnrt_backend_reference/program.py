"""A graph made ready to run: its nodes in order, each with its kernel and everything the kernel needs."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from nnrt_backend_reference.exported import exported
from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel, require_memory
from nnrt_backend_reference.kernels.pieces import stopped_by
from nnrt_backend_reference.quantized import on_real_numbers
from nnrt_hdi.backend import Cancellation, DimRange, PreparedModel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.ops import OPERATORS, RunSizes, infer_node
from nnrt_hdi.ops.in_place import in_place
from nnrt_hdi.ops.inference import agreed
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM, Array, TensorSpec


@dataclass(frozen=True, slots=True)
class Step:
    """One node. `call` is None where shapes are known only when the model runs."""

    node: int
    kernel: Kernel
    attrs: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    call: Call | None
    last_uses: tuple[int, ...]


class _Results:
    """The results of nodes that a run holds, by their tensors, and the bytes of them."""

    __slots__ = ("_live_bytes", "_most_bytes", "_sizes")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._live_bytes = 0
        self._sizes: dict[int, int] = {}

    def add(self, index: int, spec: TensorSpec) -> None:
        """Raises OutOfMemory for one that is too much, before it is computed."""
        self._sizes[index] = size = spec.byte_size
        self._live_bytes += size
        if self._live_bytes > self._most_bytes:
            raise OutOfMemory(
                f"with {spec} the run holds {self._live_bytes} bytes at a time; at most {self._most_bytes} are allowed"
            )

    def remove(self, index: int) -> None:
        self._live_bytes -= self._sizes.pop(index, 0)


# Runs one step, with the elements and the specs of all tensors so far.
RunStep = Callable[[Step, list[AnyArray | None], list[TensorSpec], _Results], None]


class Program(PreparedModel):
    """Runs a graph node by node. A run keeps all it knows to itself, so any number may be under way at once.

    Kernels never write into their operands, and what a run returns is the caller's alone: no output shares
    memory with an input, a constant or another output. Results are put into the regions given for them in the end, and
    never looked at there.

    With float16 every FLOAT32 tensor (input, constant, result of an operator) is rounded to FLOAT16, where overflow
    gives infinity. Kernels compute in FLOAT32 on the rounded values, and results are given back as FLOAT32. Tensors of
    other types stay as they are, and so does one that is read as a shape: sizes above 2048 would become others.
    """

    def __init__(self, graph: Graph, max_tensor_bytes: int, run_bytes: int, enable_float16: bool) -> None:
        """`graph` has been inferred. Raises InvalidParameter where its tensors are not what its nodes give."""
        self._graph = graph
        self._max_tensor_bytes = max_tensor_bytes
        self._run_bytes = run_bytes
        self._sizes = RunSizes(graph, len(graph.inputs), max_tensor_bytes)
        self._enable_float16 = enable_float16
        self._shapes = {node.inputs[0] for node in graph.nodes if node.type is NodeType.CONSTANT_OF_SHAPE}
        self._constants: list[AnyArray | None] = [None] * len(graph.tensors)
        for index, constant in graph.constants.items():
            if constant.data is None:
                raise InvalidParameter("its data is not here", place=graph.tensor_place(index))
            self._constants[index] = _read_only(self._rounded(index, constant.data))
        self._steps = self._make_steps()
        self.inputs = graph.input_specs
        self.outputs = graph.output_specs
        self.reads_in_place = in_place(graph).inputs

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return self._run(inputs, cancellation, outputs, self._run_step)

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        began_ns, times = time.perf_counter_ns(), list[OperatorTime]()

        def timed(step: Step, *state: Any) -> None:
            step_began_ns = time.perf_counter_ns()
            self._run_step(step, *state)
            node = self._graph.nodes[step.node]
            took_ns = time.perf_counter_ns() - step_began_ns
            times.append(OperatorTime(node.name, node.type.name, step_began_ns - began_ns, took_ns))

        return self._run(inputs, cancellation, outputs, timed), times

    def _run(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        run_step: RunStep,
    ) -> list[Array]:
        values = self._constants.copy()
        specs = list(self._graph.tensors)
        for index, array in zip(self._graph.inputs, inputs, strict=True):
            values[index] = _read_only(self._rounded(index, array))
            if specs[index].shape != array.shape:
                specs[index] = specs[index].with_shape(array.shape)
        results = _Results(self._run_bytes)
        # Overflow and invalid operations have results, infinities and not-a-numbers, and need no warnings.
        with np.errstate(all="ignore"), stopped_by(cancellation.check):
            for step in self._steps:
                cancellation.check()
                run_step(step, values, specs, results)
        return self._own_outputs(values, outputs)

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        return self._sizes.of(inputs)

    def export(self) -> Sequence[Part]:
        return exported(self._graph, enable_float16=self._enable_float16)

    def input_ranges(self) -> list[DimRange]:
        return [
            DimRange(
                tuple(0 if dim == UNKNOWN_DIM else dim for dim in spec.shape),
                tuple(MAX_DIM if dim == UNKNOWN_DIM else dim for dim in spec.shape),
            )
            for spec in self.inputs
        ]

    def _run_step(self, step: Step, values: list[AnyArray | None], specs: list[TensorSpec], results: _Results) -> None:
        operands: list[Any] = [values[index] for index in step.inputs]
        try:
            call, kernel = step.call, step.kernel
            if call is None:
                call = self._bind(step, operands, specs)
                kernel = _kernel(self._graph.nodes[step.node].type, call)
            for index, spec in zip(step.outputs, call.outputs, strict=True):
                results.add(index, spec)
            computed = kernel(call, *operands)
        except NnrtError as error:
            raise error.at(self._graph.place(step.node)) from error
        except MemoryError as error:
            raise OutOfMemory(str(error), place=self._graph.place(step.node)) from error
        made = computed if isinstance(computed, tuple) else (computed,)
        for index, spec, result in zip(step.outputs, call.outputs, made, strict=True):
            # A kernel may compute in a wider type than its result has: here it is rounded, once.
            array = np.asarray(result, spec.numpy_dtype)
            if array.shape != spec.shape:
                raise OperationFailed(f"the kernel made {array.shape} of {spec}", place=self._graph.place(step.node))
            values[index] = self._rounded(index, array)
            specs[index] = spec
        for index in step.last_uses:
            values[index] = None
            results.remove(index)

    def _rounded(self, index: int, array: AnyArray) -> AnyArray:
        """The elements of a tensor as the model computes with them."""
        if not self._enable_float16 or array.dtype != np.float32 or index in self._shapes:
            return array
        with np.errstate(all="ignore"):
            return array.astype(np.float16).astype(np.float32)

    def _bind(self, step: Step, operands: Sequence[Array], specs: Sequence[TensorSpec]) -> Call:
        """The call of a kernel, from the real shapes and elements of its operands."""
        inputs = tuple(specs[index] for index in step.inputs)
        declared = tuple(self._graph.tensors[index] for index in step.outputs)
        node = self._graph.nodes[step.node]
        outputs = infer_node(node, list(zip(inputs, operands, strict=True)), declared)
        return self._call(step.attrs, inputs, outputs)

    def _call(self, attrs: Mapping[str, Any], inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Call:
        """Raises OutOfMemory for an output that is too large."""
        call = Call(SimpleNamespace(**attrs), inputs, outputs, self._max_tensor_bytes)
        for spec in outputs:
            require_memory(call, spec.shape, spec.numpy_dtype)
        return call

    def _own_outputs(self, values: Sequence[AnyArray | None], regions: Sequence[Array | None]) -> list[Array]:
        """The outputs, contiguous, each in its region or memory of its own. Views of inputs and constants are
        read-only."""
        outputs: list[Array] = []
        given_away: set[int] = set()
        for at, index in enumerate(self._graph.outputs):
            array: AnyArray = np.asarray(values[index])
            if (region := regions[at] if regions else None) is not None:
                np.copyto(region, array)
                outputs.append(region)
                continue
            if not (array.flags.c_contiguous and array.flags.writeable) or id(_owner(array)) in given_away:
                array = array.copy()
            given_away.add(id(_owner(array)))
            outputs.append(array)
        return outputs

    def _make_steps(self) -> list[Step]:
        graph = self._graph
        steps: list[Step] = []
        still_needed = set(graph.outputs) | set(graph.constants)
        for index in reversed(graph.order):
            node = graph.nodes[index]
            last_uses = {*node.inputs, *node.outputs} - still_needed
            still_needed.update(node.inputs)
            attrs = OPERATORS[node.type].bind(node.attrs)
            try:
                call = self._static_call(index, attrs)
                kernel = _kernel(node.type, call) if call else KERNELS[node.type]
            except NnrtError as error:
                raise error.at(graph.place(index)) from error
            steps.append(Step(index, kernel, attrs, node.inputs, node.outputs, call, tuple(last_uses)))
        return steps[::-1]

    def _static_call(self, index: int, attrs: Mapping[str, Any]) -> Call | None:
        """The call of a node whose shapes are known from the model alone, not merely declared."""
        node, tensors = self._graph.nodes[index], self._graph.tensors
        inputs = tuple(tensors[at] for at in node.inputs)
        outputs = tuple(tensors[at] for at in node.outputs)
        constants = (self._graph.constants.get(at) for at in node.inputs)
        values = (constant.shape_value if constant else None for constant in constants)
        operands = list(zip(inputs, values, strict=True))
        inferred = OPERATORS[node.type].infer(operands, attrs, outputs)
        if agreed(inferred, outputs) != outputs:
            wanted = ", ".join(map(str, agreed(inferred, outputs)))
            raise InvalidParameter(f"its outputs are said to be {', '.join(map(str, outputs))}, but are {wanted}")
        if any(spec.is_dynamic for spec in (*inputs, *inferred)):
            return None
        return self._call(attrs, inputs, outputs)


def _kernel(node_type: NodeType, call: Call) -> Kernel:
    """The kernel, which need know neither results without elements nor quantized operands."""
    if call.is_empty:
        return _nothing
    view = OPERATORS[node_type].real_view(call.inputs, call.outputs)
    return on_real_numbers(KERNELS[node_type], call, view) if view else KERNELS[node_type]


def _nothing(call: Call, *_: AnyArray) -> tuple[AnyArray, ...]:
    return tuple(np.empty(spec.shape, spec.numpy_dtype) for spec in call.outputs)


def _read_only(array: Array) -> AnyArray:
    view: AnyArray = array.view()
    view.flags.writeable = False
    return view


def _owner(array: AnyArray) -> AnyArray:
    """The array whose memory this one is a view of; itself if it is none."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
