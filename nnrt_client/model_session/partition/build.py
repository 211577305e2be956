"""Build of an ONNX file in parts, for a device and for this process."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from os import PathLike

from nnrt_client.build.build_task import BuildReport
from nnrt_client.model.model import Model
from nnrt_client.model_session.partition.client_part import ClientPart, learn_types
from nnrt_client.model_session.partition.device_part import DevicePart
from nnrt_client.model_session.partition.fallback import SMALLEST_PART
from nnrt_client.model_session.partition.kept_values import KeptValues, TensorT
from nnrt_client.model_session.partition.partition_dispatcher import PartitionDispatcher
from nnrt_client.model_session.partition.parts_of_run import ReadyPart
from nnrt_client.model_session.partition.placement import Part, Placement, count_operators, place_parts
from nnrt_client.model_session.partition.report import PartitionReport, PartReport
from nnrt_client.model_session.real_onnxruntime import require_onnxruntime
from nnrt_client.onnx_import.cut import OnnxGraph
from nnrt_client.onnx_import.file import OnnxFile
from nnrt_client.onnx_import.freezing import freeze
from nnrt_client.onnx_import.scope import put_in_order
from nnrt_client.run.descriptions import INLINE_BYTES
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_client.tensors.frozen import Constants
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.backend import Origin
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.tensor import TensorSpec

Source = str | PathLike[str] | bytes
Shapes = Mapping[str, Sequence[int]]
# Builds a model and returns its executor, which the stack closes.
Execute = Callable[[Model, ExitStack], tuple[Executor, BuildReport]]


def read_graph(source: Source, shapes: Shapes | None, constants: Constants | None) -> OnnxGraph:
    """Read the graph of an ONNX file, which `place_parts` can cut; raise what `from_onnx` raises."""
    require_onnxruntime()
    file = OnnxFile(source)
    freeze(file.proto, constants or {})
    put_in_order(file.proto.graph)
    graph = OnnxGraph(file, shapes or {})
    learn_types(graph)
    return graph


def build_parts(
    source: Source,
    device: Device,
    execute: Execute,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
    smallest_part: int = SMALLEST_PART,
) -> PartitionDispatcher:
    """Build the parts of an ONNX model: those for the device with `execute`, the others in this process.

    `place_parts` decides where a part runs. Raises Unsupported if the device runs no part or ONNX Runtime doesn't take
    one, InvalidFile, InvalidPath and InvalidParameter as `from_onnx`, and the errors of the builds.
    """
    graph = read_graph(source, shapes, constants)
    return _Building(graph, device, place_parts(graph, device, smallest_part)).run(execute)


def preview_parts(
    source: Source,
    device: Device,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
    smallest_part: int = SMALLEST_PART,
) -> tuple[OnnxGraph, Placement, list[PartReport]]:
    """Return the graph of an ONNX model, its placement, and a report of each part, without building anything.

    No weights are sent. Raises as `build_parts`.
    """
    graph = read_graph(source, shapes, constants)
    placement = place_parts(graph, device, smallest_part)
    return graph, placement, report_parts(graph, placement, device)


class _Building:
    def __init__(self, graph: OnnxGraph, device: Device, placement: Placement) -> None:
        self._graph = graph
        self._device = device
        self._placement = placement
        self._specs: dict[str, TensorSpec] = {}

    def run(self, execute: Execute) -> PartitionDispatcher:
        """Build all parts; if one fails, close those that are ready."""
        graph, device = self._graph, self._device
        inputs = [(self._input_spec(info.name), graph.dims(info.name) or ()) for info in graph.inputs]
        reports: list[BuildReport] = []
        ready: list[ReadyPart] = []
        with ExitStack() as stack:
            threads = ThreadPoolExecutor(max(os.cpu_count() or 1, 2), "nnrt-client-part")
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            for number, part in enumerate(self._placement.parts):
                if part.model is None:
                    place = f"part {number + 1} of it, in the client"
                    shared = self._make_kept_values(part, partial(Tensor.with_size, device), stack)
                    ready.append(ClientPart(part.proto.serialized(graph.file), place, threads, shared))
                else:
                    part_executor, report = execute(part.model, stack)
                    reports.append(report)
                    ready.append(self._device_part(part, part_executor, stack))
            outputs = [self._output_spec(name, ready) for name in graph.outputs]
            summed = _sum_reports(reports, report_parts(graph, self._placement, device))
            return PartitionDispatcher(device, ready, inputs, outputs, summed, stack.pop_all())

    def _device_part(self, part: Part, executor: Executor, stack: ExitStack) -> DevicePart:
        for index, name in enumerate(part.outputs):
            self._specs[name] = executor.output_desc(index)._to_spec()
        return DevicePart(executor, self._make_kept_values(part, partial(ResidentTensor, self._device), stack))

    def _make_kept_values(
        self, part: Part, make: Callable[[TensorDesc, int], TensorT], stack: ExitStack
    ) -> dict[str, KeptValues[TensorT]]:
        """Make memory for those outputs of a part that only parts on the device read."""
        kept: dict[str, KeptValues[TensorT]] = {}
        for name in part.outputs:
            spec, dims = self._graph.spec(name), self._graph.dims(name)
            readers = [other for other in self._placement.parts if name in other.inputs]
            if spec is None or dims is None or name in self._graph.outputs or not all(one.model for one in readers):
                continue
            if spec.is_dynamic or spec.byte_size > INLINE_BYTES:  # Smaller values fit into the messages of the run.
                kept[name] = KeptValues(spec, dims, make)
                stack.callback(kept[name].close)
        return kept

    def _input_spec(self, name: str) -> TensorSpec:
        spec = self._graph.spec(name)
        if spec is None:
            raise Unsupported(
                "it is no tensor of NNRt, or its rank is not known; give it in `shapes`", place=f"input {name!r}"
            )
        return spec

    def _output_spec(self, name: str, ready: Sequence[ReadyPart]) -> TensorSpec:
        spec = self._specs.get(name) or self._graph.spec(name)
        for part in ready if spec is None else ():
            spec = part.output_spec(name) if isinstance(part, ClientPart) and name in part.outputs else spec
        if spec is None:
            raise Unsupported("it is no tensor of NNRt", place=f"output {name!r}")
        return spec


def report_parts(graph: OnnxGraph, placement: Placement, device: Device) -> list[PartReport]:
    """Return a report of each part: where it runs, and why."""
    here = {name for part in placement.parts if part.model is None for name in part.inputs} | set(graph.outputs)
    there = {name for part in placement.parts if part.model is not None for name in part.outputs}
    return [
        PartReport(
            device=device.name if part.model else None,
            operators=count_operators(graph, part.nodes),
            nodes=[graph.nodes[at].name for at in part.nodes],
            inputs=part.inputs,
            outputs=part.outputs,
            crossing_bytes=_sum_bytes(
                graph,
                [
                    *(name for name in part.inputs if name not in there or name in here),
                    *here.intersection(part.outputs),
                ],
            )
            if part.model
            else 0,
            reasons=[placement.reasons[at] for at in part.nodes if at in placement.reasons],
        )
        for part in placement.parts
    ]


def _sum_bytes(graph: OnnxGraph, names: Sequence[str]) -> int | None:
    """Return the total size of these values in bytes, or None if the size of one isn't known."""
    specs = [graph.spec(name) for name in names]
    known = [spec.byte_size for spec in specs if spec is not None and not spec.is_dynamic]
    return sum(known) if len(known) == len(specs) else None


def _sum_reports(reports: Sequence[BuildReport], parts: Sequence[PartReport]) -> PartitionReport:
    stages: dict[str, float] = {}
    for report in reports:
        for stage, seconds in report.stages_s.items():
            stages[stage] = stages.get(stage, 0.0) + seconds
    origins = {report.origin for report in reports}
    earlier = [report.compiled_in_s for report in reports if report.compiled_in_s is not None]
    return PartitionReport(
        origin=origins.pop() if len(origins) == 1 else Origin.COMPILED,
        stages_s=stages,
        sent_bytes=sum(report.sent_bytes for report in reports),
        compiled_in_s=sum(earlier) if len(earlier) == len(reports) else None,
        notes=sum((Counter(report.notes) for report in reports), Counter()),
        parts=parts,
    )
