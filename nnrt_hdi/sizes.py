"""Sizes of a run, as far as known before it starts."""

from dataclasses import dataclass

from nnrt_hdi.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Sizes:
    """Outputs of a run, its peak memory in bytes, and its multiply-adds, all as far as known before it starts.

    The daemon refuses a run whose multiply-adds no device of its kind could do in time; 0, if they are not known, is
    never refused.
    """

    outputs: tuple[TensorSpec, ...]
    peak_bytes: int
    multiply_adds: int = 0
