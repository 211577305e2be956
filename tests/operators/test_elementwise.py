"""Functions of one element, worked out by hand where neither the kit nor an oracle has the case."""

import math

import numpy as np
import pytest

from nnrt_hdi.enums import NodeType

from .single_node import array_of, compute

N = NodeType


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_reciprocal_root_of_minus_zero(dtype: str) -> None:
    assert compute(N.RSQRT, [array_of(-0.0, dtype=dtype)])[0] == -np.inf


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
    np.testing.assert_array_equal(compute(N.EXPFUSION, [array_of(-2, 0, 3)], attrs), wanted)
