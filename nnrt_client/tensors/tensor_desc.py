"""Description of a tensor in the application interface: data type, shape, format and name."""

import math
import operator
from collections.abc import Sequence

from typing_extensions import Self

from nnrt_client.enums import DataType, Format
from nnrt_hdi.enums import DataType as HdiDataType
from nnrt_hdi.enums import Format as HdiFormat
from nnrt_hdi.errors import DynamicShape, InvalidParameter
from nnrt_hdi.tensor import NUMPY_DTYPES, Shape, TensorSpec, format_shape
from nnrt_hdi.tensor import QuantParam as ScaleAndZero

MAX_DESC_RANK = 10
# Shapes are int32 and sizes size_t in the application interface.
MIN_DIM, MAX_DIM = -(2**31), 2**31 - 1
MAX_SIZE = 2**64 - 1

_HDI_FORMATS = {Format.NCHW: HdiFormat.NCHW, Format.NHWC: HdiFormat.NHWC}
_FORMATS = {HdiFormat.NONE: Format.NONE, **{hdi: api for api, hdi in _HDI_FORMATS.items()}}
_HDI_DATA_TYPES = {data_type: HdiDataType[data_type.name] for data_type in DataType}
_DATA_TYPES = {hdi: api for api, hdi in _HDI_DATA_TYPES.items()}


def hdi_data_type(data_type: DataType) -> HdiDataType:
    """Return the data type of the device interface."""
    return _HDI_DATA_TYPES[data_type]


def api_data_type(data_type: HdiDataType) -> DataType:
    """Return the data type of the application interface."""
    return _DATA_TYPES[data_type]


class TensorDesc:
    """Description of a tensor: data type, shape, format and name.

    Objects that take a desc copy it, so the application may change it at any time. A shape has 1 to 10 dimensions; for
    a scalar, leave it unset (None). -1 stands for an open dimension, which each run sets. A model refuses 0 and values
    below -1. Each setter raises InvalidParameter for a wrong value, and then keeps the old one.
    """

    __slots__ = ("_data_type", "_format", "_name", "_shape")
    __hash__ = None  # type: ignore[assignment]  # equal descs may become unequal

    def __init__(
        self,
        data_type: DataType = DataType.UNKNOWN,
        shape: Sequence[int] | None = None,
        format: Format = Format.NONE,
        name: str = "",
    ) -> None:
        self._shape: Shape | None = None
        self.data_type = data_type
        if shape is not None:
            self.shape = shape
        self.format = format
        self.name = name

    @property
    def name(self) -> str:
        """Name of the tensor; empty if never set."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if not isinstance(name, str):
            raise InvalidParameter(f"the name is {name!r}; give a text")
        self._name = name

    @property
    def data_type(self) -> DataType:
        """Data type of the elements; UNKNOWN if never set."""
        return self._data_type

    @data_type.setter
    def data_type(self, data_type: DataType) -> None:
        try:
            self._data_type = DataType(data_type)
        except ValueError as error:
            raise InvalidParameter(f"the data type is {data_type!r}; use 0 (UNKNOWN) to 12 (FLOAT64)") from error

    @property
    def shape(self) -> Shape | None:
        """Shape, with -1 for open dimensions; None if never set, which means a scalar."""
        return self._shape

    @shape.setter
    def shape(self, shape: Sequence[int]) -> None:
        try:
            dims = tuple(operator.index(dim) for dim in shape)
        except TypeError as error:
            raise InvalidParameter(f"the shape is {shape!r}; give a sequence of integers") from error
        if not 1 <= len(dims) <= MAX_DESC_RANK:
            raise InvalidParameter(
                f"the shape has {len(dims)} dimensions; give 1 to {MAX_DESC_RANK} (a scalar's is never set)"
            )
        for axis, dim in enumerate(dims):
            if not MIN_DIM <= dim <= MAX_DIM:
                raise InvalidParameter(f"dimension {axis} is {dim}; use {MIN_DIM}..{MAX_DIM}")
        self._shape = dims

    @property
    def format(self) -> Format:
        """Order of the dimensions; NONE if never set."""
        return self._format

    @format.setter  # noqa: A003  (the property above)
    def format(self, format: Format) -> None:
        try:
            self._format = Format(format)
        except ValueError as error:
            raise InvalidParameter(f"the format is {format!r}; use 0 (NONE) to 3 (ND)") from error

    @property
    def item_size(self) -> int:
        """Bytes per element; 0 if the data type is UNKNOWN."""
        dtype = NUMPY_DTYPES.get(hdi_data_type(self._data_type))
        return dtype.itemsize if dtype else 0

    def element_count(self) -> int:
        """Return the number of elements.

        Returns:
            The product of the dimensions.

        Raises:
            InvalidParameter: The shape isn't set, or the number is 2^64 or more.
            DynamicShape: A dimension is below 1.
        """
        shape = self._set_shape()
        self._require_fixed(shape)
        return self._sized(math.prod(shape), "elements")

    def byte_size(self) -> int:
        """Return the size of the elements in bytes.

        Returns:
            The number of elements times `item_size`.

        Raises:
            InvalidParameter: Shape or data type isn't set, or the size is 2^64 or more.
            DynamicShape: A dimension is below 1.
        """
        shape = self._set_shape()
        self._require_fixed(shape)
        if self._data_type is DataType.UNKNOWN:
            raise InvalidParameter("the data type is UNKNOWN, so the size is unknown; set one")
        return self._sized(math.prod(shape) * self.item_size, "bytes")

    def copy(self) -> Self:
        """Return a copy."""
        copy = type(self).__new__(type(self))
        copy._data_type, copy._shape, copy._format, copy._name = self._values()
        return copy

    @classmethod
    def _of_values(cls, data_type: DataType, shape: Shape | None, format: Format) -> Self:
        """Return a desc of these values, without a name."""
        desc = cls.__new__(cls)
        desc._data_type, desc._shape, desc._format, desc._name = data_type, shape, format, ""
        return desc

    def _take_shape(self, shape: Shape) -> None:
        """Set the shape without the setter's checks. () stands for a scalar."""
        self._shape = shape or None

    def _to_spec(self, quant: tuple[ScaleAndZero, ...] = (), *, name: str | None = None) -> TensorSpec:
        """Return the spec for the device interface, where the format ND becomes NONE.

        Raises:
            InvalidParameter: A dimension is below -1.
        """
        return TensorSpec(
            hdi_data_type(self._data_type),
            self._shape or (),
            _HDI_FORMATS.get(self._format, HdiFormat.NONE),
            quant,
            self._name if name is None else name,
        )

    @classmethod
    def _from_spec(cls, spec: TensorSpec) -> Self:
        """Return the desc of a tensor of the device interface."""
        desc = cls.__new__(cls)
        desc._data_type, desc._format, desc._name = _DATA_TYPES[spec.data_type], _FORMATS[spec.format], spec.name
        desc._take_shape(spec.shape)
        return desc

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorDesc):
            return NotImplemented
        return self._values() == other._values()

    def __repr__(self) -> str:
        return f"TensorDesc({self._data_type.name}, {self._shape}, {self._format.name}, {self._name!r})"

    def __str__(self) -> str:
        return f"{self._data_type.name}{format_shape(self._shape or ())}"

    def _values(self) -> tuple[DataType, Shape | None, Format, str]:
        return self._data_type, self._shape, self._format, self._name

    def _set_shape(self) -> Shape:
        if self._shape is None:
            raise InvalidParameter("the shape was never set, so the size is unknown; set one")
        return self._shape

    def _require_fixed(self, shape: Shape) -> None:
        if any(dim <= 0 for dim in shape):
            raise DynamicShape(f"shape {list(shape)} has dimensions that are not known, so its size is unknown")

    def _sized(self, size: int, what: str) -> int:
        if size > MAX_SIZE:
            raise InvalidParameter(f"shape {list(self._shape or ())} has {size} {what}; use at most {MAX_SIZE}")
        return size
