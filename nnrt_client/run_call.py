"""A run as it is asked for, however it travels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnrt_client.buffer import Buffer, Elements
from nnrt_client.region import Region

if TYPE_CHECKING:  # Signatures know Tensors, and those the devices whose runs these are.
    from nnrt_client.signature import Signature


class RunCall:
    """Inputs that fit the model, and where its outputs are to go.

    Inputs are read where they are until the run has ended: in this process, or (Stored) in buffers of the session.
    `sources` has the memory of those that are tensors, None for arrays; `targets` that of the outputs, None where they
    are to come as new arrays. Either may be a Region of this process or a Buffer of the session, whose bytes stay
    there.
    """

    __slots__ = ("inputs", "signature", "sources", "targets")

    def __init__(
        self,
        signature: "Signature",
        inputs: Sequence[Elements],
        sources: Sequence[Region | Buffer | None] = (),
        targets: Sequence[Region | Buffer] | None = None,
    ) -> None:
        self.signature = signature
        self.inputs = inputs
        self.sources = sources or (None,) * len(inputs)
        self.targets = targets

    def begin(self) -> None:
        """The run is about to be sent: what is in the buffers that it writes may be lost from now on."""
        for target in self.targets or ():
            if isinstance(target, Buffer):
                target.is_written = False
