"""Quantization parameters of the application interface: three arrays of equal length."""

import operator
from collections.abc import Callable, Sequence
from typing import TypeVar

from typing_extensions import Self

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import QuantParam as ScaleAndZero

NUM_BITS = 8

ValueT = TypeVar("ValueT", int, float)


class QuantParam:
    """Scales, zero points and bits of a quantized tensor: one of each for the tensor, or one per channel.

    real = (quantized - zero_point) * scale. A setter replaces the whole array and raises InvalidParameter for an empty
    one. The lengths of the three arrays are checked when the object is set on a tensor. A tensor for which all three
    are unset isn't quantized. Without `num_bits` the constructor sets 8 bits for each scale.
    """

    __slots__ = ("_num_bits", "_scales", "_zero_points")
    __hash__ = None  # type: ignore[assignment]  # equal parameters may become unequal

    def __init__(
        self,
        scales: Sequence[float] = (),
        zero_points: Sequence[int] = (),
        num_bits: Sequence[int] | None = None,
    ) -> None:
        bits = (NUM_BITS,) * len(scales) if num_bits is None else num_bits
        self._scales: tuple[float, ...] = ()
        self._zero_points: tuple[int, ...] = ()
        self._num_bits: tuple[int, ...] = ()
        if len(scales):
            self.scales = scales
        if len(zero_points):
            self.zero_points = zero_points
        if len(bits):
            self.num_bits = bits

    @property
    def scales(self) -> Sequence[float]:
        """Scales: one for the tensor, or one per channel; empty if never set."""
        return self._scales

    @scales.setter
    def scales(self, scales: Sequence[float]) -> None:
        self._scales = _values("scales", scales, float)

    @property
    def zero_points(self) -> Sequence[int]:
        """Zero points, as many as scales; empty if never set."""
        return self._zero_points

    @zero_points.setter
    def zero_points(self, zero_points: Sequence[int]) -> None:
        self._zero_points = _values("zero_points", zero_points, operator.index, -(2**31), 2**31 - 1)

    @property
    def num_bits(self) -> Sequence[int]:
        """Bits per value, as many as scales; empty if never set."""
        return self._num_bits

    @num_bits.setter
    def num_bits(self, num_bits: Sequence[int]) -> None:
        self._num_bits = _values("num_bits", num_bits, operator.index, 0, 2**32 - 1)

    def copy(self) -> Self:
        """Return a copy."""
        return type(self)(self._scales, self._zero_points, self._num_bits)

    def _to_spec(self) -> tuple[ScaleAndZero, ...]:
        """Return the parameters for the device interface. Raise InvalidParameter if the arrays' lengths differ."""
        lengths = {
            "scales": len(self._scales),
            "zero_points": len(self._zero_points),
            "num_bits": len(self._num_bits),
        }
        if len(set(lengths.values())) > 1:
            given = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InvalidParameter(f"{given} values; give all three the same number")
        for position, bits in enumerate(self._num_bits):
            if bits != NUM_BITS:
                raise InvalidParameter(f"num_bits[{position}] is {bits}; use {NUM_BITS}")
        return tuple(map(ScaleAndZero, self._scales, self._zero_points, self._num_bits))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantParam):
            return NotImplemented
        return (self._scales, self._zero_points, self._num_bits) == (
            other._scales,
            other._zero_points,
            other._num_bits,
        )

    def __repr__(self) -> str:
        return f"QuantParam(scales={self._scales}, zero_points={self._zero_points}, num_bits={self._num_bits})"


def _values(
    name: str,
    values: Sequence[ValueT],
    convert: Callable[[ValueT], ValueT],
    least: float = float("-inf"),
    most: float = float("inf"),
) -> tuple[ValueT, ...]:
    try:
        converted = tuple(convert(value) for value in values)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"{name} is {values!r}; give a sequence of numbers") from error
    if not converted:
        raise InvalidParameter(f"{name} is empty; give one value, or one per channel")
    for position, value in enumerate(converted):
        if value < least or value > most:
            raise InvalidParameter(f"{name}[{position}] is {value}; use {least}..{most}")
    return converted
