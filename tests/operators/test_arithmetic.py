"""Arithmetic on two operands where numbers end: signs, zeros, infinities and the edges of integers. By hand."""

from typing import Any

import numpy as np
import pytest

from nnrt_hdi.enums import DataType, EltwiseMode, NodeType

from .single_node import compute, infer, of, spec

N = NodeType
NAN, INF = np.nan, np.inf
SIGNED = pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])


@SIGNED
def test_remainder_has_the_sign_of_the_dividend(dtype: str) -> None:
    lowest = np.iinfo(dtype).min
    a, b = of(7, -7, 7, -7, 5, 0, lowest, dtype=dtype), of(3, 3, -3, -3, 0, 0, -1, dtype=dtype)
    np.testing.assert_array_equal(compute(N.MOD, [a, b]), [1, -1, 1, -1, 0, 0, 0])


def test_remainder_of_real_numbers() -> None:
    a, b = of(5.5, -5.5, 5.5, 1, INF, 3, NAN), of(2, 2, -2, 0, 2, INF, 1)
    np.testing.assert_array_equal(compute(N.MOD, [a, b]), [1.5, -1.5, 1.5, NAN, NAN, 3, NAN])


@SIGNED
def test_powers_of_integers(dtype: str) -> None:
    """A negative power leaves what rounding towards zero does: something of 1 and -1 only."""
    x, y = of(3, -3, 2, -2, 1, -1, -1, 0, 0, 5, dtype=dtype), of(4, 3, -1, -2, -3, -3, -4, -1, 0, 0, dtype=dtype)
    np.testing.assert_array_equal(compute(N.POW_FUSION, [x, y]), [81, -27, 0, 0, 1, -1, 1, 0, 1, 1])


def test_powers_of_integers_are_exact_and_wrap_around() -> None:
    assert compute(N.POW_FUSION, [of(3, dtype="i8"), of(39, dtype="i8")])[0] == 4052555153018976267
    assert compute(N.POW_FUSION, [of(3, dtype="u8"), of(40, dtype="u8")])[0] == 12157665459056928801
    assert compute(N.POW_FUSION, [of(3, dtype="i1"), of(5, dtype="i1")])[0] == 243 - 256
    assert compute(N.POW_FUSION, [of(2, dtype="i4"), of(-(2**31), dtype="i4")])[0] == 0


def test_powers_of_real_numbers() -> None:
    x, y = of(-8, -8, 0, 0, -0.0, NAN, 2, INF), of(2, 0.5, 0, -1, -1, 0, -INF, -1)
    np.testing.assert_array_equal(compute(N.POW_FUSION, [x, y]), [64, NAN, 1, INF, -INF, 1, 0, 0])


def test_power_of_a_scaled_base() -> None:
    attrs = {"scale": 2.0, "shift": -1.0}
    np.testing.assert_array_equal(compute(N.POW_FUSION, [of(1, 2, 0.5), of(2, 2, 3)], attrs), [1, 9, 0])
    np.testing.assert_array_equal(
        compute(N.POW_FUSION, [of(1, 2, dtype="u1"), of(3, dtype="u1")], {"scale": 2.0}), [8, 64]
    )


@pytest.mark.parametrize(("node_type", "wanted"), [(N.MAXIMUM, [NAN, NAN, INF, 0]), (N.MINIMUM, [NAN, NAN, -INF, -1])])
def test_not_a_number_wins(node_type: NodeType, wanted: list[float]) -> None:
    a, b = of(NAN, 1, INF, 0), of(1, NAN, -INF, -1)
    np.testing.assert_array_equal(compute(node_type, [a, b]), wanted)
    if node_type is N.MAXIMUM:
        np.testing.assert_array_equal(compute(N.ELTWISE, [a, b], {"mode": EltwiseMode.MAXIMUM}), wanted)


def test_squared_difference() -> None:
    a, b = of(0, 16, 255, dtype="u1"), of(1, 0, 0, dtype="u1")
    np.testing.assert_array_equal(compute(N.SQUARED_DIFFERENCE, [a, b]), [1, 0, 1])
    a, b = of(True, True, False, dtype="?"), of(True, False, False, dtype="?")
    result = compute(N.SQUARED_DIFFERENCE, [a, b])
    assert result.dtype == np.bool_
    np.testing.assert_array_equal(result, [False, True, False])


@SIGNED
def test_real_division_of_integers(dtype: str) -> None:
    a, b = of(7, -7, 5, dtype=dtype), of(2, 2, 0, dtype=dtype)
    np.testing.assert_array_equal(compute(N.REAL_DIV, [a, b]), [3, -3, 0])


def test_scale_covers_dimensions_from_its_axis_on() -> None:
    x = np.arange(12, dtype="f4").reshape(2, 2, 3)
    wanted = np.array([[[10, 11, 12], [26, 28, 30]], [[16, 17, 18], [38, 40, 42]]], "f4")
    np.testing.assert_array_equal(compute(N.SCALE_FUSION, [x, of(1, 2), of(10, 20)], {"axis": 1}), wanted)
    np.testing.assert_array_equal(compute(N.SCALE_FUSION, [x, of(1, 2), of(10, 20)], {"axis": -2}), wanted)


def test_slope_of_a_scalar() -> None:
    """Whose only weight is a vector, but not the result."""
    result = compute(N.PRELU_FUSION, [np.array(-2, "f4"), of(0.25)])
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
