"""Splitting of work into pieces. A run can be stopped between pieces, and a piece fits into the processor's cache."""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType
from nnrt_hdi.steps import check_stop
from nnrt_hdi.tensor import Shape

# The arithmetic steps of about a tenth of a second, in plain loops...
PIECE_STEPS = 1 << 26
# ...and in matrix products of real numbers of 32 bits.
PIECE_PRODUCTS = 1 << 32
# The elements of an array that stays in the cache, with a few others of its size, between arithmetic steps.
CACHED = 1 << 18
# The elements that numpy's ufuncs copy at a time when they cast. If rows are shorter, ufuncs also copy operands that
# are broadcast along the rows. With numpy's default, 8192, rows of a thousand elements take twice as long.
BUFFER = 1 << 10


def blocks(shape: Shape, most: int) -> Iterator[tuple[slice, ...]]:
    """Yield parts of an array of at most `most` elements (at least one), and call `check_stop` before each."""
    parts: list[list[slice]] = []
    for size in reversed(shape):
        length = max(1, min(size, most))
        parts.insert(0, [slice(start, start + length) for start in range(0, size, length)])
        most //= length
    for part in itertools.product(*parts):
        check_stop()
        yield part


def blocks_before(axis: int, shape: Shape) -> Iterator[tuple[slice, ...]]:
    """Yield parts of an array of this shape that fit into the cache, cut only in dimensions before the axis."""
    return blocks(shape[:axis], CACHED // max(1, math.prod(shape[axis:])))


def compute_by_parts(compute: Callable[[AnyArray, AnyArray], None], x: AnyArray, dtype: AnyDType) -> AnyArray:
    """Return y of this type, where `compute(x, y)` sets the elements of y from those of x."""
    y = np.empty(x.shape, dtype)
    given, results = x.reshape(-1), y.reshape(-1)
    for part in blocks(given.shape, CACHED // 2):  # Elementwise functions use more arrays than others.
        compute(given[part], results[part])
    return y


def elements_of_product(inner: int, dtype: AnyDType) -> int:
    """Return the number of elements of a matrix product that are one piece."""
    # Integers are multiplied in plain loops, whose steps may lie far apart in memory.
    most = PIECE_PRODUCTS * 4 // dtype.itemsize if dtype.kind == "f" else PIECE_STEPS // 4
    return max(most // max(inner, 1), 1)


def product(a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute np.matmul of two arrays of matrices of one type, in pieces where it takes long.

    Pieces are some rows, or some columns of a row, so that each element is computed as a whole.
    """
    rows, (inner, columns) = a.shape[-2], b.shape[-2:]
    y: AnyArray
    if a.size * b.size <= PIECE_STEPS * inner:  # An upper bound of the steps, for batches that aren't repeated.
        y = np.matmul(a, b)
        return y
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (np.broadcast_to(array, (*batch, *array.shape[-2:])) for array in (a, b))
    y = np.empty((*batch, rows, columns), a.dtype)
    for part in blocks(y.shape, elements_of_product(inner, a.dtype)):
        rows_of_a, columns_of_b = part[:-1], (*part[:-2], slice(None), part[-1])
        np.matmul(a[rows_of_a], b[columns_of_b], out=y[part])
    return y
