"""Values behind the names of an ONNX graph: tensors of the model, constants, and numbers that are partly known."""

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

# The values that an import in this context has made.
_made: ContextVar[list["Value"] | None] = ContextVar("values of an import", default=None)

_DATA_TYPES = {dtype: api_data_type(data_type) for data_type, dtype in NUMPY_DTYPES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """The quantized tensor that stands for a real one: INT8, UINT8, or INT32 for a bias.

    Several scales run along `axis`.
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
        """Equal integers stand for equal numbers."""
        param = other.param if isinstance(other, Quantized) else other
        return len(self.scales) == 1 and self.param == param


class Value:
    """A value of the graph. Its tensor is put into the model when somebody asks for it."""

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
        # How many values that are not in the model yet this one is made from, one behind the other.
        self.depth = depth
        self.quantized: Quantized | None = None
        # Of integers: the real numbers, equal to them, that they are made of.
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
        """The dimensions, -1 where one is known only in a run."""
        return shape_of(self.dims)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_constant(self) -> bool:
        return self._array is not None

    @property
    def stands_for_real(self) -> bool:
        """Its own tensor is a quantized one, and no constant."""
        return self.quantized is not None and self.quantized.tensor is self and not self.is_constant

    @property
    def is_small(self) -> bool:
        """Shape arithmetic may look at its elements."""
        return -1 not in self.shape and math.prod(self.shape) <= MAX_ELEMENTS

    @property
    def array(self) -> NDArray[Any] | None:
        """The elements of a constant."""
        if callable(self._array):
            self._array = self._array()
        return self._array

    @property
    def elements(self) -> Elements | None:
        """The few integers that it holds, as far as they are known before a run."""
        if self._elements is None and self.is_constant and self.dtype.kind in "ib" and self.is_small:
            assert self.array is not None
            self._elements = elements(self.array.reshape(-1).tolist()).reshape(self.array.shape)
        return self._elements

    @property
    def ints(self) -> list[int] | None:
        """The few integers that it holds, if all are known."""
        known = self.elements
        return known.reshape(-1).tolist() if known is not None and are_known(known) else None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}".replace("-1", "?")


@contextmanager
def values_of_an_import() -> Iterator[None]:
    """Empty the values that are made in the block when it ends, for they know each other, and weights."""
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
    """The data type of the application interface. Refuses one that NNRt doesn't have."""
    known = _DATA_TYPES.get(dtype)
    if known is None:
        refuse(f"{dtype} is no data type of NNRt")
    return known


def value_of(tensor: ModelTensor, dims: Dims) -> Value:
    """A tensor of the model as a value."""
    return Value(tensor._record.spec.numpy_dtype, dims, lambda: tensor)


def constant_value(
    model: Model,
    array: Array | Callable[[], Array],
    kind: tuple[Dtype, tuple[int, ...]] | None = None,
    *,
    format: Format = Format.NONE,
    quant: QuantParam | None = None,
) -> Value:
    """A constant as a value; it is put into the model when its tensor is asked for.

    The elements may come later, if `kind` says their data type and shape.
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


def marked(value: Value) -> Value:
    """A result whose tensor is quantized, as the value of the QuantizeLinear that was taken along."""
    if value.quantized is None:
        (param,) = value.tensor._record.quant
        value.quantized = Quantized(value, (param.scale,), (param.zero_point,))
    return value
