"""A run as it is asked for, however it travels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnrt_client.buffer import Buffer, Elements, Stored
from nnrt_client.region import Region
from nnrt_hdi.errors import OperationFailed

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

    def request(self) -> Any:
        """The RunRequest with all of it inline that is in this process."""
        request = self.signature.request(self.inputs)
        if buffers := self._buffers():
            for target in self.targets or ():
                request.outputs.add(data={"region": target.place} if isinstance(target, Buffer) else None)
            for buffer in buffers:  # What is there may be lost from now on.
                buffer.is_written = False
        return request

    def results(self, reply: Any) -> list[Elements]:
        """The outputs in a RunReply: those that are inline, and what is known of the others. Raises the error that it
        carries instead."""
        results = self.signature.results(reply)
        targets = self.targets or (None,) * len(results)
        for at, (result, target) in enumerate(zip(results, targets, strict=True)):
            if isinstance(result, Stored) != isinstance(target, Buffer):
                raise OperationFailed("the device put it elsewhere", place=self.signature.output_place(at))
        for buffer in self._buffers():
            buffer.is_written = True
        return results

    def _buffers(self) -> list[Buffer]:
        return [target for target in self.targets or () if isinstance(target, Buffer)]
