"""Functions of one element where numbers end: zeros, signs, infinities, ties and the edges of integers. By hand."""

import math

import numpy as np
import pytest

from nnrt_hdi.enums import NodeType

from .single_node import AnyArray, compute, of

N = NodeType
NAN, INF = np.nan, np.inf
FLOATS = pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])


def require_same(actual: AnyArray, wanted: AnyArray) -> None:
    """Equal, the signs of zeros included."""
    np.testing.assert_array_equal(actual, wanted)
    regular = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(actual[regular]), np.signbit(wanted[regular]))


@FLOATS
@pytest.mark.parametrize(
    ("node_type", "given", "wanted"),
    [
        (N.SQRT, [4, 0, -0.0, -1, INF, NAN], [2, 0, -0.0, NAN, INF, NAN]),
        (N.RSQRT, [4, 0, -0.0, -1, INF, NAN], [0.5, INF, -INF, NAN, 0, NAN]),
        (N.SQUARE, [-3, -0.0, -INF, NAN], [9, 0, INF, NAN]),
        (N.ERF, [0, -0.0, INF, -INF, NAN], [0, -0.0, 1, -1, NAN]),
        (N.LOG, [1, 0, -0.0, -1, INF, NAN], [0, -INF, -INF, NAN, INF, NAN]),
        (N.SIN, [0, -0.0, INF, NAN], [0, -0.0, NAN, NAN]),
        (N.COS, [0, -0.0, INF, NAN], [1, 1, NAN, NAN]),
        (N.CEIL, [1.5, -1.5, -0.5, 0, INF, NAN], [2, -1, -0.0, 0, INF, NAN]),
        (N.FLOOR, [1.5, -1.5, 0.5, -0.0, -INF, NAN], [1, -2, 0, -0.0, -INF, NAN]),
        (N.ROUND, [0.5, 1.5, 2.5, -0.5, -1.5, 1.25, INF, NAN], [0, 2, 2, -0.0, -2, 1, INF, NAN]),
        (N.NEG, [1, 0, -0.0, -INF, NAN], [-1, -0.0, 0, INF, NAN]),
        (N.ABS, [-1, -0.0, -INF, NAN], [1, 0, INF, NAN]),
        (N.RECIPROCAL, [4, 0, -0.0, -INF, NAN], [0.25, INF, -INF, -0.0, NAN]),
        (N.EXPFUSION, [0, -0.0, INF, -INF, NAN, 1e4], [1, 1, INF, 0, NAN, INF]),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_special_values(node_type: NodeType, given: list[float], wanted: list[float], dtype: str) -> None:
    require_same(compute(node_type, [of(*given, dtype=dtype)]), of(*wanted, dtype=dtype))


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
def test_signed_integers_wrap_around(dtype: str) -> None:
    lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = of(lowest, -1, 0, highest, dtype=dtype)
    np.testing.assert_array_equal(compute(N.NEG, [x]), [lowest, 1, 0, -highest])
    np.testing.assert_array_equal(compute(N.ABS, [x]), [lowest, 1, 0, highest])
    np.testing.assert_array_equal(compute(N.SQUARE, [x]), [0, 1, 0, 1])
    np.testing.assert_array_equal(compute(N.ROUND, [x]), x)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
def test_unsigned_integers_wrap_around(dtype: str) -> None:
    highest = np.iinfo(dtype).max
    x = of(0, 1, highest, dtype=dtype)
    np.testing.assert_array_equal(compute(N.NEG, [x]), of(0, highest, 1, dtype=dtype))
    np.testing.assert_array_equal(compute(N.ABS, [x]), x)
    np.testing.assert_array_equal(compute(N.SQUARE, [x]), [0, 1, 1])


def test_half_is_rounded_once() -> None:
    """In FLOAT16 sqrt(17) is 4.125, and 1 / 4.125 is 0.2424; but 1 / sqrt(17) is 0.24254, which rounds to 0.2426."""
    assert compute(N.RSQRT, [of(17, dtype="f2")])[0] == np.float16(0.24253562503633297) != np.float16(1 / 4.125)


def test_erf_in_double_precision() -> None:
    x = np.linspace(-5, 5, 101)
    np.testing.assert_allclose(compute(N.ERF, [x]), [math.erf(value) for value in x], rtol=5e-16)


@pytest.mark.parametrize(
    ("attrs", "wanted"),
    [
        ({"base": 2.0}, [0.25, 1, 8]),
        ({"base": 2.0, "scale": 2.0}, [0.0625, 1, 64]),
        ({"base": 2.0, "shift": 1.0}, [0.5, 2, 16]),
        ({"base": 1.0}, [1, 1, 1]),
    ],
)
def test_powers_of_a_base(attrs: dict[str, float], wanted: list[float]) -> None:
    np.testing.assert_array_equal(compute(N.EXPFUSION, [of(-2, 0, 3)], attrs), wanted)


@pytest.mark.parametrize(
    ("dtype", "bounds", "wanted"),
    [
        ("f4", {"min": -1.0, "max": 1.0}, [-1, 0.5, 1, NAN]),
        ("f4", {"min": -1.0}, [-1, 0.5, INF, NAN]),
        ("f4", {"max": 1.0}, [-INF, 0.5, 1, NAN]),
        ("f4", {}, [-INF, 0.5, INF, NAN]),
        ("f4", {"min": 2.0, "max": 1.0}, [1, 1, 1, NAN]),
        ("f8", {"min": -INF, "max": INF}, [-INF, 0.5, INF, NAN]),
    ],
)
def test_clip(dtype: str, bounds: dict[str, float], wanted: list[float]) -> None:
    np.testing.assert_array_equal(compute(N.CLIP, [of(-INF, 0.5, INF, NAN, dtype=dtype)], bounds), wanted)


@pytest.mark.parametrize(
    ("dtype", "given", "bounds", "wanted"),
    [
        ("i1", [-128, 0, 127], {"min": -1.5, "max": 1.5}, [-1, 0, 1]),
        ("i1", [-128, 0, 127], {"min": -300.0, "max": 300.0}, [-128, 0, 127]),
        ("u1", [0, 7, 255], {"min": -1.0, "max": 7.0}, [0, 7, 7]),
        ("i4", [-(2**31), 2**31 - 1], {"max": 2.0**31}, [-(2**31), 2**31 - 1]),
        ("i8", [2**62 + 1, 2**63 - 1], {"min": -INF, "max": INF}, [2**62 + 1, 2**63 - 1]),
        ("u8", [2**63 + 1, 2**64 - 1], {"min": 0.0, "max": 2.0**64}, [2**63 + 1, 2**64 - 1]),
        ("i4", [0, 9], {"min": 5.0, "max": 3.0}, [3, 3]),
    ],
)
def test_clip_of_integers(dtype: str, given: list[int], bounds: dict[str, float], wanted: list[int]) -> None:
    np.testing.assert_array_equal(compute(N.CLIP, [of(*given, dtype=dtype)], bounds), of(*wanted, dtype=dtype))
