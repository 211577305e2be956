"""Quantized tensors with elements worked out by hand: conversions, and axes that the shape alone leaves ambiguous."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnrt_client.conformance.case import Case, Level
from nnrt_client.conformance.cases.draft import Draft, HandMade, case_by_hand
from nnrt_client.conformance.numbers import f4
from nnrt_client.conformance.tolerance import Tolerance
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import QuantParam, TensorSpec

N = NodeType
EXACT = Tolerance("no number is near a tie, so that every way of rounding gives the same", {}, steps=0)
FLOAT, SIGNED, UNSIGNED = DataType.FLOAT32, DataType.INT8, DataType.UINT8
INF = float("inf")


def quantized_by_hand() -> Iterator[Case]:
    """Yield the cases with quantized elements worked out by hand."""
    yield from _to_elements()
    yield from _to_numbers()
    yield from _square()


def _to_elements() -> Iterator[Case]:
    given = f4(0, 0.2, 0.3, 0.8, -0.3, 100, -100, INF, -INF)
    for data_type, zero_point, elements in (
        (SIGNED, 3, [3, 3, 4, 5, 2, 127, -128, 127, -128]),
        (UNSIGNED, 128, [128, 128, 129, 130, 127, 255, 0, 255, 0]),
    ):
        spec = TensorSpec(data_type, given.shape, quant=(QuantParam(0.5, zero_point),))
        wanted = np.array(elements, spec.numpy_dtype)
        yield _cast(f"to_{data_type.name}", TensorSpec(FLOAT, given.shape), spec, ([given], [wanted]))
    nothing = TensorSpec(SIGNED, (2,), quant=(QuantParam(0.0, 5),))
    yield _cast("to_scale_0", TensorSpec(FLOAT, (2,)), nothing, ([f4(0, 7)], [np.array([5, 5], "i1")]))


def _to_numbers() -> Iterator[Case]:
    for data_type, elements in ((SIGNED, [-128, -1, 0, 127]), (UNSIGNED, [0, 127, 128, 255])):
        spec = TensorSpec(data_type, (4,), quant=(QuantParam(0.5, 1),))
        stored = np.array(elements, spec.numpy_dtype)
        numbers = f4(*((element - 1) * 0.5 for element in elements))
        yield _cast(f"from_{data_type.name}", spec, TensorSpec(FLOAT, (4,)), ([stored], [numbers]))
    nothing = TensorSpec(SIGNED, (2,), quant=(QuantParam(0.0, 5),))
    yield _cast("from_scale_0", nothing, TensorSpec(FLOAT, (2,)), ([np.array([5, 7], "i1")], [f4(0, 0)]))
    unsigned = TensorSpec(UNSIGNED, (4,), quant=(QuantParam(0.5, 128),))
    signed = TensorSpec(SIGNED, (4,), quant=(QuantParam(0.25, -3),))
    run = [np.array([128, 129, 255, 126], "u1")], [np.array([-3, -1, 127, -7], "i1")]
    yield _cast("between", unsigned, signed, run)
    columns = TensorSpec(SIGNED, (2, 2), quant=(QuantParam(1.0, 0), QuantParam(0.5, 2)))
    square = np.array([[4, 4], [6, 8]], "i1")
    for axis, numbers in ((1, f4([4, 1], [6, 3])), (0, f4([4, 4], [2, 3]))):
        title = f"axis_{axis}_of_a_square"
        yield _cast(title, columns, TensorSpec(FLOAT, (2, 2)), ([square], [numbers]), axis=axis)


def _square() -> Iterator[Case]:
    """Yield cases of a square weight with one scale per output: the shape doesn't tell outputs from inputs."""
    x = TensorSpec(SIGNED, (1, 2), quant=(QuantParam(1.0, 0),))
    draft = Draft()
    weight = draft.constant(np.array([[1, 2], [3, 4]], "i1"), (QuantParam(1.0, 0), QuantParam(2.0, 0)))
    y = draft.node(N.FULL_CONNECTION, draft.input_of(x), weight, declared=(x,))
    run = [np.array([[1, 2]], "i1")], [np.array([[5, 22]], "i1")]
    yield _case("square_weight", draft.graph(y), run)


def _cast(title: str, given: TensorSpec, made: TensorSpec, run: HandMade, axis: int = 0) -> Case:
    draft = Draft()
    node_type = N.QUANT_DTYPE_CAST_V2 if max(len(given.quant), len(made.quant)) > 1 else N.QUANT_DTYPE_CAST
    attrs: dict[str, Any] = {"src_t": int(given.data_type), "dst_t": int(made.data_type)}
    if node_type is N.QUANT_DTYPE_CAST_V2:
        attrs["axis"] = axis
    result = draft.node(node_type, draft.input_of(given), declared=(made,), **attrs)
    return _case(f"cast_{title}", draft.graph(result), run)


def _case(title: str, graph: Graph, run: HandMade) -> Case:
    return case_by_hand(Level.QUANTIZED, f"by_hand-{title}", graph, run, tolerance=EXACT)
