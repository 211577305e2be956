"""Nodes that operators refuse, in a module per family."""

from . import (
    activation,
    arithmetic,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    logic,
    normalization,
    quantization,
    reduction,
    shape,
    spatial,
)

CASES = [
    case
    for family in (
        activation,
        arithmetic,
        convolution,
        creation,
        elementwise,
        indexing,
        linear,
        logic,
        normalization,
        quantization,
        reduction,
        shape,
        spatial,
    )
    for case in family.CASES
]
