"""Packet: makes the frame of a run, and reads its outputs from the reply."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from nnrt_client.run.descriptions import CHUNKS, INLINE, NOWHERE, REGION, Description, region_of
from nnrt_client.run.reply import Reply
from nnrt_client.run.run import Run
from nnrt_client.session.local_socket import LocalSocket
from nnrt_client.session.staging_pool import Form, Room
from nnrt_client.tensors.device_buffer import DeviceBuffer, Elements, Stored
from nnrt_hdi import wire
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Array, TensorForm
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.packet import padded

# buffer_id, offset and size of a region that is set later.
_NOWHERE_YET = (0, 0, 0)


class Packet:
    """Packet of one run: its description, and the regions of tensors that are not in the frame."""

    __slots__ = ("_local_socket", "_staged", "_targets", "description", "is_sent_again", "regions")

    def __init__(self, description: Description, run: Run, local_socket: LocalSocket | None = None) -> None:
        """Choose the regions of a run's tensors. Copy inputs and share memory with the daemon where needed.

        Args:
            description: The description of the run's kind.
            run: The run.
            local_socket: The local socket; None over gRPC, where all regions are in device buffers.

        Raises:
            OutOfMemory: There is no shared memory left.
            NnrtError: The daemon refused to share memory.
        """
        self.description = description
        self.is_sent_again = False
        # buffer_id, offset and size of each region, one after the other.
        self.regions: list[int] = []
        self._local_socket: Any = local_socket
        # Memory of the staging pool with copies of inputs, to be given back.
        self._staged: Sequence[Room] = ()
        # Where the daemon writes outputs, by index: memory of the given tensors, or of the staging pool.
        self._targets: dict[int, SharedMemory | DeviceBuffer | Room] = {}
        if description.region_inputs:
            self._place_inputs(run)
        if description.region_outputs:
            self._place_outputs(run)
        if run.sequence is not None:
            self.regions += (run.sequence.sequence_id, run.sequence.operation, 0)
        if run.tensors is not None:
            run.tensors.begin()

    def frame(self, run: Run) -> bytes:
        """Return the frame of the run. It has the description if the daemon may not know that."""
        description, inputs, number, message = self.description, run.inputs, self.description.number, b""
        if not description.is_inline:
            inputs = [inputs[at] for at in description.inline_inputs]
        if not description.is_answered or self.is_sent_again:
            message = description.message
        if run.fields:
            number, message = (
                0,
                description.message + prepared_model_pb2.RunDescription(**run.fields).SerializeToString(),
            )
        timeout_ms = run.remaining_ms if run.timeout_ms else 0
        return description.layout.request(number, run.id, timeout_ms, self.regions, inputs, message)  # type: ignore[arg-type]

    def forget_description(self) -> None:
        """Send the description with the next frame, because the daemon doesn't know it.

        Raises:
            OperationFailed: The daemon got the description with the previous frame.
        """
        if self.is_sent_again:
            raise OperationFailed("the daemon does not know a description that it was sent")
        self.is_sent_again = True
        self.description.forget()

    def _place_inputs(self, run: Run) -> None:
        """Set the regions of inputs. Copy inputs that the daemon can't read where they are."""
        inputs: Sequence[Any] = run.inputs
        sources: Sequence[Any] = [None] * len(inputs) if run.tensors is None else run.tensors.sources
        # Pairs of the index in `regions` and the array.
        to_copy: list[tuple[int, Array]] = []
        for at in self.description.region_inputs:
            source, given = sources[at], inputs[at]
            if isinstance(source, DeviceBuffer):
                self.regions += (source.id, 0, given.nbytes)
            elif source is not None and source.is_sealed:
                self.regions += (self._local_socket.buffer_of(source), source.offset, given.nbytes)
            else:
                to_copy.append((len(self.regions), given))
                self.regions += _NOWHERE_YET
        if to_copy:
            self._staged = self._local_socket.staging.take_rooms([array.nbytes for _, array in to_copy])
            for room, (begin, array) in zip(self._staged, to_copy, strict=True):
                room.array(array.dtype, array.shape)[...] = array
                buffer_id = self._local_socket.buffer_of(room.memory)
                self.regions[begin : begin + 3] = buffer_id, room.offset, array.nbytes

    def _place_outputs(self, run: Run) -> None:
        """Set the regions into which the daemon writes outputs that don't travel in the reply.

        They are in memory of the given tensors, or of the staging pool if the daemon can't write to that memory.
        """
        given = None if run.tensors is None else run.tensors.targets
        # Output index, size, and index in `regions`.
        to_stage: list[tuple[int, int, int]] = []
        for at, size_bytes in self.description.region_outputs:
            target = None if given is None else given[at]
            if isinstance(target, DeviceBuffer):
                self._targets[at] = target
                self.regions += (target.id, 0, target.room_bytes)
            elif target is not None and target.is_sealed:
                self._targets[at] = target
                self.regions += (self._local_socket.buffer_of(target), target.offset, target.room_bytes)
            else:
                to_stage.append((at, size_bytes, len(self.regions)))
                self.regions += _NOWHERE_YET
        if to_stage:
            rooms = self._local_socket.staging.take_rooms([size_bytes for _, size_bytes, _ in to_stage])
            for (at, _, begin), room in zip(to_stage, rooms, strict=True):
                self._targets[at] = room
                buffer_id = self._local_socket.buffer_of(room.memory)
                self.regions[begin : begin + 3] = buffer_id, room.offset, room.room_bytes

    # ---- the reply

    def outputs(self, run: Run, reply: Reply, arrived: Mapping[int, Array] = {}) -> list[Elements]:
        """Return the outputs, from the reply and from shared memory.

        Args:
            run: The run.
            reply: Its reply.
            arrived: Outputs that came in chunks, by index.

        Returns:
            The outputs in the model's order.

        Raises:
            NnrtError: The reply contains this error.
            OperationFailed: The reply is invalid.
        """
        if self._staged:
            self._give_back(self._staged)
            self._staged = ()
        description = self.description
        if reply.outcome is not None:
            results = self._outputs_of_outcome(run, reply, reply.outcome, arrived)
            description.kinds.learn(run, description, results)
        else:
            results = list(
                map(np.ndarray, description.shapes, description.dtypes, repeat(reply.data), description.offsets)
            )
            if description.elsewhere:
                results = self._with_others(results)
        if description.number:
            description.is_answered = True
        description.busy_ns = reply.times[1] + reply.times[3]
        return results

    def _with_others(self, results: list[Any]) -> list[Elements]:
        """Insert the outputs outside the frame, with the shapes of the description."""
        staged: dict[int, tuple[Room, Form]] = {}
        for at, one in self.description.elsewhere:
            target = self._targets.get(at)
            if isinstance(target, Room):
                staged[at] = target, (one.dtype, one.shape)
                results.insert(at, None)
            elif isinstance(target, SharedMemory):
                results.insert(at, target.array(one.dtype, one.shape))
            else:
                results.insert(at, Stored(one.dtype, one.shape, one.size_bytes, region_of(target)))
        return self._with_staged(results, staged) if staged else results

    def _outputs_of_outcome(
        self, run: Run, reply: Reply, outcome: prepared_model_pb2.RunOutcome, arrived: Mapping[int, Array]
    ) -> list[Elements]:
        """Return the outputs of a reply whose outcome lists them."""
        signature = run.signature
        if outcome.HasField("error"):
            self._give_back(self._targets.values())
            raise wire.error_from_detail(outcome.error)
        signature.require_result_count(len(outcome.outputs))
        results: list[Any] = []
        staged: dict[int, tuple[Room, Form]] = {}
        begin = reply.tensors_at
        for at, output in enumerate(outcome.outputs):
            form = signature.result_form(at, output)
            result: Elements | None = None
            if output.place == INLINE:
                if begin + form.size_bytes > len(reply.data):
                    raise OperationFailed(
                        f"the reply has not all bytes of {form.spec}", place=signature.output_place(at)
                    )
                result = np.ndarray(form.shape, form.dtype, reply.data, begin)
                begin += padded(form.size_bytes)
            elif output.place == CHUNKS and at in arrived:
                result = arrived[at]
            elif output.place == REGION:
                result = self._in_region(run, at, form, staged)
            elif output.place == NOWHERE and at in run.unwanted:
                result = Stored(form.spec.numpy_dtype, form.shape, form.size_bytes, region_of(None))
            else:
                raise OperationFailed(f"the reply does not say where {form.spec} is", place=signature.output_place(at))
            if output.place != NOWHERE:
                signature.expect(at, form.size_bytes)
            results.append(result)
        return self._with_staged(results, staged)

    def _in_region(self, run: Run, at: int, form: TensorForm, staged: dict[int, tuple[Room, Form]]) -> Elements | None:
        """Return an output in the memory of its tensor, or None for one in the staging pool."""
        target, dtype = self._targets.get(at), form.spec.numpy_dtype
        if target is None:
            raise OperationFailed(
                "the device put it into a buffer that was not given for it", place=run.signature.output_place(at)
            )
        if form.size_bytes > target.room_bytes:
            raise OperationFailed(
                f"the reply says that {form.spec} is in memory that has no room for it",
                place=run.signature.output_place(at),
            )
        if isinstance(target, DeviceBuffer):
            return Stored(dtype, form.shape, form.size_bytes, target.region)
        if isinstance(target, Room):
            staged[at] = target, (dtype, form.shape)
            return None
        return target.array(dtype, form.shape)

    def _with_staged(self, results: list[Any], staged: Mapping[int, tuple[Any, Form]]) -> list[Elements]:
        """Insert arrays for the outputs in the staging pool, and give back memory that no output uses."""
        by_memory: dict[SharedMemory, list[int]] = {}
        for at, (room, _) in staged.items():
            by_memory.setdefault(room.memory, []).append(at)
        self._give_back(one for one in self._targets.values() if isinstance(one, Room) and one.memory not in by_memory)
        for places in by_memory.values():
            rooms, forms = zip(*[staged[at] for at in places], strict=True)
            for at, array in zip(places, self._local_socket.staging.lease_arrays(rooms, forms), strict=True):
                results[at] = array
        return results

    def _give_back(self, rooms: Iterable[object]) -> None:
        """Give memory back to the staging pool, each piece once."""
        for memory in {room.memory for room in rooms if isinstance(room, Room)}:
            self._local_socket.staging.give_back(memory)
