"""C's structs as Python classes with C's field names. A sequence replaces a pointer and its count."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnrt_client.enums import DataType, TensorType
from nnrt_client.tensors.legacy_tensor import LegacyTensor
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_hdi.errors import InvalidParameter

__all__ = [
    "OH_NN_QuantParam",
    "OH_NN_Tensor",
    "OH_NN_UInt32Array",
]


@dataclass(slots=True)
class OH_NN_UInt32Array:  # noqa: N801  (C's names, here and below)
    """Array of indices. Functions that take it also take any sequence of integers."""

    data: Sequence[int] | None = None


@dataclass(slots=True)
class OH_NN_QuantParam:  # noqa: N801
    """Quantization parameters of an OH_NN_Tensor. The arrays have equal lengths: 1, or the number of channels."""

    numBits: Sequence[int] | None = None  # noqa: N815
    scale: Sequence[float] | None = None
    zeroPoint: Sequence[int] | None = None  # noqa: N815


@dataclass(slots=True)
class OH_NN_Tensor:  # noqa: N801
    """Description of a tensor in API 9. Without dimensions it describes a scalar."""

    dataType: int = DataType.UNKNOWN  # noqa: N815
    dimensions: Sequence[int] | None = None
    quantParam: OH_NN_QuantParam | None = None  # noqa: N815
    type: int = TensorType.TENSOR


def indices_of(array: OH_NN_UInt32Array | Sequence[int] | None) -> list[int]:
    """Return the indices as a list. Raise InvalidParameter for a null pointer."""
    if isinstance(array, OH_NN_UInt32Array):
        array = () if array.data is None else array.data
    try:
        return list(array)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidParameter(f"the indices are {array!r}; give an OH_NN_UInt32Array or a sequence") from error


def legacy_tensor(tensor: OH_NN_Tensor | None) -> LegacyTensor:
    """Convert a struct to a LegacyTensor, whose values are checked later. Raise InvalidParameter for a null pointer."""
    if not isinstance(tensor, OH_NN_Tensor):
        raise InvalidParameter(f"the tensor is {tensor!r}; give an OH_NN_Tensor")
    dimensions = () if tensor.dimensions is None else tensor.dimensions
    return LegacyTensor(tensor.dataType, dimensions, _quant_param(tensor.quantParam), tensor.type)  # type: ignore[arg-type]


def _quant_param(given: OH_NN_QuantParam | None) -> QuantParam | None:
    if given is None:
        return None
    if not isinstance(given, OH_NN_QuantParam):
        raise InvalidParameter(f"the quantization parameters are {given!r}; give an OH_NN_QuantParam")
    if given.scale is None or given.zeroPoint is None or given.numBits is None:
        raise InvalidParameter(f"{given!r} lacks an array; give all three, or no OH_NN_QuantParam")
    return QuantParam(given.scale, given.zeroPoint, given.numBits)
