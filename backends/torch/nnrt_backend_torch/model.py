"""Graph prepared to run with torch: its nodes in order, each with its kernel and the kernel's arguments."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from nnrt_backend_torch.buffers import tensor_in
from nnrt_backend_torch.compiling import Compute, compiled
from nnrt_backend_torch.device import TorchDevice
from nnrt_backend_torch.errors import typed
from nnrt_backend_torch.fusing import fused
from nnrt_backend_torch.kernels import KERNELS
from nnrt_backend_torch.kernels.checks import Check, found_by, made_later
from nnrt_backend_torch.kernels.kernel import DTYPES, ON_HOST, Call, cast
from nnrt_backend_torch.quantized import dequantize, quantize
from nnrt_backend_torch.stream import Collect
from nnrt_hdi.backend import Cancellation, RunEnd, StartableModel, ended
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.files.exported_graph import export_parts
from nnrt_hdi.graph import Graph
from nnrt_hdi.graph_model import OpenGraphModel
from nnrt_hdi.kernels import Library
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.ops import KnownTensors
from nnrt_hdi.ops.in_place import in_place
from nnrt_hdi.part import Part
from nnrt_hdi.steps import (
    ALL_FOLDED_BYTES,
    LARGE_BYTES,
    STEP_BYTES,
    Folded,
    OpenStep,
    Step,
    StepMaker,
    refuse_results,
    stoppable,
)
from nnrt_hdi.tensor import Array, format_shape, writable_view

# What the exports of this backend are.
KIND = "torch program"
HOST = torch.device("cpu")

Tensors = list[torch.Tensor | None]


def _empty(call: Call, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return results without elements. Kernels needn't handle such results."""
    return tuple(torch.empty(spec.shape, dtype=DTYPES[spec.data_type], device=call.device) for spec in call.outputs)


def _elements(tensor: torch.Tensor) -> Array:
    elements: Array = tensor.cpu().numpy()
    return elements


class RunKind(NamedTuple):
    """Steps of all runs of one kind, and one function in their place, if that was compiled.

    `kept` are the addresses of tensors that outputs must not share. The function returns the outputs and, if kernels
    check elements, what `found_by` returns.
    """

    folded: Folded
    kept: frozenset[int]
    function: Compute | None = None


class TorchModel(StartableModel, OpenGraphModel[RunKind]):
    """Model that runs a graph node by node, on a stream. A run shares no state with others.

    Kernels never write to their operands. Weights are on the device, once. Outputs belong to the caller: no output
    shares memory with an input, a constant or another output.

    With float16, every FLOAT32 tensor (input, constant, result of an operator) is a FLOAT16 tensor on the device, and
    outputs are returned as FLOAT32. Tensors of other types stay, and so does a tensor that is read as a shape, because
    FLOAT16 can't represent all sizes above 2048.
    """

    def __init__(
        self,
        graph: Graph,
        device: TorchDevice,
        max_tensor_bytes: int,
        run_bytes: int,
        enable_float16: bool,
    ) -> None:
        """Prepare a graph.

        Args:
            graph: An inferred graph.
            device: The device that computes.
            max_tensor_bytes: The most bytes of a tensor.
            run_bytes: The most bytes of a run's results at a time.
            enable_float16: Whether FLOAT32 tensors become FLOAT16.

        Raises:
            InvalidParameter: The data of a constant are missing.
            OutOfMemory: The device has no memory for the constants.
        """
        self._graph = graph
        self._device = device.torch_device
        self._stream = device.stream
        self._pinning = device.pinning
        self._is_accelerator = self.takes_device_buffers = device.is_accelerator
        self._run_bytes = run_bytes
        library = Library(KERNELS, partial(Call, device=self._device), dequantize, quantize, _empty, _elements)
        self._maker = StepMaker(graph, max_tensor_bytes, library)
        self._compiles = device.compiles
        self._enable_float16 = enable_float16
        self._shapes = {node.inputs[0] for node in graph.nodes if node.type is NodeType.CONSTANT_OF_SHAPE}
        self._stored_as = [self._stored_type(index) for index in range(len(graph.tensors))]
        self._constants: Tensors = [None] * len(graph.tensors)
        only_read = _only_read_on_host(graph)
        with self._stream.current():
            for index, constant in graph.constants.items():
                if constant.data is None:
                    raise InvalidParameter("its data is not here", place=graph.tensor_place(index))
                place = HOST if index in only_read else self._device
                self._constants[index] = self._constant(index, constant.data, place)
        super().__init__(graph, max_tensor_bytes, self._kind, most_kinds=self._maker.most_kinds)
        if self.varies:
            self.kept_bytes += self._maker.most_kinds * (len(graph.nodes) * STEP_BYTES + ALL_FOLDED_BYTES)
        if self._is_accelerator:
            weights = [tensor for tensor in self._constants if tensor is not None and tensor.device == self._device]
            kinds = self._maker.most_kinds if self.varies else 1
            self.device_bytes = sum(tensor.nbytes for tensor in weights) + kinds * ALL_FOLDED_BYTES
        self.reads_in_place = in_place(graph).inputs

    def start(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        on_end: Callable[[RunEnd], None],
    ) -> None:
        kind = self.prepared(inputs, cancellation)
        self._stream.enqueue(partial(self._begun, kind, None, inputs, cancellation, outputs), on_end)

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        kind, times = self.prepared(inputs, cancellation), list[OperatorTime]()
        compute = partial(
            self._begun,
            kind,
            self._maker.timed(kind.folded.run.steps, times, self._stream.synchronize),
            inputs,
            cancellation,
            outputs,
        )
        return ended(partial(self._stream.enqueue, compute), cancellation), times

    def export(self) -> Sequence[Part]:
        return export_parts(KIND, self._graph, enable_float16=self._enable_float16)

    def close(self) -> None:
        super().close()
        self._constants = []

    def _kind(self, known: KnownTensors) -> RunKind:
        """Return what runs of a kind have in common; called before the first one."""
        with self._stream.current(), torch.inference_mode():
            folded = fused(self._graph, self._maker.fold(self._maker.make(known), self._constants, self._results))
        steps = folded.run.steps
        kept = frozenset(_memory(tensor) for tensor in folded.values if tensor is not None)
        if not self._compiles or any(isinstance(step, OpenStep) for step in steps):
            return RunKind(folded, kept)

        def compute(*inputs: torch.Tensor) -> list[torch.Tensor]:
            checks = list[Check]()
            with made_later(checks):
                results = self._computed(folded, steps, inputs, Cancellation(), checks, [])
            found = found_by(checks)
            return results if found is None else [*results, found]

        with self._stream.current():
            examples = [
                torch.zeros(folded.run.tensors[index].shape, dtype=self._stored_as[index], device=self._device)
                for index in self._graph.inputs
            ]
            return RunKind(folded, kept, compiled(compute, examples))

    def _begun(
        self,
        kind: RunKind,
        steps: Iterable[Step | OpenStep] | None,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
    ) -> Collect:
        """Start a run on the device, and return a function that collects its outputs when the device has computed them.

        `steps` are those of the kind, or None for the fastest way.
        """
        checks, nodes = list[Check](), list[int]()
        later = made_later(checks) if self._is_accelerator else nullcontext()
        with torch.inference_mode(), stoppable(cancellation.check), later:
            given = [self._taken(index, array) for index, array in zip(self._graph.inputs, inputs, strict=True)]
            found: torch.Tensor | None = None
            if steps is None and kind.function is not None:
                cancellation.check()
                results = kind.function(*given)
                found = results.pop() if len(results) > len(self._graph.outputs) else None
            else:
                steps = steps or kind.folded.run.steps
                results = self._computed(kind.folded, steps, given, cancellation, checks, nodes)
                found = found_by(checks)
            regions = outputs or [None] * len(results)
            # No output shares memory with these, or with another output.
            taken = {*kind.kept, *map(_memory, given)}
            if any(isinstance(region, DeviceRegion) for region in regions):  # One may overlap an input.
                results = [result.clone() if _memory(result) in taken else result for result in results]
            sent = [
                self._sent(index, result, region, taken)
                for index, result, region in zip(self._graph.outputs, results, regions, strict=True)
            ]
            are_wrong = self._copied(found) if found is not None else None

        def collect() -> list[Array]:
            if are_wrong is not None and are_wrong.any():
                if not checks:  # The compiled function doesn't say what is wrong.
                    return self._begun(kind, kind.folded.run.steps, inputs, cancellation, outputs)()
                first = int(are_wrong.nonzero()[0])
                raise checks[first].error().at(self._graph.place(nodes[first]))
            return [tensor.numpy() if isinstance(tensor, torch.Tensor) else tensor for tensor in sent]

        return collect

    def _computed(
        self,
        folded: Folded,
        steps: Iterable[Step | OpenStep],
        inputs: Sequence[torch.Tensor],
        cancellation: Cancellation,
        checks: Sequence[Check],
        nodes: list[int],
    ) -> list[torch.Tensor]:
        """Execute the steps and return the outputs; add the node of each new check to `nodes`.

        Small models are slowed down by any cost of a step.
        """
        values, specs = folded.values.copy(), list(folded.run.tensors)
        for index, tensor in zip(self._graph.inputs, inputs, strict=True):
            values[index] = tensor
        check, live_bytes, most_bytes = cancellation.check, folded.makes_bytes, self._run_bytes
        for next_step in steps:
            check()
            try:
                step = self._maker.bind(next_step, values, specs) if isinstance(next_step, OpenStep) else next_step
                live_bytes += step.makes_bytes
                if live_bytes > most_bytes:
                    refuse_results(step, live_bytes, most_bytes)
                for (index, _, _), result in zip(step.results, self._results(step, values), strict=True):
                    values[index] = result
            except NnrtError as error:
                raise error.at(self._graph.place(next_step.node)) from error
            except (MemoryError, RuntimeError) as error:
                raise typed(error).at(self._graph.place(next_step.node)) from error
            if len(checks) > len(nodes):
                nodes += [step.node] * (len(checks) - len(nodes))
            for index in step.last_uses:
                values[index] = None
            live_bytes -= step.frees_bytes
        return [values[index] for index in self._graph.outputs]  # type: ignore[misc]  # None was dropped.

    def _results(self, step: Step, values: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """Compute the results of a step."""
        computed: Any = step.kernel(step.call, *step.operands_in(values))
        results, stored_as = [], self._stored_as
        for (index, _, shape), result in zip(
            step.results, computed if isinstance(computed, tuple) else (computed,), strict=True
        ):
            if result.shape != shape:
                raise OperationFailed(
                    f"the kernel made {format_shape(result.shape)}; it is to make {format_shape(shape)}"
                )
            # A kernel may compute in a wider type than its result has. It is converted here, once.
            result = cast(result, stored_as[index])
            # A small view would keep all of what it views, which counts as freed.
            if LARGE_BYTES <= result.untyped_storage().nbytes() > 2 * result.nbytes:
                result = result.clone()
            results.append(result)
        return results

    def _copied(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Let the device copy a tensor to new memory of the host; return where it will be."""
        copy = torch.empty(tensor.shape, dtype=dtype or tensor.dtype, pin_memory=self._device.type == "cuda")
        return copy.copy_(tensor, non_blocking=True)

    def _constant(self, index: int, array: Array, device: torch.device) -> torch.Tensor:
        """Return a constant in the type that it has on the device. NumPy converts it: see `Stream` for the reason."""
        dtype = self._stored_as[index]
        if dtype is torch.float16 and array.dtype != np.float16:
            with np.errstate(over="ignore"):
                array = array.astype(np.float16)
        try:
            return tensor_of(array).to(device)
        except (MemoryError, RuntimeError) as error:
            raise typed(error).at(self._graph.tensor_place(index)) from error

    def _stored_type(self, index: int) -> torch.dtype:
        """Return the type that a tensor of the graph has on the device."""
        dtype = DTYPES[self._graph.tensors[index].data_type]
        is_halved = self._enable_float16 and dtype is torch.float32 and index not in self._shapes
        return torch.float16 if is_halved else dtype

    def _taken(self, index: int, array: Array) -> torch.Tensor:
        """Return an input on the device, in the type that it has there; on a CPU without a copy, if it has that."""
        if isinstance(array, DeviceRegion):
            return tensor_in(array).to(self._stored_as[index])
        if self._pinning is not None:
            self._pinning.pin(array)
        try:
            # An accelerator converts it there.
            return tensor_of(array).to(self._device, non_blocking=True).to(self._stored_as[index])
        except (MemoryError, RuntimeError) as error:
            raise typed(error).at(self._graph.tensor_place(index)) from error

    def _sent(self, index: int, result: torch.Tensor, region: Array | None, taken: set[int]) -> torch.Tensor | Array:
        """Let the device write an output to its region, or to new memory of the host; return where it will be."""
        if isinstance(region, DeviceRegion):
            tensor_in(region).copy_(result)
            return region
        if region is not None:
            if self._pinning is not None:
                self._pinning.pin(region)
            torch.from_numpy(region).copy_(result, non_blocking=True)
            return region
        dtype = DTYPES[self._graph.tensors[index].data_type]
        try:
            if self._is_accelerator:
                return self._copied(result, dtype)
            owned = result.to(dtype).contiguous()
            # A small view would keep all of what it views.
            if _memory(owned) in taken or owned.untyped_storage().nbytes() > 2 * owned.nbytes:
                owned = owned.clone()
        except (MemoryError, RuntimeError) as error:
            raise typed(error).at(self._graph.tensor_place(index)) from error
        taken.add(_memory(owned))
        return owned


def tensor_of(array: Array) -> torch.Tensor:
    """Return an array as a tensor in the same memory. Nobody writes to it."""
    return torch.from_numpy(array if array.flags.writeable else writable_view(array))


def _memory(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory, which its views share."""
    return tensor.untyped_storage().data_ptr()


def _only_read_on_host(graph: Graph) -> set[int]:
    """Return the constants that kernels read only by `numbers`."""
    on_host: set[int] = set()
    elsewhere = set(graph.outputs)
    for node in graph.nodes:
        positions = ON_HOST[node.type]
        for position, index in enumerate(node.inputs):
            (on_host if position in positions else elsewhere).add(index)
    return on_host - elsewhere
