"""Cases of one node: every sample with all dimensions known and with none known."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.case import Case, Level, Mark
from nnrt_client.conformance.cases.one_node import constant_graph, dynamic_graph, infer_all, known_graph, pairs
from nnrt_client.conformance.cases.row import SINGLE, Fixed, Given
from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import data_type_of

AnyArray = NDArray[Any]


HALF = DataType.FLOAT16
# Ways to make dimensions unknown, from most to fewest: all, all but an image's channels, or only the first.
DYNAMIC: dict[str, Callable[[Sample], Graph]] = {
    "-dynamic": dynamic_graph,
    "-dynamic_pixels": partial(dynamic_graph, keeps_channels=True),
    "-dynamic_batch": partial(dynamic_graph, keeps_all_but_first=True),
}


# Number of rows per node type whose models run with a second size too.
IN_TWO_SIZES = 3


def operators() -> Iterator[Case]:
    """Yield the cases of the level "operators"."""
    samples = [sample for sample in SAMPLES if data_type_of(sample.dtype) is not HALF]
    yield from one_node_cases(Level.OPERATORS, iter(samples))
    tried: defaultdict[NodeType, set[str]] = defaultdict(set)
    for sample in samples:
        rows, row = tried[sample.node_type], sample.name.split("-")[1]
        if sample.dtype != SINGLE or len(rows | {row}) > IN_TWO_SIZES:
            continue
        for suffix, graph in DYNAMIC.items():
            with suppress(InvalidParameter):
                if (other := resize_sample(sample, graph(sample))) is None:
                    continue
                marks = {Mark.DYNAMIC, *(() if rows else {Mark.QUICK})}
                rows.add(row)
                yield _case(Level.OPERATORS, sample, graph, f"{suffix}-sizes", marks, other)
                break


def one_node_cases(level: Level, samples: Iterator[Sample]) -> Iterator[Case]:
    """Yield up to three cases per sample, which differ in the constants and in the dimensions that the model knows.

    In the first case all operands are inputs unless the sample makes them constants, in the second only the first
    input stays one. In the third as many dimensions are unknown as the node type allows. `--quick` includes the cases
    of a node type's first sample.
    """
    seen: set[NodeType] = set()
    for sample in samples:
        marks = set() if sample.node_type in seen else {Mark.QUICK}
        seen.add(sample.node_type)
        yield _case(level, sample, known_graph, "", marks)
        if sum(not sample.is_constant(at) for at in range(len(sample.given))) > 1:
            yield _case(level, sample, constant_graph, "-constant", marks)
        for suffix, graph in DYNAMIC.items():
            with suppress(InvalidParameter):
                graph(sample)
                yield _case(level, sample, graph, suffix, {Mark.DYNAMIC, *marks})
                break


def resize_sample(sample: Sample, graph: Graph) -> Sample | None:
    """Return the sample with larger operands that the graph also accepts, or None if there are none.

    All dimensions grow, or only batch, height and width, or only the first one.
    """
    for longer in (
        lambda _, dims: [dim + (dim > 1) for dim in dims],
        lambda _, dims: [dim * (1 + (dim > 1)) for dim in dims],
        lambda at, dims: [dim + (at == 0 and 0 < axis < 3) for axis, dim in enumerate(dims)],
        lambda at, dims: [dim + (at == 0 and axis == 0) for axis, dim in enumerate(dims)],
    ):
        given = [_with_dims(operand, partial(longer, at)) for at, operand in enumerate(sample.given)]
        other = replace(sample, name=f"{sample.name}-sizes", given=given)
        arrays = other.arrays()
        operands = pairs(other, arrays)
        if [x.shape for x in arrays] != [x.shape for x in sample.arrays()] and all(
            spec.accepts(arrays[at].shape) for at, spec in zip(graph.inputs, graph.input_specs, strict=True)
        ):
            with suppress(InvalidParameter):
                made = infer_all(sample.node_type, operands, sample.attrs)
                if all(wide.accepts(spec.shape) for wide, spec in zip(graph.output_specs, made, strict=True)):
                    return other
    return None


def _with_dims(operand: Given, longer: Callable[[Sequence[int]], Sequence[int]]) -> Given:
    if isinstance(operand, Fixed):
        return replace(operand, shape=tuple(longer(operand.shape)))
    return operand if isinstance(operand, np.ndarray) else tuple(longer(operand))


def _case(
    level: Level,
    sample: Sample,
    graph: Callable[[Sample], Graph],
    suffix: str,
    marks: set[Mark],
    other: Sample | None = None,
) -> Case:
    return Case(
        f"{level.value}/{sample.name}{suffix}",
        level,
        sample.family,
        (sample.node_type,),
        data_type_of(sample.dtype),
        partial(_made, sample, graph, *([other] if other else [])),
        other.name if other else sample.name,
        marks=frozenset(marks),
    )


def _made(sample: Sample, graph: Callable[[Sample], Graph], *others: Sample) -> tuple[Graph, list[list[AnyArray]]]:
    made = graph(sample)
    return made, [[x for at, x in enumerate(each.arrays()) if at in made.inputs] for each in (sample, *others)]
