"""Arithmetic on two operands where neither the kit nor an oracle has the case: by hand."""

from typing import Any

import numpy as np
import pytest

from nnrt_hdi.enums import DataType, NodeType

from .single_node import array_of, compute, infer, spec

N = NodeType


def test_power_of_a_scaled_base() -> None:
    attrs = {"scale": 2.0, "shift": -1.0}
    np.testing.assert_array_equal(compute(N.POW_FUSION, [array_of(1, 2, 0.5), array_of(2, 2, 3)], attrs), [1, 9, 0])
    np.testing.assert_array_equal(
        compute(N.POW_FUSION, [array_of(1, 2, dtype="u1"), array_of(3, dtype="u1")], {"scale": 2.0}), [8, 64]
    )


def test_squared_difference_of_truths() -> None:
    result = compute(
        N.SQUARED_DIFFERENCE, [array_of(True, True, False, dtype="?"), array_of(True, False, False, dtype="?")]
    )
    assert result.dtype == np.bool_
    np.testing.assert_array_equal(result, [False, True, False])


def test_scale_covers_dimensions_from_its_axis_on() -> None:
    x = np.arange(12, dtype="f4").reshape(2, 2, 3)
    wanted = np.array([[[10, 11, 12], [26, 28, 30]], [[16, 17, 18], [38, 40, 42]]], "f4")
    np.testing.assert_array_equal(compute(N.SCALE_FUSION, [x, array_of(1, 2), array_of(10, 20)], {"axis": 1}), wanted)
    np.testing.assert_array_equal(compute(N.SCALE_FUSION, [x, array_of(1, 2), array_of(10, 20)], {"axis": -2}), wanted)


def test_slope_of_a_scalar() -> None:
    """Whose only weight is a vector, but not the result."""
    result = compute(N.PRELU_FUSION, [np.array(-2, "f4"), array_of(0.25)])
    assert result.shape == ()
    assert result == -0.5


@pytest.mark.parametrize("node_type", [N.MAXIMUM, N.MINIMUM, N.MOD, N.REAL_DIV, N.POW_FUSION, N.SQUARED_DIFFERENCE])
@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (DataType.INT8, DataType.INT32, DataType.INT32),
        (DataType.INT64, DataType.FLOAT16, DataType.FLOAT16),
        (DataType.FLOAT32, DataType.FLOAT64, DataType.FLOAT64),
        (DataType.BOOL, DataType.UINT8, DataType.UINT8),
    ],
)
def test_the_higher_precision_counts(node_type: NodeType, first: DataType, second: DataType, wanted: DataType) -> None:
    operands: list[Any] = [(spec((2,), data_type), None) for data_type in (first, second)]
    assert infer(node_type, operands, {}).data_type is wanted
    assert infer(node_type, operands[::-1], {}).data_type is wanted
