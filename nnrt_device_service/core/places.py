"""Memory that runs write to."""

from collections.abc import Sequence
from typing import Protocol

from nnrt_hdi.tensor import Array, TensorSpec


class Places(Protocol):
    """Memory that the outputs of a run go to."""

    @property
    def are_known(self) -> bool:
        """True where all shapes are known of what goes there."""

    @property
    def arrays(self) -> Sequence[Array | None]:
        """The memory as `PreparedModel.run` takes it; empty as long as shapes are not known."""

    def learn(self, specs: Sequence[TensorSpec]) -> None:
        """Learn what is known of the outputs."""
