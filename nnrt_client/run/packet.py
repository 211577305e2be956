"""Runs packed for the local socket, and what is read of the replies."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from nnrt_client.run.plan import Plan
from nnrt_client.run.run import Run
from nnrt_client.run.run_tensors import RunTensors
from nnrt_client.run.signature import INLINE_BYTES, PACKET_INLINE_BYTES
from nnrt_client.session.local_socket import LocalSocket
from nnrt_client.session.staging_pool import Form, Room, pooled_bytes
from nnrt_client.tensors.device_buffer import DeviceBuffer, Elements, Stored, received
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import local_socket_pb2, model_pb2, prepared_model_pb2

# buffer_id, offset, and the bytes that there are.
Place = tuple[int, int, int]
# Of a region that is not known yet.
_NOWHERE: Place = (0, 0, 0)


class Packet:
    """A run packed for the local socket, and the shared memory that it uses."""

    __slots__ = ("_local_socket", "_staged", "_targets", "_unwanted")

    def __init__(self, local_socket: LocalSocket) -> None:
        """It uses none yet."""
        self._local_socket = local_socket
        # Memory of the pool that inputs lie in, to be given back.
        self._staged: Sequence[Room] = ()
        # Where the daemon writes outputs: memory of the tensors given for them, or of the pool; None for those that
        # come in the reply. Empty where all do.
        self._targets: list[SharedMemory | DeviceBuffer | Room | None] = []
        self._unwanted: Sequence[int] = ()

    def unpacked(self, run: Run, reply: "prepared_model_pb2.RunReply") -> list[Elements]:
        """Take the outputs out of the reply and out of shared memory. Raises the error that the reply carries instead,
        InvalidParameter for a reply that makes no sense."""
        signature, targets = run.signature, self._targets
        if self._staged:
            self._give_back(self._staged)
        if not targets or reply.HasField("error"):
            if targets:
                self._give_back(targets)
            return signature.results(reply, {})
        outputs = reply.outputs
        signature.require_result_count(len(outputs))
        results: list[Elements | None] = []
        staged: dict[int, tuple[Room, Form]] = {}
        for at, (output, target) in enumerate(zip(outputs, targets, strict=True)):
            form = signature.result_form(at, output)
            if target is None and at in self._unwanted:
                results.append(received(form, output))
                continue
            signature.expect(at, form.size_bytes)
            if not output.data.HasField("region"):
                results.append(received(form, output))
            elif target is None or form.size_bytes > target.room_bytes:
                raise InvalidParameter(f"the reply says that {form.spec} is in memory that has no room for it")
            elif isinstance(target, DeviceBuffer):
                results.append(received(form, output))
            elif isinstance(target, Room):
                staged[at] = target, (form.spec.numpy_dtype, form.shape)
                results.append(None)
            else:
                results.append(target.array(form.spec.numpy_dtype, form.shape))
        return self._with_staged(results, staged)

    def located(self, results: Sequence[Elements]) -> list[Elements]:
        """The outputs of a reply that came in another way, as arrays where they lie in memory of this process. Raises
        InvalidParameter for a reply that makes no sense."""
        located: list[Elements | None] = []
        staged: dict[int, tuple[Room, Form]] = {}
        for at, (result, target) in enumerate(zip_longest(results, self._targets)):
            if not isinstance(target, SharedMemory | Room) or not isinstance(result, Stored):
                located.append(result)
            elif result.nbytes > target.room_bytes:
                raise InvalidParameter("the reply says that an output is in memory that has no room for it")
            elif isinstance(target, Room):
                staged[at] = target, (result.dtype, result.shape)
                located.append(None)
            else:
                located.append(target.array(result.dtype, result.shape))
        return self._with_staged(located, staged)

    def _copy_in(self, arrays: Sequence[Array]) -> list[Place]:
        """Copy inputs to memory of the pool, and tell where they are."""
        self._staged = self._local_socket.staging.take_rooms([array.nbytes for array in arrays])
        places: list[Place] = []
        for room, array in zip(self._staged, arrays, strict=True):
            room.array(array.dtype, array.shape)[...] = array
            places.append((self._local_socket.buffer_of(room.memory), room.offset, array.nbytes))
        return places

    def _with_staged(self, results: list[Any], staged: Mapping[int, tuple[Any, Form]]) -> list[Elements]:
        """Put the outputs that are in memory of the pool in their places among the others. What has none goes back."""
        by_memory: dict[SharedMemory, list[int]] = {}
        for at, (room, _) in staged.items():
            by_memory.setdefault(room.memory, []).append(at)
        self._give_back([one for one in self._targets if isinstance(one, Room) and one.memory not in by_memory])
        for places in by_memory.values():
            rooms, forms = zip(*[staged[at] for at in places], strict=True)
            for at, array in zip(places, self._local_socket.staging.leased(rooms, forms), strict=True):
                results[at] = array
        return results

    def _give_back(self, rooms: Iterable[object]) -> None:
        """Give back the memory of the pool among these, once each."""
        for memory in {room.memory for room in rooms if isinstance(room, Room)}:
            self._local_socket.staging.give_back(memory)


class PlannedPacket(Packet):
    """A run of a plan, some of whose tensors are in regions."""

    __slots__ = ("_plan", "regions", "told")

    def __init__(self, local_socket: LocalSocket | None, plan: Plan, run: Run) -> None:
        """Without a local socket for one that isn't local. Raises OutOfMemory, and whatever the daemon refuses to share
        memory with."""
        super().__init__(local_socket)  # type: ignore[arg-type]  # What isn't local asks it nothing.
        self._plan = plan
        self.told = plan.told
        # The three numbers of each.
        self.regions: list[int] = []
        if plan.region_inputs:
            self._place_inputs(plan.region_inputs, run)
        if plan.region_outputs:
            self._place_outputs(plan, run)
        if run.tensors is not None:
            run.tensors.begin()

    def _place_inputs(self, indexes: Sequence[int], run: Run) -> None:
        """Tell where these inputs are; they are copied where the daemon doesn't reach them."""
        inputs: Sequence[Any] = run.inputs
        sources: Sequence[Any] = [None] * len(inputs) if run.tensors is None else run.tensors.sources
        # Each with where its region is told.
        to_copy: list[tuple[int, Array]] = []
        for at in indexes:
            source, given = sources[at], inputs[at]
            if isinstance(source, DeviceBuffer):
                self.regions += (source.id, 0, given.nbytes)
            elif source is not None and source.is_sealed:
                self.regions += (self._local_socket.buffer_of(source), source.offset, given.nbytes)
            else:
                to_copy.append((len(self.regions), given))
                self.regions += _NOWHERE
        if to_copy:
            places = self._copy_in([array for _, array in to_copy])
            for (begin, _), place in zip(to_copy, places, strict=True):
                self.regions[begin : begin + 3] = place

    def _place_outputs(self, plan: Plan, run: Run) -> None:
        """Tell where the outputs go that don't come in the reply: to memory of the pool where the daemon doesn't reach
        that of their tensors."""
        given = None if run.tensors is None else run.tensors.targets
        targets: list[Any] = [None] * len(run.signature.outputs)
        # Index and length of each, with where its region is told.
        to_stage: list[tuple[int, int, int]] = []
        for at, size_bytes, _ in plan.region_outputs:
            target = targets[at] = None if given is None else given[at]
            if isinstance(target, DeviceBuffer):
                self.regions += (target.id, 0, target.room_bytes)
            elif target is not None and target.is_sealed:
                self.regions += (self._local_socket.buffer_of(target), target.offset, target.room_bytes)
            else:
                to_stage.append((at, size_bytes, len(self.regions)))
                self.regions += _NOWHERE
        if to_stage:
            rooms = self._local_socket.staging.take_rooms([size_bytes for _, size_bytes, _ in to_stage])
            for (at, _, begin), room in zip(to_stage, rooms, strict=True):
                targets[at] = room
                buffer_id = self._local_socket.buffer_of(room.memory)
                self.regions[begin : begin + 3] = buffer_id, room.offset, room.room_bytes
        self._targets = targets

    def outputs(self, reply: bytes) -> list[Any]:
        """The outputs of a planned reply, and those in regions."""
        if self._staged:
            self._give_back(self._staged)
        outputs = self._plan.outputs(reply)
        staged: dict[int, tuple[Room, Form]] = {}
        for at, size_bytes, (dtype, shape) in self._plan.region_outputs:
            target: Any = self._targets[at]
            if isinstance(target, Room):
                staged[at] = target, (dtype, shape)
                outputs.insert(at, None)
            elif isinstance(target, DeviceBuffer):
                outputs.insert(at, Stored(dtype, shape, size_bytes, target.place))
            else:
                outputs.insert(at, target.array(dtype, shape))
        return self._with_staged(outputs, staged) if staged else outputs


class Request(Packet):
    """A run as a LocalRequest."""

    __slots__ = ("_given", "_input_bytes", "_signature", "_unwanted", "message")

    def __init__(self, local_socket: LocalSocket, run: Run) -> None:
        """Raises OutOfMemory, and whatever the daemon refuses to share memory with."""
        super().__init__(local_socket)
        signature = run.signature
        self._signature = signature
        self._given: Sequence[SharedMemory | DeviceBuffer | None] | None = None
        # Lengths of the inputs, None for those in regions.
        self._input_bytes: list[int | None] = [None] * len(run.inputs)
        self.message = local_socket_pb2.LocalRequest()
        request = self.message.run
        request.CopyFrom(signature.prototype)
        request.run_id = run.id
        self._unwanted = run.unwanted
        if run.unwanted:
            request.unwanted_outputs.extend(run.unwanted)
        if run.timeout_ms:
            request.timeout_ms = run.remaining_ms
        tensors, room = run.tensors, PACKET_INLINE_BYTES
        to_copy: list[tuple[model_pb2.BufferRegion, Array]] = []
        for index, (message, given) in enumerate(zip(request.inputs, run.inputs, strict=True)):
            if signature.input_forms[index].size_bytes < 0:
                message.dimensions.extend(given.shape)
            size_bytes = given.nbytes
            if isinstance(given, Stored):
                message.data.region.CopyFrom(given.place)
                message.data.region.data_size = size_bytes
            elif size_bytes <= INLINE_BYTES and size_bytes <= room:
                room -= size_bytes
                message.data.inline = given.tobytes()
                self._input_bytes[index] = size_bytes
            elif (source := _sealed(tensors, index)) is not None:
                self._put(message.data.region, source, source.offset, size_bytes)
            else:
                to_copy.append((message.data.region, given))
        if to_copy:
            self._copy(to_copy)
        if tensors is not None:
            self._given = tensors.targets
            tensors.begin()
        if self._given is not None or not signature.gives_inline:
            self._place_outputs(request.outputs)
        request.plan = signature.plans.announced(run)

    def unpacked(self, run: Run, reply: "prepared_model_pb2.RunReply") -> list[Elements]:
        results = super().unpacked(run, reply)
        if reply.plan and reply.plan == self.message.run.plan:
            in_regions = [at for at, output in enumerate(reply.outputs) if output.data.HasField("region")]
            run.signature.plans.keep(run, reply.plan, self._input_bytes, results, in_regions)
        return results

    def _put(self, place: "model_pb2.BufferRegion", memory: SharedMemory, offset: int, size_bytes: int) -> None:
        """Have the daemon read or write there."""
        place.buffer_id, place.offset = self._local_socket.buffer_of(memory), offset
        place.data_size = size_bytes

    def _copy(self, inputs: "Sequence[tuple[model_pb2.BufferRegion, Array]]") -> None:
        """Have the daemon read inputs in memory of the pool, to which they are copied."""
        places = self._copy_in([array for _, array in inputs])
        for (message, _), place in zip(inputs, places, strict=True):
            message.buffer_id, message.offset, message.data_size = place

    def _place_outputs(self, messages: Any) -> None:
        """Tell the daemon where to write outputs that don't come in the reply."""
        room, signature = PACKET_INLINE_BYTES, self._signature
        to_stage: list[int] = []
        for at, spec in enumerate(signature.outputs):
            given = None if self._given is None else self._given[at]
            size_bytes = signature.expected_bytes(at)
            if isinstance(given, DeviceBuffer):
                self._targets.append(given)
            elif given is None and at in self._unwanted:
                self._targets.append(None)
            elif not (given and spec.is_dynamic) and size_bytes <= INLINE_BYTES and size_bytes <= room:
                room -= size_bytes  # Nothing is known of the size of one that varies before the first run.
                self._targets.append(None)
            elif given is not None and given.is_sealed:
                self._targets.append(given)
            else:
                self._targets.append(None)
                if size_bytes:
                    to_stage.append(at)
        if to_stage:
            sizes = [pooled_bytes(signature.expected_bytes(at)) for at in to_stage]
            for at, staged in zip(to_stage, self._local_socket.staging.take_rooms(sizes), strict=True):
                self._targets[at] = staged
        if not any(self._targets):
            self._targets.clear()
        for target in self._targets:
            place = messages.add()
            if isinstance(target, DeviceBuffer):
                place.data.region.CopyFrom(target.place)
            elif isinstance(target, Room):
                self._put(place.data.region, target.memory, target.offset, target.room_bytes)
            elif target is not None:
                self._put(place.data.region, target, target.offset, target.room_bytes)


class TracedRequest(Request):
    """A TracedRun packed for the local socket."""

    __slots__ = ()

    def __init__(self, local_socket: LocalSocket, run: Run) -> None:
        super().__init__(local_socket, run)
        for name, value in run.fields.items():
            setattr(self.message.run, name, value)


def _sealed(tensors: RunTensors | None, index: int) -> SharedMemory | None:
    """The memory of an input that the daemon can have as it is."""
    source = None if tensors is None else tensors.sources[index]
    return source if isinstance(source, SharedMemory) and source.is_sealed else None
