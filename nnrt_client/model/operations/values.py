"""Conversion of Python values to arrays of tensor elements."""

import numpy as np

from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.mapped_files import MappedFile
from nnrt_hdi.tensor import NUMPY_DTYPES, Array, TensorSpec, data_type_of

INT32_RANGE = range(-(2**31), 2**31)


def convert_exactly(value: object, data_type: DataType) -> Array:
    """Return numbers as an array of this data type, rounded if it is a type of floats.

    Raises InvalidParameter if another type can't represent a number.
    """
    given = _number_array(value)
    target = NUMPY_DTYPES[data_type]
    if given.dtype == target:
        return given
    with np.errstate(all="ignore"):
        result = given.astype(target)
    if target.kind != "f" and not np.array_equal(result, given):
        raise InvalidParameter(f"{value!r} can't be held by {data_type.name}; give values it can hold")
    return result


def read_operand(value: object, like: DataType | None, *, is_index: bool) -> Array:
    """Return an operand that is given by its elements as an array.

    Arrays keep their data type. Other numbers get the data type `like`. If the operand `is_index` (an axis, a shape),
    or if `like` is None, they become BOOL, INT32, INT64 (beyond the range of INT32) or FLOAT32, as they are.
    """
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value, NUMPY_DTYPES[data_type_of(value.dtype)])
    given = _number_array(value)
    if is_index or like is None:
        like = _plain_data_type(given)
    return convert_exactly(value, like)


def _plain_data_type(given: Array) -> DataType:
    if given.dtype.kind == "b":
        return DataType.BOOL
    if given.dtype.kind == "f":
        return DataType.FLOAT32
    fits = all(int(value) in INT32_RANGE for value in given.reshape(-1))
    return DataType.INT32 if fits else DataType.INT64


def _number_array(value: object) -> Array:
    try:
        given = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise InvalidParameter(f"{value!r} is no array; give rows of equal length") from error
    if given.dtype.kind not in "biuf":
        raise InvalidParameter(f"{value!r} is no number; give numbers, or lists or arrays of them")
    return given


def view_data(data: object) -> Array:
    """Return an array as it is, or the bytes of a contiguous buffer as an array.

    Raises InvalidParameter for other objects, and for empty data.
    """
    if isinstance(data, np.ndarray | np.generic):
        array = np.asarray(data)
    else:
        try:
            array = np.frombuffer(data, np.uint8)  # type: ignore[call-overload]
        except (TypeError, ValueError, BufferError) as error:
            raise InvalidParameter(f"the data are {type(data).__name__}; give an array or contiguous bytes") from error
    if not array.size:
        raise InvalidParameter("the data are empty; give the elements of the tensor")
    return array


def convert_elements(data: object, array: Array, spec: TensorSpec) -> Array:
    """Return the elements of a tensor, made from `array`, which is `view_data(data)`.

    They are a read-only copy, or the memory of a `bytes` object or of a file that the importer has mapped. Raises
    InvalidParameter if the length, or an array's data type, is not that of the tensor.
    """
    if array.nbytes != spec.byte_size:
        raise InvalidParameter(f"the data have {array.nbytes} bytes; give the {spec.byte_size} of {spec}")
    if isinstance(data, np.ndarray | np.generic):
        if data_type_of(array.dtype) != spec.data_type:
            raise InvalidParameter(
                f"the data are an array of {array.dtype}; give one of {spec.data_type.name}, or bytes"
            )
    elif spec.data_type is DataType.BOOL:
        array = array != 0
    else:
        array = array.view(spec.numpy_dtype)
    if _is_immutable(array) and array.dtype == spec.numpy_dtype and array.flags.c_contiguous:
        return array.reshape(spec.shape)
    copy = np.array(array, spec.numpy_dtype, order="C").reshape(spec.shape)
    copy.flags.writeable = False
    return copy


def _is_immutable(array: Array) -> bool:
    """Return whether the elements count as unchangeable, because a `bytes` object or a mapped file has them."""
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, bytes | MappedFile)


def is_empty(value: object) -> bool:
    """Return whether a value is None or a sequence without elements."""
    if isinstance(value, np.ndarray):
        return value.size == 0
    return value is None or (isinstance(value, list | tuple) and not value)


def is_logical(value: object) -> bool:
    """Return whether all numbers are truth values; raise InvalidParameter for anything but numbers."""
    return _number_array(value).dtype.kind == "b"
