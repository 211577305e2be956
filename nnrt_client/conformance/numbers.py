"""Pseudorandom numbers that are the same on every machine and with every version of NumPy."""

import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def f4(*values: Any) -> Any:
    """Return a FLOAT32 array."""
    return np.array(values, "f4")


def i4(*values: Any) -> Any:
    """Return an INT32 array."""
    return np.array(values, "i4")


def i8(*values: Any) -> Any:
    """Return an INT64 array."""
    return np.array(values, "i8")


class Numbers:
    """Stream of pseudorandom numbers of the generator SplitMix64, seeded with the CRC-32 of a text.

    Sebastiano Vigna's reference: https://prng.di.unimi.it/splitmix64.c.
    """

    def __init__(self, seed: str) -> None:
        self._state = np.array([zlib.crc32(seed.encode()) << 32], np.uint64)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` 64-bit numbers."""
        state = self._state + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        self._state = self._state + np.array([count], np.uint64) * _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * _FIRST
        state = (state ^ (state >> np.uint64(27))) * _SECOND
        words: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
        return words

    def reals(self, low: float, high: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return floats in [low, high)."""
        units = (self.words(math.prod(shape)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return np.asarray(low + units * (high - low)).reshape(shape)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return integers in [low, high), where high - low < 2^63."""
        offsets = (self.words(math.prod(shape)) % np.uint64(high - low)).astype(np.int64)
        return np.asarray(low + offsets).reshape(shape)

    def array(self, low: float, high: float, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return elements of a type: floats in [low, high), or booleans.

        Integers lie in [3 low, 3 high), as far as the type allows.
        """
        if dtype.kind == "f":
            return self.reals(low, high, shape).astype(dtype)
        if dtype.kind == "b":
            return self.integers(0, 2, shape).astype(dtype)
        return self.integers(max(int(low * 3), int(np.iinfo(dtype).min)), int(high * 3), shape).astype(dtype)
