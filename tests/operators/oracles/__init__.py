"""Oracles: expected results of operators, computed by other projects' code."""

from . import (  # noqa: F401  (each module says what its operators give)
    activation,
    arithmetic,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    logic,
    normalization,
    reduction,
    shape,
    spatial,
)
from .oracle import AnyArray, expected

__all__ = ["AnyArray", "expected"]
