"""Description of a tensor in NNRt's API 9."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from nnrt_client.enums import DataType, Format, TensorType, tensor_type_of
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import MAX_DIM, TensorDesc
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape

MAX_LEGACY_RANK = 200


@dataclass(frozen=True, slots=True)
class LegacyTensor:
    """OH_NN_Tensor: data type, dimensions, quantization and role of a tensor. Without dimensions it is a scalar.

    The functions that take a LegacyTensor check its values.
    """

    data_type: DataType
    dimensions: Sequence[int] = ()
    quant_param: QuantParam | None = None
    type: TensorType = TensorType.TENSOR

    def _checked(self) -> "LegacyTensor":
        """Return a checked copy. Raise InvalidParameter, which names the wrong field."""
        return LegacyTensor(
            TensorDesc(self.data_type).data_type,
            self._checked_dimensions(),
            self._checked_quant_param(),
            tensor_type_of(self.type),
        )

    def _to_desc(self) -> TensorDesc:
        """Return the TensorDesc of a checked tensor, with the format NHWC as in NNRt."""
        desc = TensorDesc(self.data_type, None, Format.NHWC)
        desc._take_shape(tuple(self.dimensions))
        return desc

    def _checked_dimensions(self) -> Shape:
        try:
            dims = tuple(operator.index(dim) for dim in self.dimensions)
        except TypeError as error:
            raise InvalidParameter(f"the dimensions are {self.dimensions!r}; give a sequence of integers") from error
        if len(dims) > MAX_LEGACY_RANK:
            raise InvalidParameter(f"there are {len(dims)} dimensions; give 0 to {MAX_LEGACY_RANK}")
        for axis, dim in enumerate(dims):
            if dim == 0 or not UNKNOWN_DIM <= dim <= MAX_DIM:
                raise InvalidParameter(f"dimension {axis} is {dim}; use -1, or 1..{MAX_DIM}")
        return dims

    def _checked_quant_param(self) -> QuantParam | None:
        quant = self.quant_param
        if quant is None:
            return None
        if not isinstance(quant, QuantParam):
            raise InvalidParameter(f"the quantization parameters are {quant!r}; give a QuantParam, or None")
        if not quant._to_spec():
            raise InvalidParameter("the quantization parameters are empty; give None for a tensor that has none")
        return quant.copy()
