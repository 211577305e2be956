"""Cases of one node: every sample, with all dimensions known and with none."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from numpy.typing import NDArray

from nnrt_client.conformance.case import Case, Level, Mark
from nnrt_client.conformance.cases.one_node import constant_graph, dynamic_graph, known_graph
from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import data_type_of

AnyArray = NDArray[Any]


HALF = DataType.FLOAT16
# What a model may not know, the most first: any dimension, all of images but their channels, or how many there are.
DYNAMIC: dict[str, Callable[[Sample], Graph]] = {
    "-dynamic": dynamic_graph,
    "-dynamic_pixels": partial(dynamic_graph, keeps_channels=True),
    "-dynamic_batch": partial(dynamic_graph, keeps_all_but_first=True),
}


def operators() -> Iterator[Case]:
    """Give the cases of the level "operators"."""
    yield from of_one_node(Level.OPERATORS, (sample for sample in SAMPLES if data_type_of(sample.dtype) is not HALF))


def of_one_node(level: Level, samples: Iterator[Sample]) -> Iterator[Case]:
    """Give the cases of each sample: all operands given, all but the first constant, and as little known as may be.

    Those of the first sample of a node are quick.
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


def _case(level: Level, sample: Sample, graph: Callable[[Sample], Graph], suffix: str, marks: set[Mark]) -> Case:
    return Case(
        f"{level.value}/{sample.name}{suffix}",
        level,
        sample.family,
        (sample.node_type,),
        data_type_of(sample.dtype),
        partial(_made, sample, graph),
        sample.name,
        marks=frozenset(marks),
    )


def _made(sample: Sample, graph: Callable[[Sample], Graph]) -> tuple[Graph, list[list[AnyArray]]]:
    made = graph(sample)
    return made, [[array for at, array in enumerate(sample.arrays()) if at in made.inputs]]
