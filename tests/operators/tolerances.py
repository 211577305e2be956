"""Comparison of results with an oracle's, by the kit's tolerances."""

from typing import Any

from numpy.typing import NDArray

from nnrt_client.conformance.tolerance import RELATIVE, relative_error
from nnrt_hdi.tensor import data_type_of

AnyArray = NDArray[Any]


def require_close(actual: AnyArray, expected: AnyArray) -> float:
    """Return the relative error.

    Fails if it exceeds the type's tolerance, or if types or shapes differ.
    """
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    error = relative_error(actual, expected)
    tolerance = RELATIVE.get(data_type_of(actual.dtype), 0.0)
    assert error <= tolerance, f"relative error {error:.2e} is above {tolerance:.2e}\n{actual}\n{expected}"
    return error
