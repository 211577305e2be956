"""What stands behind a name of an ONNX graph: a tensor of the model, a constant, or numbers that are partly known."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.model import ModelTensor
from nnrt_client.onnx_import.dims import Dims, Elements, are_known, elements, shape_of
from nnrt_client.quant_param import QuantParam
from nnrt_hdi.tensor import Array

# As many numbers as shape arithmetic looks at.
MAX_ELEMENTS = 64


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
        """Whether the same integers stand for the same numbers."""
        param = other.param if isinstance(other, Quantized) else other
        return len(self.scales) == 1 and self.param == param


class Value:
    """A value of the graph. Its tensor is put into the model when somebody asks for it."""

    __slots__ = ("_array", "_elements", "_make", "_tensor", "depth", "dims", "dtype", "quantized")

    def __init__(
        self,
        dtype: np.dtype[np.generic],
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
        self._make = make
        self._array = array
        self._elements = known
        self._tensor: ModelTensor | None = None

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
    def is_small(self) -> bool:
        """Whether shape arithmetic may look at its elements."""
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
