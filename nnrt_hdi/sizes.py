"""The size of a run, as far as it is known before it starts."""

from dataclasses import dataclass

from nnrt_hdi.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Sizes:
    """The outputs of a run, as far as they are known, and how many bytes it makes at most at a time, likewise."""

    outputs: tuple[TensorSpec, ...]
    peak_bytes: int
