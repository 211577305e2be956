"""Expected results of cases, computed by the oracles node after node."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance import Case, Level, cases
from nnrt_client.conformance.answers import Answer, inputs_digest
from nnrt_client.conformance.cases.quantized import in_steps, real
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.quantized import RealView, Scaling
from nnrt_hdi.tensor import TensorSpec

from .oracles import expected

AnyArray = NDArray[Any]


def answers_of(level: Level) -> Iterator[Answer]:
    """Yield the answers of a level, each once."""
    seen = set()
    for case in cases(level):
        if case.by_hand is None and case.answer not in seen:
            seen.add(case.answer)
            yield answer_of(case)


def answer_of(case: Case) -> Answer:
    """Compute the answer of a case."""
    oracles: dict[str, None] = {}
    runs = []
    for inputs in case.inputs:
        outputs, names = outputs_of(case.graph, inputs)
        runs.append(outputs)
        oracles.update(dict.fromkeys(names))
    return Answer(case.answer, ", ".join(oracles), inputs_digest(case.graph, case.inputs), tuple(runs))


def outputs_of(graph: Graph, inputs: Sequence[AnyArray]) -> tuple[tuple[AnyArray, ...], list[str]]:
    """Compute the outputs of a graph node after node, and return them with the names of the oracles."""
    tensors = {index: np.asarray(constant.data) for index, constant in graph.constants.items()}
    tensors.update(zip(graph.inputs, inputs, strict=True))
    oracles = []
    for number in graph.order:
        node = graph.nodes[number]
        results, oracle = results_of(graph, node, [tensors[index] for index in node.inputs])
        tensors.update(zip(node.outputs, results, strict=True))
        oracles.append(oracle)
    return tuple(tensors[index] for index in graph.outputs), oracles


def results_of(graph: Graph, node: Node, arrays: Sequence[AnyArray]) -> tuple[list[AnyArray], str]:
    """Compute the results of a node.

    Quantized elements are computed as real numbers, and rounded as ADR 3 defines.
    """
    specs, outputs = ([graph.tensors[index] for index in indices] for indices in (node.inputs, node.outputs))
    if not any(spec.is_quantized for spec in (*specs, *outputs)):
        return expected(node.type, arrays, node.attrs, specs[0].format)
    if OPERATORS[node.type].sees_quantization:
        return [_converted(arrays[0], specs[0], outputs[0], node)], "numpy"
    view = OPERATORS[node.type].real_view(specs, outputs) or _moved(specs, outputs)
    reals = [
        array if scaling is None else real(array, scaling.params, scaling.axis)
        for array, scaling in zip(arrays, view.inputs, strict=True)
    ]
    results, oracle = expected(node.type, reals, node.attrs, specs[0].format)
    return [
        result if scaling is None else rounded(result, spec, scaling.axis)
        for result, spec, scaling in zip(results, outputs, view.outputs, strict=True)
    ], f"{oracle} on real numbers"


def _moved(specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> RealView:
    """Return the view as real numbers for operators that move elements: elements that they add are the number 0."""
    inputs, results = (
        tuple(Scaling(spec.quant, spec.channel_axis) if spec.is_quantized else None for spec in some)
        for some in (specs, outputs)
    )
    return RealView(inputs, results)


def _converted(array: AnyArray, spec: TensorSpec, output: TensorSpec, node: Node) -> AnyArray:
    """Convert elements like QUANT_DTYPE_CAST."""
    axis = node.attrs.get("axis", 0)
    assert isinstance(axis, int)
    reals = real(array, spec.quant, axis) if spec.is_quantized else array
    return rounded(reals, output, axis) if output.is_quantized else reals.astype(output.numpy_dtype)


def rounded(reals: AnyArray, spec: TensorSpec, axis: int) -> AnyArray:
    """Return the elements nearest to real numbers, with halves rounded away from zero."""
    steps = in_steps(reals, spec, axis)
    return np.asarray(np.copysign(np.floor(np.abs(steps) + 0.5), steps), spec.numpy_dtype)
