"""All defects, in modules by kind."""

from mutants.defect import DEFECTS
from mutants.defects import (  # noqa: F401  (each module registers its defects)
    activation,
    arithmetic,
    caches,
    cold,
    concurrency,
    contract,
    convolution,
    creation,
    data_types,
    death,
    elementwise,
    float16,
    graphs,
    indexing,
    later_results,
    linear,
    logic,
    normalization,
    quantized,
    reduction,
    shape,
    spatial,
    state,
)

__all__ = ["DEFECTS"]
