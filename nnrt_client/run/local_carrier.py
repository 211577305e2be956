"""Runs to a daemon on this host: packets on the local socket, and tensors in memory that both have."""

import logging
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from nnrt_client.run.carrier import Lane
from nnrt_client.run.reply_reader import ReplyReader
from nnrt_client.run.run import Run
from nnrt_client.run.run_tensors import RunTensors
from nnrt_client.run.signature import INLINE_BYTES, PACKET_INLINE_BYTES
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.local_socket import LocalConnection, LocalSocket
from nnrt_client.session.session import Session
from nnrt_client.session.staging_pool import Form, Room, pooled_bytes
from nnrt_client.tensors.device_buffer import DeviceBuffer, Elements, Stored, received
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import local_socket_pb2, model_pb2, prepared_model_pb2

if TYPE_CHECKING:
    from nnrt_client.run.queue import RunQueue

_log = logging.getLogger(__name__)

# A number, for operations on flags of the enum take microseconds.
_AT_ONCE = int(getattr(socket, "MSG_DONTWAIT", 0))

_BROKEN = BrokenCall("the local socket broke off")


class LocalCarrier:
    """Opens connections of the local socket. See `Carrier`."""

    is_read_by_callers = True

    def __init__(self, session: Session, local_socket: LocalSocket, runs: "RunQueue") -> None:
        self._session = session
        self._local_socket = local_socket
        self._runs = runs
        self._reader = ReplyReader(f"nnrt-replies {session.address}")
        self._packet = Packet if session.tracer is None else TracedPacket

    def pack(self, run: Run) -> "Packet":
        return self._packet(self._local_socket, run)

    def opened(self, lane: Lane) -> "LocalStream":
        attachment, connection = self._session.attachment, LocalConnection(self._session)
        try:
            return LocalStream(connection, attachment, self._runs, self._reader, lane)
        except BaseException:
            connection.close()
            raise

    def end(self) -> None:
        self._reader.stop()

    def wait_ended(self, timeout_s: float) -> None:
        self._reader.join(timeout_s)


class Packet:
    """A run packed for the local socket: its request, and the shared memory that it uses."""

    __slots__ = ("_given", "_local_socket", "_signature", "_staged", "_targets", "_unwanted", "message")

    def __init__(self, local_socket: LocalSocket, run: Run) -> None:
        """Raises OutOfMemory, and whatever the daemon refuses to share memory with."""
        signature = run.signature
        self._local_socket = local_socket
        self._signature = signature
        # Memory of the pool that inputs lie in, to be given back.
        self._staged: Sequence[Room] = ()
        # Where the daemon writes outputs: memory of the tensors given for them, or of the pool; None for those that
        # come in the reply. Empty where all do.
        self._targets: list[SharedMemory | DeviceBuffer | Room | None] = []
        self._given: Sequence[SharedMemory | DeviceBuffer | None] | None = None
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

    def unpacked(self, reply: "prepared_model_pb2.RunReply") -> list[Elements]:
        """Take the outputs out of the reply and out of shared memory. Raises the error that the reply carries instead,
        InvalidParameter for a reply that makes no sense."""
        signature, targets = self._signature, self._targets
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

    def _put(self, place: "model_pb2.BufferRegion", memory: SharedMemory, offset: int, size_bytes: int) -> None:
        """Have the daemon read or write there."""
        place.buffer_id, place.offset = self._local_socket.buffer_of(memory), offset
        place.data_size = size_bytes

    def _copy(self, inputs: "Sequence[tuple[model_pb2.BufferRegion, Array]]") -> None:
        """Have the daemon read inputs in memory of the pool, to which they are copied."""
        self._staged = self._local_socket.staging.take_rooms([array.nbytes for _, array in inputs])
        for room, (place, array) in zip(self._staged, inputs, strict=True):
            room.array(array.dtype, array.shape)[...] = array
            self._put(place, room.memory, room.offset, array.nbytes)

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

    def _with_staged(self, results: list[Any], staged: dict[int, tuple[Room, Form]]) -> list[Elements]:
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


class TracedPacket(Packet):
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


class LocalStream:
    """One connection. See `Stream`."""

    def __init__(
        self, connection: LocalConnection, attachment: int, runs: "RunQueue", reader: ReplyReader, lane: Lane
    ) -> None:
        self.lane = lane
        self.run: Run | None = None
        self.answered = 0
        self.attachment = attachment
        self.is_over = False
        self._connection = connection
        self._runs = runs
        self._reader = reader
        self._packet: Packet | None = None

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, run: Run, packet: Packet) -> None:
        self._packet = run.packet = packet
        data = packet.message.SerializeToString()
        run.stamps.sent_ns = perf_counter_ns()
        with suppress(OSError):  # Who reads learns of it.
            self._connection.send(data)

    def read_here(self, run: Run) -> None:
        while self.run is run:
            try:
                reply = self._connection.receive()
            except BlockingIOError:
                continue
            except (OSError, DecodeError) as error:
                if isinstance(error, OSError) and error.errno is None:
                    raise  # Not the system's, but a signal handler's, such as a TimeoutError.
                reply = None
            self._take(reply)

    def read_elsewhere(self) -> None:
        if not self._reader.arm(self):
            self.read_ready()

    def read_ready(self) -> None:
        """Read a reply, if one has come, and hand it out."""
        run = self.run
        try:
            try:
                self._take(self._connection.receive(_AT_ONCE))
            except BlockingIOError:  # Another thread was first, or it was for another connection of this descriptor.
                pass
            except (OSError, DecodeError):
                self._take(None)
            if run is not None and self.run is run:
                self.read_elsewhere()
        except BaseException as error:  # No memory, perhaps. Others are read all the same.
            _log.exception("a reply could not be read")
            self._runs.could_not_read(self, run, error)

    def stop(self, run: Run) -> bool:
        self.read_elsewhere()
        return run.tensors is None or run.tensors.targets is None

    def shut_down(self) -> None:
        self._connection.end()

    def close(self) -> None:
        self._reader.disarm(self)
        self._connection.close()
        self._packet = None

    def _take(self, reply: "local_socket_pb2.LocalReply | None") -> None:
        """Hand out a reply, or the end of the connection, to the queue."""
        run, packet = self.run, self._packet
        if reply is None or not reply.HasField("run"):
            self._runs.lost(self, _BROKEN)
        elif run is None or packet is None or reply.run.run_id != run.id:
            _log.debug("a reply answers no run that is under way")
        elif reply.run.kept:
            self._runs.kept(self, run)
        else:
            run.stamps.answered_ns = perf_counter_ns()
            self._packet = None
            self._runs.answered(self, run)
            run.finish(partial(packet.unpacked, reply.run), reply.run)
