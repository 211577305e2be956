"""Comparison of values of programs: arrays, also of strings, lists, dicts and None."""

from typing import Any

import numpy as np


def require_equal(given: Any, expected: Any) -> None:
    """Check that two values are equal, with the same types all the way down."""
    assert type(given) is type(expected)
    if isinstance(expected, list):
        assert len(given) == len(expected)
        for pair in zip(given, expected, strict=True):
            require_equal(*pair)
    elif isinstance(expected, np.ndarray):
        assert (given.dtype, given.shape) == (expected.dtype, expected.shape)
        assert given.tolist() == expected.tolist()
    else:
        assert given == expected
    if isinstance(expected, dict):
        assert list(map(type, given)) == list(map(type, expected))
