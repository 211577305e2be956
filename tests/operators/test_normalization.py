"""Normalizations where no oracle has the type or the case: by hand."""

import numpy as np
import pytest

from nnrt_hdi.enums import NodeType

from .single_node import array_of, compute
from .tolerances import require_close

N = NodeType


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_local_response(dtype: str) -> None:
    """Of the channels 1, 2, 3 the windows hold the squares 1 + 4, 1 + 4 + 9 and 4 + 9."""
    result = compute(N.LRN, [array_of(1, 2, 3, dtype=dtype).reshape(1, 1, 1, 3)], {"depth_radius": 1})
    wanted = array_of(1 / np.sqrt(6), 2 / np.sqrt(15), 3 / np.sqrt(14), dtype=dtype)
    require_close(result.reshape(3), wanted)


def test_radius_beyond_all_channels() -> None:
    result = compute(N.LRN, [array_of(1, 2, 3).reshape(1, 1, 1, 3)], {"depth_radius": 2**62, "bias": 2.0, "beta": 1.0})
    np.testing.assert_array_equal(result.reshape(3), array_of(1 / 16, 2 / 16, 3 / 16))


@pytest.mark.parametrize(("dtype", "large"), [("f2", 2e4), ("f4", 1e30), ("f8", 1e150)])
def test_large_values(dtype: str, large: float) -> None:
    """Squares that the type can't hold; 1 and 3 lie 1 from their mean, 3 and 4 are 5 long."""
    ones, zeros = np.ones(2, dtype), np.zeros(2, dtype)
    x = (array_of([1, 3], dtype="f8") * large).astype(dtype)
    np.testing.assert_allclose(compute(N.LAYER_NORM_FUSION, [x, ones, zeros]), [[-1, 1]], rtol=1e-3)
    image = x.reshape(1, 2, 1)
    np.testing.assert_allclose(compute(N.INSTANCE_NORM, [image, ones[:1], zeros[:1]]), [[[-1], [1]]], rtol=1e-3)
    x = (array_of(0.75, 1, dtype="f8") * large).astype(dtype)
    np.testing.assert_allclose(compute(N.L2_NORMALIZE_FUSION, [x]), [0.6, 0.8], rtol=1e-3)
    np.testing.assert_array_equal(compute(N.LOG_SOFTMAX, [x]), [x[0] - x[1], 0])


def test_rows_of_one_value() -> None:
    x, beta = array_of([7, 7, 7]), array_of(1, 2, 3)
    np.testing.assert_array_equal(compute(N.LAYER_NORM_FUSION, [x, array_of(5, 5, 5), beta]), [beta])
    constant = np.full((1, 2, 2, 1), 7, "f4")
    assert np.isnan(compute(N.INSTANCE_NORM, [constant, array_of(1), array_of(0)])).all()
    np.testing.assert_array_equal(
        compute(N.INSTANCE_NORM, [constant, array_of(1), array_of(3)], {"epsilon": 0.5}), constant - 4
    )


def test_epsilon_bounds_the_length_from_below() -> None:
    np.testing.assert_array_equal(
        compute(N.L2_NORMALIZE_FUSION, [array_of(3, 4)], {"epsilon": 100.0}), array_of(0.3, 0.4)
    )
    np.testing.assert_array_equal(compute(N.L2_NORMALIZE_FUSION, [array_of(0, 0)]), [0, 0])
