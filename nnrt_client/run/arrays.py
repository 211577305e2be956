"""Conversion of the inputs that applications give to arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.run.signature import no_array
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.tensor import NUMPY_DTYPES

# Inputs that need no conversion. A check for RunTensor takes longer than one for its classes.
_AS_THEY_ARE = (np.ndarray, np.generic, type(None), RunTensor)


class NotWhole(ValueError):
    """Error for numbers with a fraction where the model takes integers."""


def convert_input(desc: TensorDesc, given: Any) -> Any:
    """Return an input of a run as a tensor or an array.

    Tensors and arrays stay as they are. An object with an array interface becomes an array over its memory, and numbers
    become an array of the model's data type. Raises InvalidParameter for numbers that this type can't represent, and
    for objects that can't be converted.
    """
    kind = type(given)
    if kind is np.ndarray or kind is Tensor or kind is ResidentTensor or isinstance(given, _AS_THEY_ARE):
        return given
    place = f"input {desc.name!r}"
    try:
        viewed = view_array(given)
    except Exception as error:  # The input's own code may raise anything.
        if raised_by_handler(error):
            raise
        raise no_array(given, error, place) from error
    dtype = NUMPY_DTYPES.get(desc._to_spec().data_type)
    if viewed is not None or dtype is None:
        return given if viewed is None else viewed
    try:
        return convert_numbers(given, np.dtype(dtype))
    except Exception as error:
        if raised_by_handler(error):
            raise
        if isinstance(error, ValueError | OverflowError):
            raise InvalidParameter(str(error), place=place) from error
        raise no_array(given, error, place) from error


def view_array(given: Any) -> NDArray[Any] | None:
    """Return an array over the memory of an object, by `__array__`, DLPack or the buffer protocol; else None.

    Raises the errors that the object's own code raises.
    """
    viewed: NDArray[Any]
    if hasattr(given, "__array__"):
        viewed = np.asarray(given)
    elif hasattr(given, "__dlpack__"):
        viewed = np.from_dlpack(given)
    else:
        try:
            viewed = np.asarray(memoryview(given))
        except TypeError:
            return None
    return viewed


def convert_numbers(given: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers, or lists of them, as an array.

    Raises NotWhole, OverflowError or ValueError for numbers that the data type can't represent, and the errors that
    the numbers' own classes raise.
    """
    plain = np.asarray(given)
    kind = plain.dtype.kind if dtype.kind in "iu" and plain.size else ""
    if kind and kind in "iuf":  # numpy cuts off fractions, and numpy 1 wraps large numbers round.
        bounds = np.iinfo(dtype.name)
        if not (bounds.min <= plain.min() and plain.max() <= bounds.max):
            raise OverflowError(f"numbers from {plain.min()} to {plain.max()} are out of bounds for {dtype}")
        if not np.array_equal(plain, np.trunc(plain)):
            raise _not_whole(dtype)
    array: NDArray[Any] = np.asarray(given, dtype)
    if kind == "O" and not np.array_equal(plain, array):
        raise _not_whole(dtype)
    return array


def _not_whole(dtype: np.dtype[Any]) -> NotWhole:
    return NotWhole(f"there are numbers that are not whole; the model takes {dtype}")
