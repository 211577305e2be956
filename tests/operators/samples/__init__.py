"""Sample data: a row or a few per operator, in the module of its family, from which the generic tests are made."""

from collections.abc import Iterator

from nnrt_hdi.enums import Format

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
    reduction,
    shape,
    spatial,
)
from .row import Sample

__all__ = ["SAMPLES", "Sample"]

FAMILIES = (
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


def _samples() -> Iterator[Sample]:
    for family in FAMILIES:
        for number, row in enumerate(family.rows()):
            for dtype in row.dtypes:
                for layout in row.layouts:
                    parts = [row.node_type.name, str(number), dtype.name]
                    if layout is not Format.NONE:
                        parts.append(layout.name)
                    yield Sample("-".join(parts), row.node_type, row.operands, row.attrs, dtype, layout)


SAMPLES = list(_samples())
