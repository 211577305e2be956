"""Checks of values that replace inputs of a model as constants."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, format_shape

# Values by name of the input that they replace.
Constants = Mapping[str, ArrayLike]


def frozen_array(name: str, given: ArrayLike, dtype: np.dtype[np.generic], shape: Sequence[int] | None) -> Array:
    """Return the constant value of an input as an array of the input's data type.

    Args:
        name: The input's name, for errors.
        given: The value; a number also fits an input of one element.
        dtype: The input's data type.
        shape: The input's shape, with -1 for any dimension; None for any shape.

    Returns:
        The array.

    Raises:
        InvalidParameter: The value doesn't fit.
    """
    place = f"constant for input {name!r}"
    try:
        plain = np.asarray(given)
        with np.errstate(all="ignore"):
            array = plain.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidParameter(f"{given!r:.80} is no tensor of {dtype}", place=place) from error
    is_typed = isinstance(given, np.ndarray | np.generic)
    # Plain Python numbers fit any type that can represent them; real types round them.
    holds = plain.dtype.kind in "biuf" and (dtype.kind == "f" or np.array_equal(array, plain))
    if (is_typed and plain.dtype != dtype) or not holds:
        raise InvalidParameter(f"{given!r:.80} is {plain.dtype}; give {dtype}", place=place)
    if shape is None:
        return array
    if array.ndim == 0 and all(dim in (1, UNKNOWN_DIM) for dim in shape):
        array = array.reshape((1,) * len(shape))
    fits = len(shape) == array.ndim and all(
        dim in (UNKNOWN_DIM, size) for dim, size in zip(shape, array.shape, strict=True)
    )
    if not fits or not array.size:
        raise InvalidParameter(f"it has the shape {format_shape(array.shape)}; give {format_shape(shape)}", place=place)
    return array


def require_known(given: Iterable[str], names: Sequence[str]) -> None:
    """Raise InvalidParameter for names that aren't inputs."""
    unknown = sorted(set(given) - set(names))
    if unknown:
        known = ", ".join(map(repr, names)) or "none"
        raise InvalidParameter(f"constants names {unknown}; the inputs of the model are {known}")
