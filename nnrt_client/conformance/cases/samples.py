"""All samples, family by family."""

from nnrt_client.conformance.cases import (
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
from nnrt_client.conformance.cases.sample import samples_of

_FAMILIES = (
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
SAMPLES = [sample for family in _FAMILIES for sample in samples_of(family.__name__.rpartition(".")[2], family.rows())]
