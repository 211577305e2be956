"""A run as it is asked for, however it travels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnrt_client.region import Region
from nnrt_hdi.tensor import Array

if TYPE_CHECKING:  # Signatures know Tensors, and those the devices whose runs these are.
    from nnrt_client.signature import Signature


class RunCall:
    """Inputs that fit the model, and where its outputs are to go.

    Inputs are read where they are until the run has ended. `sources` has the memory of those that are Tensors, None for
    arrays; `targets` that of the outputs, None where they are to come as new arrays.
    """

    __slots__ = ("inputs", "signature", "sources", "targets")

    def __init__(
        self,
        signature: "Signature",
        inputs: Sequence[Array],
        sources: Sequence[Region | None] = (),
        targets: Sequence[Region] | None = None,
    ) -> None:
        self.signature = signature
        self.inputs = inputs
        self.sources = sources or (None,) * len(inputs)
        self.targets = targets
