"""Element types: ONNX's numbers, ONNX Runtime's names, and numpy's dtypes."""

from typing import Any

import numpy as np

from nnrt_client.onnxruntime.errors import WrongType
from nnrt_hdi.tensor import NUMPY_DTYPES

# Numbers of TensorProto.DataType for the types that a device takes.
_NUMBERS = {
    "float": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "double": 11,
    "uint32": 12,
    "uint64": 13,
}
_NUMPY_NAMES = {"float": "float32", "double": "float64"}
_TEXTS = {np.dtype(_NUMPY_NAMES.get(text, text)): text for text in _NUMBERS}


# Kinds of dtypes that are strings for ONNX Runtime.
_TEXT_KINDS = "OSUV"
_TEXT_NUMBER = 8


def has_type(dtype: np.dtype[Any]) -> bool:
    """Return whether ONNX Runtime has tensors of this element type."""
    return dtype.newbyteorder("=") in _TEXTS or dtype.kind in _TEXT_KINDS


def type_text(dtype: np.dtype[Any]) -> str:
    """Return the type of a tensor in ONNX Runtime's notation, such as "tensor(float)"."""
    native = dtype.newbyteorder("=")
    return f"tensor({_TEXTS.get(native, 'string' if dtype.kind in _TEXT_KINDS else dtype.name)})"


def onnx_number(dtype: np.dtype[Any]) -> int:
    """Return ONNX's number of a dtype."""
    return _TEXT_NUMBER if dtype.kind in _TEXT_KINDS else _NUMBERS[_TEXTS[dtype]]


def element_dtype(element_type: Any) -> np.dtype[Any]:
    """Return the dtype for a numpy type, its name, or ONNX's number. Raise WrongType for anything else."""
    by_number = {number: dtype for dtype, text in _TEXTS.items() for number in (_NUMBERS[text],)}
    try:
        dtype = by_number[element_type] if isinstance(element_type, int) else np.dtype(element_type)
    except (KeyError, TypeError) as error:
        raise WrongType(f"the element type is {element_type!r}; give a numpy type, or ONNX's number of one") from error
    if dtype not in NUMPY_DTYPES.values():
        raise WrongType(f"the element type is {dtype}, which no device takes; give one of {sorted(_NUMBERS)}")
    return dtype
