"""Checks of elements that only the device knows.

To look at an element, the host must wait for an accelerator. So a run on an accelerator goes on as if all were well,
within bounds, and its model looks at all checks together when the run ends. A CPU looks at once.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from nnrt_hdi.errors import NnrtError


class Check(NamedTuple):
    """Check of a node: a tensor of one BOOL that says whether something is wrong, and the function that says what."""

    is_wrong: torch.Tensor
    error: Callable[[], NnrtError]


class _Thread(threading.local):
    # The checks of the run that this thread enqueues, or None if they are made at once.
    later: list[Check] | None = None


_thread = _Thread()


@contextmanager
def made_later(checks: list[Check]) -> Iterator[None]:
    """Let `require` only note checks in the list, in this thread while the block runs."""
    _thread.later = checks
    try:
        yield
    finally:
        _thread.later = None


def are_made_later() -> bool:
    """Return whether `require` only notes checks, so that the kernel must go on with wrong elements."""
    return _thread.later is not None


def found_by(checks: Sequence[Check]) -> torch.Tensor | None:
    """Return a tensor with what each check says, on the device; None if there are no checks."""
    return torch.stack([check.is_wrong for check in checks]) if checks else None


def require(is_wrong: torch.Tensor, error: Callable[[], NnrtError]) -> None:
    """Raise an error if something is wrong, now or when the run ends.

    Args:
        is_wrong: One BOOL on the device.
        error: Returns the error. It may wait for the device.

    Raises:
        NnrtError: Something is wrong, and checks are made at once.
    """
    if _thread.later is not None:
        _thread.later.append(Check(is_wrong, error))
    elif is_wrong.item():
        raise error()
