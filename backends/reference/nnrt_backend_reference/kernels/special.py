"""Functions that numpy does not have."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_backend_reference.kernels.pieces import compute_by_parts

Float64s = NDArray[np.float64]

# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), with the coefficients
# of his CALERF in SPECFUN (netlib): highest power first.
_ERF_ABOVE = (
    1.85777706184603153e-1,
    3.16112374387056560e00,
    1.13864154151050156e02,
    3.77485237685302021e02,
    3.20937758913846947e03,
)
_ERF_BELOW = (
    1.0,
    2.36012909523441209e01,
    2.44024637934444173e02,
    1.28261652607737228e03,
    2.84423683343917062e03,
)
_MIDDLE_ABOVE = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e00,
    6.61191906371416295e01,
    2.98635138197400131e02,
    8.81952221241769090e02,
    1.71204761263407058e03,
    2.05107837782607147e03,
    1.23033935479799725e03,
)
_MIDDLE_BELOW = (
    1.0,
    1.57449261107098347e01,
    1.17693950891312499e02,
    5.37181101862009858e02,
    1.62138957456669019e03,
    3.29079923573345963e03,
    4.36261909014324716e03,
    3.43936767414372164e03,
    1.23033935480374942e03,
)
_TAIL_ABOVE = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_TAIL_BELOW = (
    1.0,
    2.56852019228982242e00,
    1.87295284992346725e00,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)
# The polynomial P in erf(x) = tanh(x P(x^2)), highest power first. The form is that of E. Page, "Approximations to the
# cumulative normal function and its inverse for use on a pocket calculator", Applied Statistics 26 (1977). Of all
# polynomials of this degree P has the least maximum relative error on 0..4, 9.6e-8, by C. L. Lawson's algorithm. In
# FLOAT32 the error is 2.7e-7.
_SINGLE = (
    1.4185221608181804e-07,
    -5.668476019687644e-06,
    8.763733370656428e-05,
    -6.197846873632381e-04,
    -1.9183075424475957e-04,
    1.0276905576406212e-01,
    1.1283792743102459,
)
_ONE_FROM = 4.25  # From here on erf is 1 in FLOAT32.
_SMALL, _LARGE = 0.46875, 4.0
_BEYOND = 28.0  # From here on erfc underflows to 0.
_SQRT_PI = np.sqrt(np.pi)


def erf(x: NDArray[Any]) -> NDArray[Any]:
    """Compute 2 / sqrt(pi) integral of exp(-t^2) from 0 to x, to the precision of x, but at least of FLOAT32."""
    if x.dtype in (np.float16, np.float32):
        return _erf_single(x)
    wide: Float64s = np.asarray(x, np.float64)
    far = np.copysign(1 - _erfc_of_size(wide), wide)
    return np.where(np.abs(wide) <= _SMALL, _erf_near_zero(wide), far)


def erfc(x: NDArray[Any]) -> NDArray[Any]:
    """Compute 1 - erf(x). For FLOAT64 even tiny results have full precision."""
    if x.dtype in (np.float16, np.float32):
        y = _erf_single(x)
        np.subtract(1, y, out=y)
        return y
    wide: Float64s = np.asarray(x, np.float64)
    size = _erfc_of_size(wide)
    far = np.where(wide < 0, 2 - size, size)
    return np.where(np.abs(wide) <= _SMALL, 1 - _erf_near_zero(wide), far)


def _erf_single(x: NDArray[Any]) -> NDArray[Any]:
    def compute(x: NDArray[Any], y: NDArray[Any]) -> None:
        np.clip(x, -_ONE_FROM, _ONE_FROM, out=y)
        y *= _polynomial(_SINGLE, y * y)
        np.tanh(y, out=y)

    return compute_by_parts(compute, x, np.dtype(np.float32))


def _erf_near_zero(x: Float64s) -> Float64s:
    x = np.where(np.abs(x) <= _SMALL, x, 0)
    square = x * x
    result: Float64s = x * _polynomial(_ERF_ABOVE, square) / _polynomial(_ERF_BELOW, square)
    return result


def _erfc_of_size(x: Float64s) -> Float64s:
    """Compute erfc(|x|) where |x| is above _SMALL; NaN stays NaN."""
    y = np.clip(np.abs(x), _SMALL, _BEYOND)
    middle = _polynomial(_MIDDLE_ABOVE, y) / _polynomial(_MIDDLE_BELOW, y)
    inverse = 1 / (y * y)
    tail = inverse * _polynomial(_TAIL_ABOVE, inverse) / _polynomial(_TAIL_BELOW, inverse)
    # exp(-y^2) in two factors, as Cody does: the square of a multiple of 1/16 is exact.
    coarse = np.trunc(y * 16) / 16
    factor = np.exp(-coarse * coarse) * np.exp(-(y - coarse) * (y + coarse))
    result: Float64s = factor * np.where(y <= _LARGE, middle, (1 / _SQRT_PI - tail) / y)
    return result


def _polynomial(coefficients: Sequence[float], x: NDArray[Any]) -> NDArray[Any]:
    result: NDArray[Any] = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        result += coefficient
        result *= x
    result += coefficients[-1]
    return result
