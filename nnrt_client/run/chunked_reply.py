"""A reply that comes over gRPC: a message, and chunks of outputs that are too long for it."""

from collections.abc import Iterator, Mapping
from time import perf_counter_ns

import grpc

from nnrt_client.run.run import Run
from nnrt_client.session.broken_call import BrokenCall, CutOff
from nnrt_client.session.compression import Compressor
from nnrt_client.tensors.device_buffer import DeviceBuffer, Elements, Stored
from nnrt_hdi.chunks import Assembly, outline, room_for
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Array, TensorSpec
from nnrt_hdi.wire.run_codec import Incoming


class ChunkedReply:
    """The reply of a run, and what is still to be read of it."""

    def __init__(self, run: Run, reply: Incoming, replies: Iterator[Incoming], compressor: Compressor | None) -> None:
        self._run = run
        self._reply = reply
        self._replies = replies if compressor is None else compressor.counted(replies)
        outputs = reply.message.outputs
        self._chunked = [index for index, output in enumerate(outputs) if output.data.HasField("chunked")]
        self.is_read = not self._chunked

    def unpacked(self) -> list[Elements]:
        """Read the outputs: into new arrays, or, if they come in chunks, into the memory that they belong in, of which
        nothing is written unless all outputs fit.

        Raises the error that the reply carries, CutOff where the call breaks, OperationFailed where something else
        comes than chunks. What is announced and makes no sense is not waited for.
        """
        message = self._reply.message
        arrays = self._reply.arrays(message.outputs, "output")
        if not self._chunked:
            return self._results(arrays)
        specs = {index: self._run.signature.announced(message.outputs, index) for index in self._chunked}
        try:
            arrays = self._placed(arrays, specs)
        except NnrtError:
            # It is not the daemon's fault, perhaps, and the stream goes on: behind what nobody wants.
            self._skip(sum(message.outputs[index].data.chunked for index in self._chunked))
            self.is_read = True
            raise
        assembly = Assembly([arrays[index] for index in self._chunked])
        while not assembly.is_complete:
            try:
                self._run.write(self._chunk().piece, assembly)
            except InvalidParameter as error:
                raise OperationFailed(error.message) from error
        self.is_read = True
        self._run.stamps.answered_ns = perf_counter_ns()
        for array in arrays.values():
            array.flags.writeable = False
        return self._results(arrays)

    def _results(self, arrays: dict[int, Array]) -> list[Elements]:
        run, message = self._run, self._reply.message
        results = run.signature.results(message, arrays)
        if run.packet is not None:
            results = run.packet.located(results)
        elif message.plan:
            self._keep_plan(results)
        return results

    def _keep_plan(self, results: list[Elements]) -> None:
        """Have later runs go as this one, unless outputs are elsewhere than they were to be."""
        run = self._run
        input_bytes = [None if isinstance(one, Stored) else one.nbytes for one in run.inputs]
        targets = (run.tensors.targets if run.tensors is not None else None) or [None] * len(results)
        in_regions = [at for at, one in enumerate(results) if isinstance(one, Stored)]
        if in_regions == [at for at, target in enumerate(targets) if isinstance(target, DeviceBuffer)]:
            run.signature.plans.keep(run, self._reply.message.plan, input_bytes, results, in_regions)

    def _placed(self, arrays: dict[int, Array], specs: Mapping[int, TensorSpec]) -> dict[int, Array]:
        """Give the outputs that came in the message, and the memory of those that are to come."""
        message, signature, tensors = self._reply.message, self._run.signature, self._run.tensors
        if tensors is None or tensors.targets is None:
            return arrays | {index: room_for(spec) for index, spec in specs.items()}
        arrays |= {index: room_for(spec) for index, spec in specs.items() if tensors.targets[index] is None}
        outlines = {index: outline(spec) for index, spec in specs.items() if index not in arrays}
        tensors.require_fit(signature.results(message, arrays | outlines))
        for index, spec in specs.items():
            target = tensors.targets[index]
            if target is not None:
                assert isinstance(target, SharedMemory)
                arrays[index] = target.array(spec.numpy_dtype, spec.shape)
        return arrays

    def _chunk(self) -> Incoming:
        reply: Incoming | None
        try:
            reply = next(self._replies, None)
        except grpc.RpcError as error:
            raise CutOff(BrokenCall.of(error)) from None
        if reply is None or not reply.is_chunk:
            raise OperationFailed("the daemon sent something else than the rest of an output")
        return reply  # type: ignore[no-any-return]  # grpc has no types

    def _skip(self, size_bytes: int) -> None:
        while size_bytes > 0:
            reply = self._chunk()
            size_bytes -= reply.message.expanded_bytes or len(reply.chunk)
