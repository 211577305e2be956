"""Half precision: FLOAT16 tensors, and FLOAT32 models that allow it (`enable_float16`).

The inputs of the latter are exact in FLOAT16, so that rounding an input changes nothing.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.answers import load_answer
from nnrt_client.conformance.case import Case, Level, Mark
from nnrt_client.conformance.cases.one_node import graph_of, infer_all, pairs
from nnrt_client.conformance.cases.operators import one_node_cases
from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_client.conformance.tolerance import IN_HALF_PRECISION
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph

AnyArray = NDArray[Any]

# Operators that may select another box if an intermediate result is rounded.
_CHOOSING = {NodeType.DETECTION_POST_PROCESS}


def float16() -> Iterator[Case]:
    """Yield the cases of the level "float16"."""
    yield from one_node_cases(Level.FLOAT16, (sample for sample in SAMPLES if sample.dtype == np.float16))
    seen: set[NodeType] = set()
    for sample in SAMPLES:
        if sample.dtype != np.float32 or sample.node_type in _CHOOSING or _is_large(sample):
            continue
        name = f"{sample.name}-enabled"
        yield Case(
            f"{Level.FLOAT16.value}/{name}",
            Level.FLOAT16,
            sample.family,
            (sample.node_type,),
            DataType.FLOAT16,
            partial(_rounded, sample),
            name,
            IN_HALF_PRECISION,
            enable_float16=True,
            marks=frozenset() if sample.node_type in seen else frozenset({Mark.QUICK}),
        )
        seen.add(sample.node_type)


def _is_large(sample: Sample) -> bool:
    """Return whether a result is beyond FLOAT16's range or near its end."""
    (outputs,) = load_answer(Level.OPERATORS.value, sample.name).runs
    assert outputs is not None
    return any(
        np.isfinite(y).any() and np.abs(y[np.isfinite(y)]).max() > 2**14 for y in outputs if y.dtype == np.float32
    )


def _rounded(sample: Sample) -> tuple[Graph, list[list[AnyArray]]]:
    arrays = [x.astype(np.float16).astype(np.float32) if x.dtype == np.float32 else x for x in sample.arrays()]
    operands = pairs(sample, arrays)
    graph = graph_of(sample.node_type, operands, sample.attrs, *infer_all(sample.node_type, operands, sample.attrs))
    return graph, [[array for array, (_, value) in zip(arrays, operands, strict=True) if value is None]]
