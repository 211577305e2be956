"""Graph prepared to run: its nodes in order, each with its kernel and the kernel's arguments."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.kernels.kernel import AnyArray, Call
from nnrt_backend_reference.kernels.pieces import BUFFER
from nnrt_backend_reference.quantized import dequantize, quantize
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.files.exported_graph import export_parts
from nnrt_hdi.graph import Graph
from nnrt_hdi.graph_model import OpenGraphModel
from nnrt_hdi.kernels import Library
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.ops.in_place import in_place
from nnrt_hdi.part import Part
from nnrt_hdi.steps import (
    LARGE_BYTES,
    STEP_BYTES,
    OpenStep,
    RunSteps,
    Step,
    StepMaker,
    refuse_results,
    stoppable,
)
from nnrt_hdi.tensor import Array, format_shape

# What the exports of this backend are.
KIND = "reference program"


def _empty(call: Call, *_: AnyArray) -> tuple[AnyArray, ...]:
    """Return results without elements. Kernels needn't handle such results."""
    return tuple(np.empty(spec.shape, spec.numpy_dtype) for spec in call.outputs)


class Program(OpenGraphModel[RunSteps]):
    """Program that runs a graph node by node. A run shares no state with others, so runs may be concurrent.

    Kernels never write to their operands. Outputs belong to the caller: no output shares memory with an input, a
    constant or another output. Results are copied at the end to the regions that the caller gives, and never read from
    there.

    With float16, every FLOAT32 tensor (input, constant, result of an operator) is rounded to FLOAT16, where overflow
    gives infinity. Kernels compute in FLOAT32 on the rounded values, and outputs are returned as FLOAT32. Tensors of
    other types aren't rounded, and neither is a tensor that is read as a shape, because FLOAT16 can't represent all
    sizes above 2048.
    """

    def __init__(self, graph: Graph, max_tensor_bytes: int, run_bytes: int, enable_float16: bool) -> None:
        """Prepare a graph.

        Args:
            graph: An inferred graph.
            max_tensor_bytes: The most bytes of a tensor.
            run_bytes: The most bytes of a run's results at a time.
            enable_float16: Whether FLOAT32 tensors are rounded to FLOAT16.

        Raises:
            InvalidParameter: The data of a constant are missing.
        """
        self._graph = graph
        self._run_bytes = run_bytes
        library = Library(KERNELS, Call, dequantize, quantize, _empty, np.asarray)
        self._maker = StepMaker(graph, max_tensor_bytes, library)
        super().__init__(graph, max_tensor_bytes, self._maker.make, most_kinds=self._maker.most_kinds)
        if self.varies:
            self.kept_bytes += self._maker.most_kinds * len(graph.nodes) * STEP_BYTES
        self._enable_float16 = enable_float16
        self._shapes = {node.inputs[0] for node in graph.nodes if node.type is NodeType.CONSTANT_OF_SHAPE}
        self._constants: list[AnyArray | None] = [None] * len(graph.tensors)
        for index, constant in graph.constants.items():
            if constant.data is None:
                raise InvalidParameter("its data is not here", place=graph.tensor_place(index))
            self._constants[index] = _read_only(self._rounded(index, constant.data))
        self.reads_in_place = in_place(graph).inputs

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        kind = self.prepared(inputs)
        return self._run(kind, kind.steps, inputs, cancellation, outputs)

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        kind, times = self.prepared(inputs), list[OperatorTime]()
        return self._run(kind, self._maker.timed(kind.steps, times), inputs, cancellation, outputs), times

    def _run(
        self,
        kind: RunSteps,
        steps: Iterable[Step | OpenStep],
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
    ) -> list[Array]:
        """Execute the steps. Small models are slowed down by any cost of a step besides its kernel."""
        values, specs = self._constants.copy(), list(kind.tensors)
        for index, array in zip(self._graph.inputs, inputs, strict=True):
            values[index] = _read_only(self._rounded(index, array))
        check, rounds, live_bytes, most_bytes = cancellation.check, self._enable_float16, 0, self._run_bytes
        # Overflow and invalid operations have results (infinity and NaN), and need no warnings.
        with np.errstate(all="ignore"), stoppable(check):
            np.setbufsize(BUFFER)  # Until np.errstate ends.
            for next_step in steps:
                check()
                try:
                    step = self._maker.bind(next_step, values, specs) if isinstance(next_step, OpenStep) else next_step
                    live_bytes += step.makes_bytes
                    if live_bytes > most_bytes:
                        refuse_results(step, live_bytes, most_bytes)
                    computed: Any = step.kernel(step.call, *step.operands_in(values))
                except NnrtError as error:
                    raise error.at(self._graph.place(next_step.node)) from error
                except MemoryError as error:
                    raise OutOfMemory(str(error), place=self._graph.place(next_step.node)) from error
                several = isinstance(computed, tuple)
                made = zip(step.results, computed, strict=True) if several else ((step.results[0], computed),)
                for (index, dtype, shape), result in made:
                    # A kernel may compute in a wider type than its result has. The result is rounded here, once.
                    array = np.asarray(result, dtype)
                    if array.shape != shape:
                        what = f"the kernel made {format_shape(array.shape)}; it is to make {format_shape(shape)}"
                        raise OperationFailed(what, place=self._graph.place(step.node))
                    # A small view would keep all of what it views, which counts as freed.
                    if array.base is not None and LARGE_BYTES <= _owner(array).nbytes > 2 * array.nbytes:
                        array = array.copy()
                    values[index] = self._rounded(index, array) if rounds else array
                for index in step.last_uses:
                    values[index] = None
                live_bytes -= step.frees_bytes
        return self._own_outputs(values, outputs)

    def export(self) -> Sequence[Part]:
        return export_parts(KIND, self._graph, enable_float16=self._enable_float16)

    def _rounded(self, index: int, array: AnyArray) -> AnyArray:
        """Return the elements of a tensor, rounded to FLOAT16 if `enable_float16` applies to the tensor."""
        if not self._enable_float16 or array.dtype != np.float32 or index in self._shapes:
            return array
        with np.errstate(all="ignore"):
            return array.astype(np.float16).astype(np.float32)

    def _own_outputs(self, values: Sequence[AnyArray | None], regions: Sequence[Array | None]) -> list[Array]:
        """Return the outputs, contiguous, each in its region or in its own memory.

        Views of inputs and constants are read-only, so they are copied.
        """
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


def _read_only(array: Array) -> AnyArray:
    view: AnyArray = array.view()
    view.flags.writeable = False
    return view


def _owner(array: AnyArray) -> AnyArray:
    """Return the array whose memory this one views, or the array itself."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
