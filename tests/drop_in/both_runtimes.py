"""The same call of ONNX Runtime's class and of ours, and what came of it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

import nnrt_client.onnxruntime as ours
from nnrt_client import NnrtError

Call = Callable[[Any, Any], Any]

# Where our class has another name.
_NAMES = {"NotSupported": "NotImplemented"}


def outcome(call: Call, module: Any, session: Any) -> Any:
    """What the call gives, or the exception that it raises."""
    try:
        return call(module, session)
    except Exception as error:
        return error


def require_same(call: Call, theirs: Any, mine: Any) -> None:
    """The same values, or exceptions that whoever catches ONNX Runtime's catches."""
    expected, given = outcome(call, onnxruntime, theirs), outcome(call, ours, mine)
    if isinstance(expected, Exception):
        assert isinstance(given, NnrtError), given
        names = [_NAMES.get(kind.__name__, kind.__name__) for kind in type(given).__mro__]
        assert type(expected).__name__ in names, (expected, given)
    else:
        require_equal(expected, given)


def require_equal(expected: Any, given: Any) -> None:
    """Arrays of the same type, shape and numbers, wherever they are; all else is equal."""
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
