"""Tolerances between a result and the oracle's, in one table for all operators."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]

# Largest relative error by type. FLOAT16 is rounded once on both sides, from sums in another order: one unit in the
# last place. The others are sums of up to a hundred products in another order.
TOLERANCES = {"float16": 2.0**-10, "float32": 4e-6, "float64": 1e-14}


def relative_error(actual: AnyArray, expected: AnyArray) -> float:
    """The largest error, relative to the element or to the average size of all, whichever is larger.

    Infinite where one is not a number or infinite and the other is not the same.
    """
    if actual.size == 0:
        return 0.0
    if actual.dtype.kind != "f":
        return 0.0 if np.array_equal(actual, expected) else np.inf
    wide, wanted = actual.astype(np.float64), expected.astype(np.float64)
    regular = np.isfinite(wanted)
    if not np.array_equal(wide[~regular], wanted[~regular], equal_nan=True) or not np.isfinite(wide[regular]).all():
        return np.inf
    wide, wanted = wide[regular], wanted[regular]
    if wanted.size == 0:
        return 0.0
    size = np.maximum(np.abs(wanted), np.abs(wanted).mean())
    return float(np.max(np.abs(wide - wanted) / np.where(size == 0, 1, size)))


def require_close(actual: AnyArray, expected: AnyArray) -> float:
    """The relative error. Fails if it is above the tolerance of the type, or if types or shapes differ."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    error = relative_error(actual, expected)
    tolerance = TOLERANCES.get(actual.dtype.name, 0.0)
    assert error <= tolerance, f"relative error {error:.2e} is above {tolerance:.2e}\n{actual}\n{expected}"
    return error
