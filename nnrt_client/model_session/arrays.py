"""Makes arrays of the inputs that applications give."""

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

# Of inputs. Whether something is a RunTensor takes longer to tell than whether it is of one of its classes.
_AS_THEY_ARE = (np.ndarray, np.generic, type(None), RunTensor)


class NotWhole(ValueError):
    """Numbers for integers have something behind the point."""


def input_array(desc: TensorDesc, given: Any) -> Any:
    """An input of a run: a tensor or an array as it is, the array of what has one, or numbers as the model takes them.

    Raises InvalidParameter for numbers that the model's data type doesn't hold, and where the array can't be had.
    """
    kind = type(given)
    if kind is np.ndarray or kind is Tensor or kind is ResidentTensor or isinstance(given, _AS_THEY_ARE):
        return given
    place = f"input {desc.name!r}"
    try:
        viewed = viewed_array(given)
    except Exception as error:  # What is given has code of its own.
        if raised_by_handler(error):
            raise
        raise no_array(given, error, place) from error
    dtype = NUMPY_DTYPES.get(desc._to_spec().data_type)
    if viewed is not None or dtype is None:
        return given if viewed is None else viewed
    try:
        return converted(given, np.dtype(dtype))
    except Exception as error:
        if raised_by_handler(error):
            raise
        if isinstance(error, ValueError | OverflowError):
            raise InvalidParameter(str(error), place=place) from error
        raise no_array(given, error, place) from error


def viewed_array(given: Any) -> NDArray[Any] | None:
    """An array over the memory of what has one: by `__array__`, DLPack or the buffer protocol; None for all else.

    Raises what it raises itself where it can't be had.
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


def converted(given: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Numbers, and lists of them, as an array.

    Raises NotWhole, OverflowError and ValueError for those that the data type doesn't hold, and what they raise.
    """
    plain = np.asarray(given)
    kind = plain.dtype.kind if dtype.kind in "iu" and plain.size else ""
    if kind and kind in "iuf":  # numpy cuts off what is behind the point, and numpy 1 wraps large numbers round.
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
