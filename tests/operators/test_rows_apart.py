"""Rows that stay apart: the judgement of every operator against its kernel, which computes rows together and alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nnrt_client.conformance.cases.row import SINGLE, Fixed, ints
from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, Unsupported
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import OPERATORS, infer_node
from nnrt_hdi.ops.rows_apart import forms_of, rows_apart_condition
from nnrt_hdi.ops.rows_apart.form import Form, Rows
from nnrt_hdi.ops.rows_apart.judgement import JUDGEMENTS
from nnrt_hdi.tensor import TensorSpec

from .single_node import pairs, prepare
from .tolerances import require_close

pytestmark = pytest.mark.table

AnyArray = NDArray[Any]
# The dimension of the rows in each operand that has them.
Places = Mapping[int, int]

# Rows are moved alike in all data types.
FIRST = list(
    {(str(sample.given), str(sample.attrs), sample.node_type, sample.layout): sample for sample in SAMPLES}.values()
)
# What no sample of the operators has: rows that stay as they are, and what follows from their number.
MORE = [
    Sample("asserted", "logic", NodeType.ASSERT, [Fixed((3, 2), "i4", low=1), (4,)], {}, SINGLE, Format.NONE),
    Sample("bordered", "shape", NodeType.PAD_FUSION, [(3, 2), ints((0, 0), (2, 1))], {}, SINGLE, Format.NONE),
]
CASES = [*FIRST[::3], *MORE]
# Nothing may be joined with their runs.
NEVER = {NodeType.DETECTION_POST_PROCESS, NodeType.SCATTER_ND, NodeType.SPARSE_TO_DENSE}
# What they give has no rows in it.
WITHOUT_ROWS = {
    NodeType.CONSTANT_OF_SHAPE,
    NodeType.FILL,
    NodeType.RANGE,
    NodeType.RANK,
    NodeType.SHAPE,
}
# No model has rows in channels, pixels or weights; some refusals of these are for nothing.
TOO_CAREFUL = {
    NodeType.AVGPOOL_FUSION,
    NodeType.BATCH_TO_SPACE_ND,
    NodeType.BIAS_ADD,
    NodeType.CONV2D_FUSION,
    NodeType.CONV2D_TRANSPOSE_FUSION,
    NodeType.DEPTH_TO_SPACE,
    NodeType.FULL_CONNECTION,
    NodeType.INSTANCE_NORM,
    NodeType.LRN,
    NodeType.MAX_POOL_FUSION,
    NodeType.PRELU_FUSION,
    NodeType.RESIZE,
    NodeType.SCALE_FUSION,
    NodeType.SPACE_TO_BATCH_ND,
}
COUNTS = (1, 3, 2)


@pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: NodeType(node_type).name)
def test_every_operator_is_judged(node_type: NodeType) -> None:
    assert node_type in JUDGEMENTS
    assert rows_apart_condition(node_type).startswith(("always", "if ", "never"))


@pytest.mark.parametrize("sample", CASES, ids=lambda sample: sample.name)
def test_rows_judged_apart_are_computed_so(sample: Sample) -> None:
    for places in every_place(sample):
        form = judged(sample, places)
        if isinstance(form, tuple):
            require_apart(sample, places, form)
        elif isinstance(form, Unsupported):
            assert f"{sample.node_type.name} node" in form.place and form.message


@pytest.mark.parametrize(
    "sample", [some for some in CASES if some.node_type not in TOO_CAREFUL], ids=lambda some: some.name
)
def test_rows_judged_mixed_are(sample: Sample) -> None:
    """Whatever is refused fails for several rows, or gives something else than for each alone."""
    for places in every_place(sample):
        if isinstance(judged(sample, places), Unsupported):
            try:
                alone, joined = computed(sample, places)
            except NnrtError:
                continue
            assert not any(part.size for part in joined) or not all(map(is_joined, joined, zip(*alone, strict=True)))


def every_place(sample: Sample) -> Iterator[Places]:
    """Each operand that isn't constant, and several of them, with the rows in each of their dimensions."""
    arrays = sample.arrays()
    if any(array.size == 0 for array in arrays):
        return  # Nothing mixes where nothing is.
    free = [at for at, array in enumerate(arrays) if not sample.is_constant(at) and array.ndim]
    for chosen in (part for size in (1, 2, 3) for part in combinations(free, size)):
        least = min(arrays[at].ndim for at in chosen)
        for axis in range(least):
            yield dict.fromkeys(chosen, axis)
        if any(arrays[at].ndim > least for at in chosen):
            for axis in range(-max(arrays[at].ndim for at in chosen), 0):
                yield {at: axis % arrays[at].ndim for at in chosen if arrays[at].ndim >= -axis}


def judged(sample: Sample, places: Places) -> tuple[Form, ...] | NnrtError:
    """The forms of the outputs, or why there are none."""
    try:
        graph = graph_of(sample, places)
        forms = forms_of(graph)
    except NnrtError as error:
        return error
    return tuple(forms[tensor] for tensor in graph.outputs)


def graph_of(sample: Sample, places: Places) -> Graph:
    """The sample's node; operands with rows are transposed from inputs that have them in front, others are constant."""
    tensors: list[TensorSpec] = []
    constants: dict[int, Constant] = {}
    nodes: list[Node] = []

    def tensor(spec: TensorSpec, value: AnyArray | None = None) -> int:
        tensors.append(spec)
        if value is not None:
            constants[len(tensors) - 1] = Constant.of(value)
        return len(tensors) - 1

    inputs, operands = [], []
    arrays = sample.arrays()
    for at, ((spec, _), array) in enumerate(zip(pairs(sample, arrays), arrays, strict=True)):
        if at not in places:
            operands.append(tensor(spec, array))
            continue
        axis, rest = places[at], [dim for other, dim in enumerate(spec.shape) if other != places[at]]
        inputs.append(tensor(TensorSpec(spec.data_type, (-1, *rest))))
        order = np.array([*range(1, axis + 1), 0, *range(axis + 1, spec.rank)], np.int64)
        operands.append(tensor(replace(spec, shape=(*rest[:axis], -1, *rest[axis:]))))
        permutation = tensor(TensorSpec(DataType.INT64, order.shape), order)
        nodes.append(Node(NodeType.TRANSPOSE, (inputs[-1], permutation), (operands[-1],)))
    given = [(tensors[at], constants[at].data if at in constants else None) for at in operands]
    results = infer_node(Node(sample.node_type, (), (0,), sample.attrs), given)
    outputs = tuple(tensor(spec) for spec in results)
    nodes.append(Node(sample.node_type, tuple(operands), outputs, sample.attrs))
    return Graph(tuple(tensors), tuple(nodes), tuple(inputs), outputs, constants)


def require_apart(sample: Sample, places: Places, forms: Sequence[Form]) -> None:
    """Compute runs of several numbers of rows, and compare what each gets alone and with the others."""
    try:
        alone, joined = computed(sample, places)
    except InvalidParameter:
        return  # Operands that don't go together, whatever the number of rows.
    for at, form in enumerate(forms):
        parts = [joined[at]] * len(alone) if form.rows is None else split(joined[at], form.rows)
        for part, results in zip(parts, alone, strict=True):
            if not form.counts_rows:
                require_close(part, results[at])


def computed(sample: Sample, places: Places) -> tuple[list[list[AnyArray]], list[AnyArray]]:
    """The outputs of runs, and those of all together."""
    model = prepare(graph_of(sample, places))
    runs = [rows_of(sample, places, count, number) for number, count in enumerate(COUNTS)]
    alone = [model.run(run, Cancellation()) for run in runs]
    return alone, model.run([np.concatenate(parts) for parts in zip(*runs, strict=True)], Cancellation())


def is_joined(joined: AnyArray, parts: Sequence[AnyArray]) -> bool:
    """The parts are behind each other in some dimension."""
    for axis in range(joined.ndim):
        try:
            behind = np.concatenate(parts, axis)
        except ValueError:
            continue
        if behind.shape == joined.shape and np.allclose(behind, joined, atol=1e-3, equal_nan=True):
            return True
    return False


def rows_of(sample: Sample, places: Places, count: int, number: int) -> list[AnyArray]:
    """So many rows for each input, with numbers of their own."""
    arrays = replace(sample, name=f"{sample.name} {number}").arrays()
    return [
        np.ascontiguousarray(np.take(np.moveaxis(arrays[at], axis, 0), range(count), 0, mode="wrap"))
        for at, axis in places.items()
    ]


def split(joined: AnyArray, rows: Rows) -> list[AnyArray]:
    """The parts of the runs."""
    shape, axis = joined.shape, rows.axis
    inner, outer = rows.inner.number, rows.outer.number
    assert inner is not None and outer is not None
    assert shape[axis] == outer * sum(COUNTS) * inner
    apart = joined.reshape(*shape[:axis], outer, sum(COUNTS), inner, *shape[axis + 1 :])
    parts = np.split(apart, np.cumsum(COUNTS)[:-1].tolist(), axis + 1)
    return [
        part.reshape(*shape[:axis], outer * count * inner, *shape[axis + 1 :])
        for part, count in zip(parts, COUNTS, strict=True)
    ]


@pytest.mark.parametrize("node_type", sorted({sample.node_type for sample in FIRST}), ids=lambda kind: kind.name)
def test_every_operator_keeps_rows_apart_somewhere(node_type: NodeType) -> None:
    samples = [sample for sample in [*FIRST, *MORE] if sample.node_type is node_type]
    found = (judged(sample, places) for sample in samples for places in every_place(sample))
    is_kept = any(isinstance(forms, tuple) and any(form.rows for form in forms) for forms in found)
    assert is_kept == (node_type not in NEVER | WITHOUT_ROWS)
