"""Tensors as plain values: data type, shape, format and quantization."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, Self

from nnrt_hdi.enums import ApiDataType, DataType, Format
from nnrt_hdi.errors import DynamicShape, InvalidParameter

Array = NDArray[np.generic]
Shape = tuple[int, ...]

UNKNOWN_DIM = -1
MAX_RANK = 32
MAX_DIM = 2**31 - 1
MAX_TENSOR_BYTES = 2**63 - 1

NUMPY_DTYPES: dict[DataType, np.dtype[np.generic]] = {
    DataType.BOOL: np.dtype(np.bool_),
    DataType.INT8: np.dtype(np.int8),
    DataType.INT16: np.dtype("<i2"),
    DataType.INT32: np.dtype("<i4"),
    DataType.INT64: np.dtype("<i8"),
    DataType.UINT8: np.dtype(np.uint8),
    DataType.UINT16: np.dtype("<u2"),
    DataType.UINT32: np.dtype("<u4"),
    DataType.UINT64: np.dtype("<u8"),
    DataType.FLOAT16: np.dtype("<f2"),
    DataType.FLOAT32: np.dtype("<f4"),
    DataType.FLOAT64: np.dtype("<f8"),
}
_WIDEST_BYTES = max(dtype.itemsize for dtype in NUMPY_DTYPES.values())
_DATA_TYPES = {dtype: data_type for data_type, dtype in NUMPY_DTYPES.items()}


def flat_bytes(data: Buffer | Array) -> memoryview:
    """Return a view of all bytes of a contiguous buffer, in format B."""
    view = memoryview(data)  # type: ignore[arg-type]  # numpy declares itself a Buffer only for Python 3.12
    return view.cast("B") if view.nbytes else memoryview(b"")


def data_type_of(dtype: np.dtype[np.generic]) -> DataType:
    """Return the DataType of a numpy dtype. Raise InvalidParameter if NNRt has none."""
    try:
        return _DATA_TYPES.get(dtype) or _DATA_TYPES[dtype.newbyteorder("<")]
    except KeyError:
        known = ", ".join(str(known) for known in _DATA_TYPES)
        raise InvalidParameter(f"numpy dtype {dtype} has no NNRt data type; use one of {known}") from None


def data_type_from_number(number: int) -> DataType:
    """Return the DataType for a number in the data of an operand.

    Models contain numbers of the application interface (1..12), devices may also get HDI's (30..44); they don't
    overlap.

    Raises:
        InvalidParameter: The number is no data type.
    """
    if number in ApiDataType.__members__.values() and number != ApiDataType.UNKNOWN:
        return DataType[ApiDataType(number).name]
    if number in NUMPY_DTYPES:
        return DataType(number)
    raise InvalidParameter(f"{number} names no data type; use 1 (BOOL) to 12 (FLOAT64)")


@dataclass(frozen=True, slots=True)
class QuantParam:
    """Affine quantization: real = (q - zero_point) * scale."""

    scale: float
    zero_point: int
    num_bits: int = 8


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Description of a tensor without its elements.

    A dimension of -1 is open: only the run knows it. A dimension of 0 has no elements; `()` is a scalar. In NCHW
    the channels are dimension 1, in every other format the last. `quant` has parameters for the whole tensor or for
    each channel. `name` is for messages, and may be empty or not unique.
    """

    data_type: DataType
    shape: Shape
    format: Format = Format.NONE
    quant: tuple[QuantParam, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if len(self.shape) > MAX_RANK:
            raise InvalidParameter(f"rank is {len(self.shape)}; use at most {MAX_RANK} dimensions")
        # Strides must not overflow either, so a dimension of 0 doesn't excuse the others; nor does a small data type,
        # because a backend may compute in the widest.
        fixed = 1
        for axis, dim in enumerate(self.shape):
            if not UNKNOWN_DIM <= dim <= MAX_DIM:
                raise InvalidParameter(f"dimension {axis} is {dim}; use -1 (unknown) or 0..{MAX_DIM}")
            if dim > 0:
                fixed *= dim
        if fixed * _WIDEST_BYTES > MAX_TENSOR_BYTES and self.item_size:
            raise InvalidParameter(
                f"shape {list(self.shape)} of {self.data_type.name} overflows 2^63 bytes,"
                f" at {_WIDEST_BYTES} for each element"
            )

    def __str__(self) -> str:
        return f"{self.data_type.name}{format_shape(self.shape)}"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def item_size(self) -> int:
        """Bytes per element; 0 if the data type is UNKNOWN."""
        dtype = NUMPY_DTYPES.get(self.data_type)
        return dtype.itemsize if dtype else 0

    @property
    def numpy_dtype(self) -> np.dtype[np.generic]:
        try:
            return NUMPY_DTYPES[self.data_type]
        except KeyError:
            raise InvalidParameter("the data type is UNKNOWN; give one") from None

    @property
    def is_dynamic(self) -> bool:
        return UNKNOWN_DIM in self.shape

    @property
    def element_count(self) -> int:
        """Number of elements. Raises DynamicShape if a dimension is open."""
        if self.is_dynamic:
            raise DynamicShape(f"shape {format_shape(self.shape)} has unknown dimensions, so its size is unknown")
        return math.prod(self.shape)

    @property
    def byte_size(self) -> int:
        """Bytes of all elements. Raises DynamicShape if a dimension is open."""
        return self.element_count * self.item_size

    @property
    def known_bytes(self) -> int:
        """Bytes of all elements; 0 if a dimension is open."""
        return 0 if UNKNOWN_DIM in self.shape else math.prod(self.shape) * self.item_size

    @property
    def is_quantized(self) -> bool:
        """True if the elements stand for real numbers: integers with quantization parameters.

        Parameters of other data types don't count: a BOOL may have some in a quantized model, and a float tensor may
        say how to quantize it.
        """
        if not self.quant:
            return False
        dtype = NUMPY_DTYPES.get(self.data_type)
        return dtype is not None and dtype.kind in "iu"

    @property
    def channel_axis(self) -> int:
        """Dimension of the channels: 1 for NCHW, else the last."""
        return 1 if self.format is Format.NCHW else self.rank - 1

    def with_shape(self, shape: Sequence[int]) -> Self:
        return type(self)(self.data_type, tuple(shape), self.format, self.quant, self.name)

    def with_sound_shape(self, shape: Shape) -> Self:
        """Return a copy with another shape that is known to be valid, without checking it again."""
        copy, put = object.__new__(type(self)), object.__setattr__
        put(copy, "data_type", self.data_type)
        put(copy, "shape", shape)
        put(copy, "format", self.format)
        put(copy, "quant", self.quant)
        put(copy, "name", self.name)
        return copy

    def accepts(self, shape: Sequence[int]) -> bool:
        """Return whether a known shape fits this one."""
        if len(shape) != len(self.shape):
            return False
        for declared, given in zip(self.shape, shape, strict=True):  # A generator expression takes three times as long.
            if given < 0 or declared not in (UNKNOWN_DIM, given):
                return False
        return True


class TensorForm:
    """TensorSpec as runs compare and send it, computed once, because each property of the spec is a call."""

    __slots__ = ("data_type", "dims", "dtype", "format", "latest", "name", "shape", "size_bytes", "spec")

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self.name = spec.name
        # Numbers as in messages; None without an image layout.
        self.data_type = int(spec.data_type)
        self.format = None if spec.format is Format.NONE else int(spec.format)
        self.shape = spec.shape
        self.dims = list(spec.shape)
        # None if the data type is UNKNOWN.
        self.dtype = NUMPY_DTYPES.get(spec.data_type)
        # -1 if a dimension is open.
        self.size_bytes = -1 if UNKNOWN_DIM in spec.shape else spec.known_bytes
        # Form in the latest run, if dimensions are open; None before the first run.
        self.latest: TensorForm | None = None if self.size_bytes < 0 else self

    def of_run(self, shape: Shape) -> "TensorForm | None":
        """Return the tensor's form in a run, with this shape, or None for an impossible shape.

        Most runs have the shapes of the run before them, and get the same object.
        """
        latest = self.latest
        if latest is not None and latest.shape == shape:
            return latest
        if latest is self or not self.spec.accepts(shape):
            return None
        try:
            latest = TensorForm(self.spec.with_shape(shape))
        except InvalidParameter:  # More bytes than an address space has.
            return None
        self.latest = latest
        return latest


class _WritableInterface:
    """Array interface of writable memory, which keeps the memory's owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: Array) -> None:
        address, _ = owner.__array_interface__["data"]
        self.__array_interface__ = {**owner.__array_interface__, "data": (address, False)}
        self.owner = owner


def writable_view(array: Array) -> Array:
    """Return a writable view of an array, for a library that only reads but takes no read-only arrays.

    Nothing is copied. The caller promises that nobody writes through the view: the memory may be mapped read-only, so
    that writing ends the process, or be shared with others.

    Args:
        array: Any array.

    Returns:
        The array itself if it is writable, else a view.
    """
    return array if array.flags.writeable else np.asarray(_WritableInterface(array))


def format_shape(shape: Sequence[int]) -> str:
    """Return a shape as messages show it: [1, ?, 3]."""
    return "[" + ", ".join("?" if dim == UNKNOWN_DIM else str(dim) for dim in shape) + "]"
