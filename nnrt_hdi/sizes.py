"""Sizes of a run, as far as known before it starts."""

from dataclasses import dataclass

from nnrt_hdi.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Sizes:
    """Outputs of a run and its peak memory in bytes, both as far as known before it starts."""

    outputs: tuple[TensorSpec, ...]
    peak_bytes: int
