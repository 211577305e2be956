"""Description of a network before its export."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

TORCHSCRIPT, DYNAMO = "TorchScript", "dynamo"
BOTH = (TORCHSCRIPT, DYNAMO)
FP16, QDQ, QOPERATOR, DYNAMIC = "fp16", "QDQ", "QOperator", "dynamic int8"

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Input:
    """Input of a network; dynamic dimensions are names.

    Its elements are integers from 0 to `below` - 1, or float32 numbers if `below` is None.
    """

    dims: Sequence[int | str]
    below: int | None = None
    make: Callable[[Sequence[int]], Tensor] | None = None

    def example(self, sizes: Sizes) -> Tensor:
        """Return a random tensor, with `sizes` for the named dimensions."""
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in self.dims]
        if self.make is not None:
            return self.make(shape)
        return torch.randn(shape) if self.below is None else torch.randint(self.below, shape)

    @property
    def dynamic_dims(self) -> dict[int, str]:
        """Dynamic dimensions by axis."""
        return {axis: dim for axis, dim in enumerate(self.dims) if isinstance(dim, str)}


def real(*dims: int | str) -> Input:
    return Input(dims)


def numbers(*dims: int | str, below: int) -> Input:
    return Input(dims, below)


def mask(*dims: int | str) -> Input:
    """Return an input of ones with zeros at the end of the last row, like a tokenizer's padding mask."""

    def padded(shape: Sequence[int]) -> Tensor:
        ones = torch.ones(list(shape), dtype=torch.int64)
        ones[-1, -(shape[-1] // 3) :] = 0
        return ones

    return Input(dims, make=padded)


def constant(value: int) -> Input:
    """Return an input for which the application always gives the same number."""
    return Input((), make=lambda _: torch.tensor(value))


@dataclass(frozen=True)
class Network:
    """Network with its inputs.

    The exporter traces it with the first of `sizes`; the comparison runs it with all of them. The parameters of
    `forward` have the names and the order of the inputs.
    """

    family: str
    name: str
    make: Callable[[], nn.Module]
    inputs: Mapping[str, Input]
    sizes: Sequence[Sizes] = ({},)
    exporters: Sequence[str] = BOTH
    formats: Sequence[str] = ()
    outputs: Sequence[str] = ("y",)
    constants: Mapping[str, int] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """Name as part of file names."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.name.lower()).strip("-")


IMAGES: Sequence[Sizes] = ({"height": 192, "width": 256}, {"height": 64, "width": 96})
"""Image sizes for networks that accept any."""
TEXTS: Sequence[Sizes] = ({"batch": 2, "length": 64}, {"batch": 1, "length": 47})
"""Batch sizes and lengths of texts."""
