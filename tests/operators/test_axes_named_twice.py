"""Axes of folds and of SQUEEZE: one that comes twice, also counted from the other end, counts once.

As in TensorFlow Lite, whose kernels are the oracle, and in NNAPI.
"""

from typing import Any

import numpy as np
import pytest
from loaded import loaded

from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import DataType, NodeType, ReduceMode
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.rows_apart import require_rows_apart
from nnrt_hdi.tensor import data_type_of

from .single_node import AnyArray, Pair, graph_of, infer, spec, without_dims
from .tflite import Tensor, run_tflite

pytestmark = pytest.mark.table

AXES = ([1, -2, 1], [0, 2, -1, 0], [2, -1], [0, 1, 2, -3, -2, -1])
FOLDS = {
    ReduceMode.MEAN: "MEAN",
    ReduceMode.MAX: "REDUCE_MAX",
    ReduceMode.MIN: "REDUCE_MIN",
    ReduceMode.PROD: "REDUCE_PROD",
    ReduceMode.SUM: "SUM",
}

per_backend = pytest.mark.parametrize("backend", ("reference", "onnxruntime"))
per_axes = pytest.mark.parametrize("axes", AXES, ids=str)
keeping = pytest.mark.parametrize("keep_dims", (False, True), ids=("going", "kept"))


def numbers(*shape: int, dtype: str = "f4") -> AnyArray:
    return np.random.default_rng(7).integers(-4, 5, shape).astype(dtype)


def given(array: AnyArray) -> Pair:
    return spec(array.shape, data_type_of(array.dtype)), None


def constant(axes: list[int]) -> Pair:
    return spec((len(axes),), DataType.INT32), np.array(axes, np.int32)


def run(backend: str, graph: Graph, *inputs: AnyArray) -> AnyArray:
    (output,) = loaded(backend).prepare(graph, ModelConfig(), lambda _: None).run(inputs, Cancellation())
    return np.asarray(output)


def by_tflite(operator: str, x: AnyArray, axes: list[int], output: Any, **options: Any) -> AnyArray:
    operands = [Tensor(spec(x.shape, data_type_of(x.dtype)), x)]
    if axes:
        operands.append(Tensor(*constant(axes), is_constant=True))
    return run_tflite(operator, operands, output, **options)


@per_backend
@per_axes
@keeping
@pytest.mark.parametrize("mode", FOLDS, ids=lambda mode: mode.name)
def test_folds(mode: ReduceMode, axes: list[int], keep_dims: bool, backend: str) -> None:
    x, attrs = numbers(2, 3, 4), {"mode": mode, "keep_dims": keep_dims}
    graph = graph_of(NodeType.REDUCE_FUSION, [given(x), constant(axes)], attrs)
    wanted = by_tflite(FOLDS[mode], x, axes, graph.output_specs[0], options_of="ReducerOptions", keepDims=keep_dims)
    found = run(backend, graph, x)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    dynamic = graph_of(NodeType.REDUCE_FUSION, [without_dims(given(x)), constant(axes)], attrs)
    np.testing.assert_array_equal(run(backend, dynamic, x), found)


@per_backend
@per_axes
@keeping
@pytest.mark.parametrize(
    ("mode", "dtype"),
    [
        (mode, dtype)
        for mode in ReduceMode
        for dtype in ("f2", "f4", "i4", "i8")
        if mode is not ReduceMode.L2 or "f" in dtype
    ],
    ids=str,
)
def test_all_folds_are_those_of_axes_named_once(
    mode: ReduceMode, axes: list[int], keep_dims: bool, dtype: str, backend: str
) -> None:
    """Those of other code agree with it where each is named once: see the samples."""
    x, attrs = numbers(2, 3, 4, dtype=dtype), {"mode": mode, "keep_dims": keep_dims}
    once = sorted({axis % 3 for axis in axes})
    found, wanted = (
        run(backend, graph_of(NodeType.REDUCE_FUSION, [given(x), constant(named)], attrs), x) for named in (axes, once)
    )
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@per_backend
@per_axes
def test_axes_that_only_the_run_knows(axes: list[int], backend: str) -> None:
    x, names = numbers(2, 3, 4), np.array(axes, np.int32)
    attrs = {"mode": ReduceMode.SUM, "keep_dims": True}
    graph = graph_of(NodeType.REDUCE_FUSION, [given(x), given(names)], attrs)
    np.testing.assert_array_equal(
        run(backend, graph, x, names), x.sum(tuple({axis % 3 for axis in axes}), keepdims=True)
    )


@per_backend
@per_axes
@keeping
def test_all(axes: list[int], keep_dims: bool, backend: str) -> None:
    x = np.random.default_rng(8).integers(0, 9, (2, 3, 4)) > 0
    graph = graph_of(NodeType.ALL, [given(x), constant(axes)], {"keep_dims": int(keep_dims)})
    wanted = by_tflite("REDUCE_ALL", x, axes, graph.output_specs[0], options_of="ReducerOptions", keepDims=keep_dims)
    found = run(backend, graph, x)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@per_backend
@pytest.mark.parametrize("axes", ([1, 1], [1, -3], [3, 1, -1, -3]), ids=str)
def test_squeeze(axes: list[int], backend: str) -> None:
    x = numbers(2, 1, 3, 1)
    graph = graph_of(NodeType.SQUEEZE, [given(x)], {"axis": tuple(axes)})
    output = graph.output_specs[0]
    wanted = by_tflite("SQUEEZE", x, [], output, options_of="SqueezeOptions", squeezeDims=axes)
    found = run(backend, graph, x)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@per_backend
def test_l2_normalize(backend: str) -> None:
    x = numbers(2, 3)
    graph = graph_of(NodeType.L2_NORMALIZE_FUSION, [given(x)], {"axis": (1, -1), "epsilon": 2.0**-20})
    output = graph.output_specs[0]
    wanted = by_tflite("L2_NORMALIZATION", x, [], output, options_of="L2NormOptions")
    np.testing.assert_allclose(run(backend, graph, x), wanted, rtol=1e-6)


def test_rows_stay_apart_all_the_same() -> None:
    rows = spec((-1, 1, 3))
    assert infer(NodeType.SQUEEZE, [(rows, None)], {"axis": (1, -2)}).shape == (-1, 3)
    require_rows_apart(graph_of(NodeType.SQUEEZE, [(rows, None)], {"axis": (1, -2)}))
    for keep_dims in (True, False):
        require_rows_apart(
            graph_of(NodeType.REDUCE_FUSION, [(rows, None), constant([2, -1])], {"keep_dims": keep_dims})
        )
    require_rows_apart(graph_of(NodeType.L2_NORMALIZE_FUSION, [(rows, None)], {"axis": (2, -1)}))
