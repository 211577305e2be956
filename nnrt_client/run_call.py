"""A run as it is asked for, however it travels."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnrt_client.buffer import Buffer, Elements, Stored
from nnrt_client.region import Region
from nnrt_client.savings import Compressor
from nnrt_hdi.chunks import Assembly, beyond_inline, outline, pieces, room_for
from nnrt_hdi.compression import INLINE_BYTES
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.run_codec import Incoming, request_chunk
from nnrt_hdi.tensor import Array

if TYPE_CHECKING:  # Signatures know Tensors, and those the devices whose runs these are.
    from nnrt_client.signature import Signature

Outputs = Callable[[], list[Elements]]
# Makes outputs of a RunReply and of those that came beside it, by index.
Results = Callable[[Any, Mapping[int, Array]], list[Elements]]


class RunCall:
    """Inputs that fit the model, and where its outputs are to go.

    Inputs are read where they are until the run has ended: in this process, or (Stored) in buffers of the session.
    `sources` has the memory of those that are tensors, None for arrays; `targets` that of the outputs, None where they
    are to come as new arrays. Either may be a Region of this process or a Buffer of the session, whose bytes stay
    there. `require_fit` raises an NnrtError for outputs that have no room in the targets; nothing is written there
    before it has been asked.
    """

    __slots__ = ("inputs", "require_fit", "signature", "sources", "targets")

    def __init__(
        self,
        signature: "Signature",
        inputs: Sequence[Elements],
        sources: Sequence[Region | Buffer | None] = (),
        targets: Sequence[Region | Buffer] | None = None,
        require_fit: Callable[[Sequence[Elements]], None] = lambda outputs: None,
    ) -> None:
        self.signature = signature
        self.inputs = inputs
        self.sources = sources or (None,) * len(inputs)
        self.targets = targets
        self.require_fit = require_fit

    def begin(self) -> None:
        """The run is about to be sent: what is in the buffers that it writes may be lost from now on."""
        for target in self.targets or ():
            if isinstance(target, Buffer):
                target.is_written = False

    def messages(self, message_bytes: int, compressor: Compressor | None = None, **fields: Any) -> Iterator[Any]:
        """The RunRequest with these fields, and the chunks of inputs that are too long for it or are to be compressed,
        made as they are asked for."""
        sizes = (0 if isinstance(given, Stored) else given.nbytes for given in self.inputs)
        inline_bytes = message_bytes if compressor is None else min(INLINE_BYTES, message_bytes)
        chunked = beyond_inline(sizes, inline_bytes)
        # What is not contiguous is copied once, and for its chunks only when their turn comes.
        yield self.signature.request(self.inputs, self.targets, chunked, takes_chunks=True, **fields)
        arrays = (np.ascontiguousarray(self.inputs[index]) for index in sorted(chunked))
        chunk = request_chunk if compressor is None else compressor.request_chunk
        yield from map(chunk, pieces(arrays, message_bytes))

    def read(
        self, reply: Incoming, replies: Iterator[Incoming], results: Results, targets: Sequence[Region | Buffer] | None
    ) -> Outputs:
        """What `results` makes of a reply when the chunks have been read that follow it: into new arrays, or into
        targets, of which nothing is written unless all outputs fit.

        Raises grpc.RpcError where the call breaks, and OperationFailed where something else comes than chunks.
        """
        message = reply.message
        chunked = [index for index, output in enumerate(message.outputs) if output.data.HasField("chunked")]
        if not chunked:
            return lambda: results(message, reply.arrays(message.outputs, "output"))
        try:
            arrays = self._places(reply, chunked, targets)
        except NnrtError as error:
            # It is not the daemon's fault, perhaps, and the stream goes on: behind what nobody wants.
            _skip(sum(message.outputs[index].data.chunked for index in chunked), replies)
            return raising(error)
        assembly = Assembly([arrays[index] for index in chunked])
        while not assembly.is_complete:
            try:
                assembly.take(_chunk(replies).piece)
            except InvalidParameter as error:
                raise OperationFailed(error.message) from error
        for array in arrays.values():
            array.flags.writeable = False
        return lambda: results(message, arrays)

    def _places(
        self, reply: Incoming, chunked: Sequence[int], targets: Sequence[Region | Buffer] | None
    ) -> dict[int, Array]:
        """Outputs that came in the message, and the memory of those that are to come."""
        outputs, arrays = reply.message.outputs, reply.arrays(reply.message.outputs, "output")
        specs = {index: self.signature.announced(outputs, index) for index in chunked}
        if targets is None:
            return arrays | {index: room_for(spec) for index, spec in specs.items()}
        self.require_fit(
            self.signature.results(reply.message, arrays | {index: outline(spec) for index, spec in specs.items()})
        )
        for index, spec in specs.items():
            target = targets[index]
            assert isinstance(target, Region)
            arrays[index] = target.array(spec.numpy_dtype, spec.shape)
        return arrays


def _chunk(replies: Iterator[Incoming]) -> Incoming:
    reply = next(replies, None)
    if reply is None or not reply.is_chunk:
        raise OperationFailed("the daemon sent something else than the rest of an output")
    return reply


def _skip(size_bytes: int, replies: Iterator[Incoming]) -> None:
    while size_bytes > 0:
        reply = _chunk(replies)
        size_bytes -= reply.message.expanded_bytes or len(reply.chunk)


def raising(error: NnrtError) -> Outputs:
    def outputs() -> list[Elements]:
        raise error

    return outputs
