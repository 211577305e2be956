"""Tensors made from a shape or a range: numbers at the edge of their type, and the type that is taken. By hand."""

import numpy as np
import pytest

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.tensor import TensorSpec

from .single_node import compute, of

N = NodeType
LOWEST, HIGHEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("start", "limit", "delta", "dtype", "wanted"),
    [
        (HIGHEST - 2, HIGHEST, 1, "i8", [HIGHEST - 2, HIGHEST - 1]),
        (LOWEST, HIGHEST, HIGHEST, "i8", [LOWEST, -1, HIGHEST - 1]),
        (HIGHEST, LOWEST, LOWEST, "i8", [HIGHEST, -1]),
        (0, HIGHEST, 2**62, "u8", [0, 2**62]),
        (-128, 128, 127, "i1", [-128, -1, 126]),
        (255, -1, -255, "u1", [255, 0]),
        # 2049 is halfway between two FLOAT16; 65520 is beyond all.
        (2048, 2051, 1, "f2", [2048, 2048, 2050]),
        (65504, 65521, 16, "f2", [65504, np.inf]),
        (5, 5, 1, "i4", []),
        (5, 9, -1, "i4", []),
    ],
)
def test_range(start: int, limit: int, delta: int, dtype: str, wanted: list[float]) -> None:
    result = compute(N.RANGE, [np.zeros((), dtype)], {"start": start, "limit": limit, "delta": delta})
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.array(wanted, dtype))


def test_constant_in_the_declared_type() -> None:
    shape = of(2, 1, dtype="i4")
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
    result = compute(N.CONSTANT_OF_SHAPE, [of(1, dtype="i8")], {"data_type": number, "value": (value,)})
    np.testing.assert_array_equal(result, np.array([wanted], result.dtype))
