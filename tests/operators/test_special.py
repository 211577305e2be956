"""Functions numpy lacks, against Python's math library."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from nnrt_backend_reference.kernels.special import erf, erfc
from numpy.typing import NDArray

from nnrt_hdi.enums import ActivationType, DataType, NodeType

from .single_node import graph_of, run, spec
from .tolerances import require_close

POINTS = np.concatenate(
    [np.linspace(-7, 7, 4001), [0.46875, -0.46875, 4.0, 26.0, -30.0, 30.0, 1e-300, np.inf, -np.inf]]
)


def test_erf() -> None:
    np.testing.assert_allclose(erf(POINTS), [math.erf(x) for x in POINTS], rtol=5e-16)


def test_erf_in_single_precision() -> None:
    """Within 2.7e-7 everywhere, and never beyond 1."""
    x = np.concatenate([np.linspace(-7, 7, 100_001), np.geomspace(1e-30, 1, 1001), [np.inf, -np.inf]]).astype(
        np.float32
    )
    np.testing.assert_allclose(erf(x), [math.erf(value) for value in x], rtol=2.7e-7)
    assert np.abs(erf(x)).max() == 1


def test_erfc_is_exact_in_its_tail() -> None:
    np.testing.assert_allclose(erfc(POINTS), [math.erfc(x) for x in POINTS], rtol=1e-15)


@pytest.mark.parametrize("function", [erf, erfc])
def test_not_a_number_stays_one(function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
    assert np.isnan(function(np.array([np.nan]))).all()


def test_gelu_in_double_precision() -> None:
    x = POINTS[np.isfinite(POINTS)]
    graph = graph_of(
        NodeType.ACTIVATION, [(spec(x.shape, DataType.FLOAT64), None)], {"activation_type": ActivationType.GELU}
    )
    require_close(run(graph, [x]), np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x]))
