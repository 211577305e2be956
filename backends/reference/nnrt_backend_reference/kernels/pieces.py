"""Work cut into pieces, between which a run can be stopped, and whose elements stay in the processor's cache."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType
from nnrt_hdi.tensor import Shape

# Steps of arithmetic that a processor makes in about a tenth of a second, in plain loops...
PIECE_STEPS = 1 << 26
# ...and in matrix products of real numbers.
PIECE_PRODUCTS = 1 << 32
# Elements of an array that stays in the cache, with a few of its size, from one step of arithmetic to the next.
CACHED = 1 << 18
# Elements that numpy's ufuncs copy at a time where they cast. Where rows are shorter than this they also copy what is
# broadcast along them: with numpy's own 8192 that doubles what rows of a thousand take.
BUFFER = 1 << 10


class _Thread(threading.local):
    check: Callable[[], None] | None = None


_thread = _Thread()


@contextmanager
def stopped_by(check: Callable[[], None]) -> Iterator[None]:
    """Have `ask` call this, in this thread, while the block lasts."""
    _thread.check = check
    try:
        yield
    finally:
        _thread.check = None


def ask() -> None:
    """Raise what ends the run, if it is to end."""
    if _thread.check is not None:
        _thread.check()


def blocks(shape: Shape, most: int) -> Iterator[tuple[slice, ...]]:
    """Cut an array of this shape into parts of at most so many elements (but at least one), and ask before each."""
    parts: list[list[slice]] = []
    for size in reversed(shape):
        length = max(1, min(size, most))
        parts.insert(0, [slice(start, start + length) for start in range(0, size, length)])
        most //= length
    for part in itertools.product(*parts):
        ask()
        yield part


def blocks_before(axis: int, shape: Shape) -> Iterator[tuple[slice, ...]]:
    """Cut an array of this shape into parts that stay in the cache, but only in its dimensions before the axis."""
    return blocks(shape[:axis], CACHED // max(1, math.prod(shape[axis:])))


def part_by_part(compute: Callable[[AnyArray, AnyArray], None], x: AnyArray, dtype: AnyDType) -> AnyArray:
    """y of this type, of which `compute(x, y)` sets each element from that of x."""
    y = np.empty(x.shape, dtype)
    given, results = x.reshape(-1), y.reshape(-1)
    for part in blocks(given.shape, CACHED // 2):  # Functions of elements have more arrays of this size than others.
        compute(given[part], results[part])
    return y


def rows_of_product(inner: int, columns: int, dtype: AnyDType) -> int:
    """The rows of a matrix product that are one piece."""
    most = PIECE_PRODUCTS if dtype.kind == "f" else PIECE_STEPS
    return max(most // (inner * columns or 1), 1)


def product(a: AnyArray, b: AnyArray) -> AnyArray:
    """np.matmul of two arrays of matrices, of one type; some rows after others where it takes long."""
    rows, (inner, columns) = a.shape[-2], b.shape[-2:]
    y: AnyArray
    if a.size * b.size <= PIECE_STEPS * inner:  # As many steps at most, for batches that are not repeated.
        y = np.matmul(a, b)
        return y
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (np.broadcast_to(array, (*batch, *array.shape[-2:])) for array in (a, b))
    y = np.empty((*batch, rows, columns), a.dtype)
    for part in blocks(y.shape[:-1], rows_of_product(inner, columns, a.dtype)):
        np.matmul(a[part], b[part[:-1]], out=y[part])
    return y
