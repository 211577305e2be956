"""Tensors made from a shape or a range, and the type that is taken: by hand."""

import numpy as np
import pytest

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.tensor import TensorSpec

from .single_node import array_of, compute

N = NodeType


def test_a_range_beyond_what_halves_hold() -> None:
    attrs = {"start": 65504, "limit": 65521, "delta": 16}
    np.testing.assert_array_equal(compute(N.RANGE, [np.zeros((), "f2")], attrs), [65504, np.inf])


def test_constant_in_the_declared_type() -> None:
    shape = array_of(2, 1, dtype="i4")
    result = compute(N.CONSTANT_OF_SHAPE, [shape], {"value": (3.0,)}, (TensorSpec(DataType.UINT16, (2, 1)),))
    assert result.dtype == np.uint16
    np.testing.assert_array_equal(result, [[3], [3]])
    assert compute(N.CONSTANT_OF_SHAPE, [shape]).dtype == np.float32


@pytest.mark.parametrize(
    ("number", "value", "wanted"),
    [(1, 0.5, True), (1, 0.0, False), (10, 1e6, np.inf), (11, 0.1, np.float32(0.1)), (9, 2.0**63, 2**63), (43, 7.0, 7)],
)
def test_constant_of_any_type(number: int, value: float, wanted: float) -> None:
    """Numbers of types as the application interface has them, or (43) the device interface."""
    result = compute(N.CONSTANT_OF_SHAPE, [array_of(1, dtype="i8")], {"data_type": number, "value": (value,)})
    np.testing.assert_array_equal(result, np.array([wanted], result.dtype))
