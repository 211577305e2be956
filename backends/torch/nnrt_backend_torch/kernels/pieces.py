"""Splitting of work into pieces, between which a run can be stopped."""

import itertools
from collections.abc import Callable

import torch

from nnrt_hdi.steps import check_stop

# Products of integers in a piece: they are computed in plain loops.
INTEGER_PRODUCTS = 1 << 28
# Elements that operands of a product may have more when they are repeated for it, as torch does.
REPEATED = 1 << 20


def reduced_runs(x: torch.Tensor, dim: int, size: int, combine: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Reduce each `size` entries of a dimension that follow each other: one result for each first entry.

    Two reductions make one of twice as many entries.
    """
    if size == 1:
        return x
    check_stop()
    half = size // 2
    y = reduced_runs(x, dim, half, combine)
    count = y.shape[dim] - half
    y = combine(y.narrow(dim, 0, count), y.narrow(dim, half, count))
    if size % 2:
        count = x.shape[dim] - size + 1
        y = combine(y.narrow(dim, 0, count), x.narrow(dim, size - 1, count))
    return y


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute torch.matmul, without repeating large operands for it, and products of integers in pieces."""
    if a.ndim > 2 and b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        wide_a, wide_b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
        if wide_a.numel() + wide_b.numel() > 2 * (a.numel() + b.numel()) + REPEATED:
            y = a.new_empty((*batch, a.shape[-2], b.shape[-1]))
            for position in itertools.product(*map(range, batch)):
                check_stop()
                torch.matmul(wide_a[position], wide_b[position], out=y[position])
            return y
    rows = max(INTEGER_PRODUCTS // max(b.numel(), 1), 1)
    if a.dtype.is_floating_point or a.shape[-2] <= rows or a.ndim > 2 or b.ndim > 2:
        return torch.matmul(a, b)
    parts = []
    for part in a.split(rows):
        check_stop()
        parts.append(torch.matmul(part, b))
    return torch.cat(parts)
