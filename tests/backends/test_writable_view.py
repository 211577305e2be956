"""Read-only arrays for libraries that take none."""

import ctypes

import numpy as np
import pytest

from nnrt_hdi.tensor import Array, writable_view


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(12, dtype="<f2").reshape(3, 4)[:, ::2],
        np.array(True),
        np.zeros((0, 3), np.int64),
        np.frombuffer(b"abcdefgh", "<u4"),
    ],
    ids=["plain", "strided", "0-d", "empty", "bytes"],
)
def test_it_is_the_same_memory(array: Array) -> None:
    """Even where numpy itself would not give it, as for bytes."""
    given = read_only(array[...])
    view = writable_view(given)
    assert view.flags.writeable and not given.flags.writeable
    assert (view.dtype, view.shape) == (given.dtype, given.shape)
    assert view.ctypes.data == given.ctypes.data
    np.testing.assert_array_equal(view, given)


def test_it_is_taken_where_the_array_is_not() -> None:
    given = read_only(np.arange(4, dtype=np.int32))
    with pytest.raises((TypeError, ValueError)):
        (ctypes.c_int32 * 4).from_buffer(given)  # type: ignore[arg-type]
    assert list((ctypes.c_int32 * 4).from_buffer(writable_view(given))) == [0, 1, 2, 3]  # type: ignore[arg-type]


def test_it_keeps_the_memory() -> None:
    view = writable_view(read_only(np.full(1 << 16, 7, np.int64)))
    np.full(1 << 16, 9, np.int64)  # Takes the memory if it were free.
    assert (view == 7).all()


def test_a_writable_array_is_its_own_view() -> None:
    array = np.zeros(3)
    assert writable_view(array) is array
