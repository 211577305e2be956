"""Reply over gRPC: a frame, then chunks of the outputs that are too long for the frame."""

from collections.abc import Iterator, Mapping
from functools import partial
from time import perf_counter_ns

import grpc

from nnrt_client.run.descriptions import CHUNKS, REGION, region_of
from nnrt_client.run.reply import Reply
from nnrt_client.run.run import Run
from nnrt_client.session.broken_call import BrokenCall, CutOff
from nnrt_client.session.compression import Compressor
from nnrt_client.tensors.device_buffer import Elements, Stored
from nnrt_hdi.chunks import Assembly, allocate_array, array_stub
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Array, TensorSpec
from nnrt_hdi.wire.packet import Bytes
from nnrt_hdi.wire.run_messages import Chunk


class ChunkedReply:
    """Reply of a run, with outputs that may follow its frame in chunks."""

    def __init__(
        self, run: Run, reply: Reply, messages: Iterator[Bytes | Chunk], compressor: Compressor | None
    ) -> None:
        self._run = run
        self._reply = reply
        self._messages = messages if compressor is None else compressor.count_received(messages)
        outcome = reply.outcome
        self._outputs = () if outcome is None else outcome.outputs
        self._chunked = [index for index, output in enumerate(self._outputs) if output.place == CHUNKS]
        self.is_read = not self._chunked

    def finish(self) -> None:
        """Read the chunks and end the run with this reply. Raise the errors of `Run.finish`."""
        self._run.finish(self._unpacked, self._reply)

    def _unpacked(self) -> list[Elements]:
        """Return the outputs: new arrays, or, for outputs that come in chunks, the memory of their tensors.

        Nothing is written if an output doesn't fit its tensor. Invalid announced sizes raise before any chunk is read.

        Raises:
            NnrtError: The reply contains this error.
            CutOff: The call broke.
            OperationFailed: The daemon sent something other than chunks.
        """
        run = self._run
        outputs = partial(run.packet.outputs, run, self._reply)
        if not self._chunked:
            return outputs()  # type: ignore[no-any-return]  # Its packet is the run's.
        specs = {index: run.signature.announced(self._outputs, index) for index in self._chunked}
        try:
            arrays = self._placed(specs)
        except NnrtError:
            # The application may have caused the error, so the stream stays in use: skip the chunks.
            self._skip(sum(spec.byte_size for spec in specs.values()))
            self.is_read = True
            raise
        assembly = Assembly([arrays[index] for index in self._chunked])
        while not assembly.is_complete:
            try:
                run.write(self._chunk().piece, assembly)
            except InvalidParameter as error:
                raise OperationFailed(error.message) from error
        self.is_read = True
        run.stamps.answered_ns = perf_counter_ns()
        for array in arrays.values():
            array.flags.writeable = False
        return outputs(arrays)  # type: ignore[no-any-return]

    def _placed(self, specs: Mapping[int, TensorSpec]) -> dict[int, Array]:
        """Return arrays for the outputs that come in chunks."""
        tensors = self._run.tensors
        if tensors is None or tensors.targets is None:
            return {index: allocate_array(spec) for index, spec in specs.items()}
        tensors.require_fit([self._outlined(index) for index in range(len(self._outputs))])
        arrays = {}
        for index, spec in specs.items():
            target = tensors.targets[index]
            if target is None:
                arrays[index] = allocate_array(spec)
            else:
                assert isinstance(target, SharedMemory)
                arrays[index] = target.array(spec.numpy_dtype, spec.shape)
        return arrays

    def _outlined(self, index: int) -> Elements:
        """Return an output of the right type and shape, without elements."""
        spec = self._run.signature.result_form(index, self._outputs[index]).spec
        if self._outputs[index].place == REGION:
            return Stored(spec.numpy_dtype, spec.shape, spec.byte_size, region_of(None))
        return array_stub(spec)

    def _chunk(self) -> Chunk:
        message: Bytes | Chunk | None
        try:
            message = next(self._messages, None)
        except grpc.RpcError as error:
            raise CutOff(BrokenCall.from_rpc_error(error)) from None
        if not isinstance(message, Chunk):
            raise OperationFailed("the daemon sent something else than the rest of an output")
        return message

    def _skip(self, size_bytes: int) -> None:
        while size_bytes > 0:
            chunk = self._chunk()
            size_bytes -= chunk.expanded_bytes or len(chunk.data) or size_bytes
