"""Comparison of a call on ONNX Runtime's class with the same call on nnrt's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

import nnrt_client.onnxruntime as ours
from nnrt_client import NnrtError

Call = Callable[[Any, Any], Any]

# Exceptions that have another name in nnrt.
_NAMES = {"NotSupported": "NotImplemented"}


def outcome(call: Call, module: Any, session: Any) -> Any:
    """Return the result of the call, or the exception that it raises."""
    try:
        return call(module, session)
    except Exception as error:
        return error


def require_same(call: Call, theirs: Any, mine: Any) -> None:
    """Check that both calls return the same values, or raise exceptions that the same `except` clause catches."""
    expected, given = outcome(call, onnxruntime, theirs), outcome(call, ours, mine)
    if isinstance(expected, Exception):
        assert isinstance(given, NnrtError), given
        names = [_NAMES.get(kind.__name__, kind.__name__) for kind in type(given).__mro__]
        assert type(expected).__name__ in names, (expected, given)
    else:
        require_equal(expected, given)


def require_equal(expected: Any, given: Any) -> None:
    """Check that arrays have the same type, shape and numbers, also within lists, and that all else is equal."""
    if isinstance(expected, list | tuple):
        assert len(expected) == len(given), (expected, given)
        for pair in zip(expected, given, strict=True):
            require_equal(*pair)
    elif isinstance(expected, np.ndarray):
        assert isinstance(given, np.ndarray), given
        assert (given.dtype, given.flags.writeable) == (expected.dtype, expected.flags.writeable)
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
    else:
        assert given == expected
