"""Values of an ONNX graph: tensors of the model, constants, and integers that are partly known before a run."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.enums import DataType, Format
from nnrt_client.model.model import Model, ModelTensor
from nnrt_client.onnx_import.shapes.dims import MAX_ELEMENTS, Dims, Elements, are_known, elements, shape_of
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import api_data_type
from nnrt_hdi.tensor import NUMPY_DTYPES, Array

Dtype = np.dtype[np.generic]

# Values that the import in this context has made.
_made: ContextVar[list["Value"] | None] = ContextVar("values of an import", default=None)

_DATA_TYPES = {dtype: api_data_type(data_type) for data_type, dtype in NUMPY_DTYPES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """Quantized tensor that represents real numbers: INT8, UINT8, or INT32 for a bias.

    If there are several scales, they belong to the entries of dimension `axis`.
    """

    tensor: "Value"
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0

    @property
    def is_of_8_bits(self) -> bool:
        return self.tensor.dtype in (np.int8, np.uint8)

    @property
    def param(self) -> QuantParam:
        return QuantParam(self.scales, self.zero_points)

    def is_like(self, other: "Quantized | QuantParam") -> bool:
        """Return whether both have the same scale and zero point, and only one of each."""
        param = other.param if isinstance(other, Quantized) else other
        return len(self.scales) == 1 and self.param == param


class Value:
    """Value of the graph. Its tensor is added to the model on the first access of `tensor`."""

    __slots__ = ("_array", "_elements", "_make", "_tensor", "depth", "dims", "dtype", "quantized", "real")

    def __init__(
        self,
        dtype: Dtype,
        dims: Dims,
        make: Callable[[], ModelTensor],
        *,
        array: Array | Callable[[], Array] | None = None,
        known: Elements | None = None,
        depth: int = 0,
    ) -> None:
        self.dtype = dtype
        self.dims = dims
        # Length of the longest chain of values that this one depends on and that are not in the model yet.
        self.depth = depth
        self.quantized: Quantized | None = None
        # Real numbers that equal these integers, if the integers were made from them.
        self.real: Value | None = None
        self._make = make
        self._array = array
        self._elements = known
        self._tensor: ModelTensor | None = None
        if (made := _made.get()) is not None:
            made.append(self)

    @property
    def tensor(self) -> ModelTensor:
        if self._tensor is None:
            self._tensor = self._make()
            self.depth = 0
        return self._tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions, -1 for those known only in a run."""
        return shape_of(self.dims)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_constant(self) -> bool:
        return self._array is not None

    @property
    def is_quantized(self) -> bool:
        """True if the value is not constant and its own tensor is quantized."""
        return self.quantized is not None and self.quantized.tensor is self and not self.is_constant

    @property
    def is_small(self) -> bool:
        """True if the value has few enough elements for shape arithmetic."""
        return -1 not in self.shape and math.prod(self.shape) <= MAX_ELEMENTS

    @property
    def array(self) -> NDArray[Any] | None:
        """Elements of a constant, else None."""
        if callable(self._array):
            self._array = self._array()
        return self._array

    @property
    def elements(self) -> Elements | None:
        """Elements of a small integer value as far as they are known before a run, or None."""
        if self._elements is None and self.is_constant and self.dtype.kind in "ib" and self.is_small:
            assert self.array is not None
            self._elements = elements(self.array.reshape(-1).tolist()).reshape(self.array.shape)
        return self._elements

    @property
    def ints(self) -> list[int] | None:
        """Elements of a small integer value, flat, or None unless all are known before a run."""
        known = self.elements
        return known.reshape(-1).tolist() if known is not None and are_known(known) else None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}".replace("-1", "?")


@contextmanager
def clear_values_at_end() -> Iterator[None]:
    """Clear the values made in the block when it ends, because they refer to each other and to weights."""
    made: list[Value] = []
    before = _made.set(made)
    try:
        yield
    finally:
        _made.reset(before)
        for value in made:
            del value._make, value._array, value._tensor
            value.quantized = value.real = None


def data_type_of(dtype: Dtype) -> DataType:
    """Return NNRt's data type of a dtype. Raise Unsupported if there is none."""
    known = _DATA_TYPES.get(dtype)
    if known is None:
        refuse(f"{dtype} is no data type of NNRt")
    return known


def value_of(tensor: ModelTensor, dims: Dims) -> Value:
    """Return a tensor of the model as a value."""
    return Value(tensor._record.spec.numpy_dtype, dims, lambda: tensor)


def constant_value(
    model: Model,
    array: Array | Callable[[], Array],
    kind: tuple[Dtype, tuple[int, ...]] | None = None,
    *,
    format: Format = Format.NONE,
    quant: QuantParam | None = None,
) -> Value:
    """Return a constant as a value.

    Args:
        model: model that gets the constant on the first access of its tensor.
        array: elements, or a function that returns them on first use.
        kind: data type and shape, required if `array` is a function.
        format: order of the dimensions.
        quant: quantization parameters.
    """
    if not callable(array):
        kind = array.dtype, array.shape
    assert kind is not None

    def make() -> ModelTensor:
        assert value.array is not None
        if not value.array.size:
            refuse(f"a constant {value} has no elements")
        return model.constant(value.array, format=format, quant=quant)

    value = Value(*kind, make, array=array)
    return value


def mark_quantized(value: Value) -> Value:
    """Set `quantized` of a value whose own tensor is quantized, and return the value."""
    if value.quantized is None:
        (param,) = value.tensor._record.quant
        value.quantized = Quantized(value, (param.scale,), (param.zero_point,))
    return value
