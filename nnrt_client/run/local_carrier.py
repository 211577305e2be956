"""Runs to a daemon on this host: packets on the local socket, and tensors in memory that both have."""

import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from nnrt_client.run.carrier import Lane
from nnrt_client.run.reply_reader import ReplyReader
from nnrt_client.run.run import Run
from nnrt_client.run.signature import INLINE_BYTES, PACKET_INLINE_BYTES
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.local_socket import LocalConnection, LocalSocket
from nnrt_client.session.session import Session
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

    def pack(self, run: Run) -> "Packet":
        return Packet(self._local_socket, run)

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
        # Memory that inputs lie in, to be given back.
        self._staged: list[SharedMemory] = []
        # Where the daemon writes outputs: memory of the tensors given for them, or of the pool; None for those that
        # come in the reply. Empty where all do.
        self._targets: list[SharedMemory | DeviceBuffer | None] = []
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
            else:
                self._share(message.data.region, given, None if tensors is None else tensors.sources[index])
        if tensors is not None:
            self._given = tensors.targets
            tensors.begin()
        if self._given is not None or not signature.gives_inline:
            self._place_outputs(request.outputs)

    def unpacked(self, reply: "prepared_model_pb2.RunReply") -> tuple[list[Elements], Sequence[int] | None]:
        """Take the outputs out of the reply and out of shared memory. Raises the error that the reply carries instead,
        InvalidParameter for a reply that makes no sense."""
        staging, signature, targets = self._local_socket.staging, self._signature, self._targets
        for memory in self._staged:
            staging.give_back(memory)
        if not targets or reply.HasField("error"):
            for target in targets:
                self._give_back(target)
            return signature.results(reply, {})
        outputs = reply.outputs
        signature.require_result_count(len(outputs))
        results: list[Elements] = []
        for at, (output, target) in enumerate(zip(outputs, targets, strict=True)):
            form = signature.result_form(at, output)
            if target is None and at in self._unwanted:
                results.append(received(form, output))
                continue
            signature.expect(at, form.size_bytes)
            if not output.data.HasField("region"):
                self._give_back(target)
                results.append(received(form, output))
            elif target is None or form.size_bytes > target.room_bytes:
                raise InvalidParameter(f"the reply says that {form.spec} is in memory that has no room for it")
            elif isinstance(target, DeviceBuffer):
                results.append(received(form, output))
            elif self._is_given(target):
                results.append(target.array(form.spec.numpy_dtype, form.shape))
            else:
                results.append(staging.leased(target, form.spec.numpy_dtype, form.shape))
        times = reply.times
        return results, (times.queued_ns, times.copied_in_ns, times.computed_ns, times.copied_out_ns)

    def located(self, results: Sequence[Elements]) -> list[Elements]:
        """The outputs of a reply that came in another way, as arrays where they lie in memory of this process. Raises
        InvalidParameter for a reply that makes no sense."""
        located: list[Elements] = []
        for result, target in zip_longest(results, self._targets):
            if not isinstance(target, SharedMemory):
                located.append(result)
            elif not isinstance(result, Stored):
                self._give_back(target)
                located.append(result)
            elif result.nbytes > target.room_bytes:
                raise InvalidParameter("the reply says that an output is in memory that has no room for it")
            elif self._is_given(target):
                located.append(target.array(result.dtype, result.shape))
            else:
                located.append(self._local_socket.staging.leased(target, result.dtype, result.shape))
        return located

    def _share(self, place: "model_pb2.BufferRegion", array: Array, source: SharedMemory | DeviceBuffer | None) -> None:
        """Have the daemon read an input in shared memory: where it lies, or in memory of the pool, to which it is
        copied."""
        if isinstance(source, SharedMemory) and source.is_sealed:
            memory, offset = source, source.offset
        else:
            memory, offset = self._local_socket.staging.take(array.nbytes), 0
            self._staged.append(memory)
            memory.array(array.dtype, array.shape)[...] = array
        place.buffer_id, place.offset = self._local_socket.buffer_of(memory), offset
        place.data_size = array.nbytes

    def _place_outputs(self, messages: Any) -> None:
        """Tell the daemon where to write outputs that don't come in the reply."""
        room, signature = PACKET_INLINE_BYTES, self._signature
        for at, spec in enumerate(signature.outputs):
            given = None if self._given is None else self._given[at]
            size_bytes = signature.expected_bytes(at)
            if isinstance(given, DeviceBuffer):
                self._targets.append(given)
            elif given is None and at in self._unwanted:
                self._targets.append(None)
            elif not spec.is_dynamic and size_bytes <= INLINE_BYTES and size_bytes <= room:
                room -= size_bytes
                self._targets.append(None)
            elif given is not None and given.is_sealed:
                self._targets.append(given)
            else:  # Nothing is known of its size before the first run.
                self._targets.append(self._local_socket.staging.take(size_bytes) if size_bytes else None)
        if not any(self._targets):
            self._targets.clear()
        for target in self._targets:
            place = messages.add()
            if isinstance(target, DeviceBuffer):
                place.data.region.CopyFrom(target.place)
            elif target is not None:
                region = place.data.region
                region.buffer_id = self._local_socket.buffer_of(target)
                region.offset, region.data_size = target.offset, target.room_bytes

    def _is_given(self, target: SharedMemory | DeviceBuffer | None) -> bool:
        return self._given is not None and any(target is given for given in self._given)

    def _give_back(self, target: SharedMemory | DeviceBuffer | None) -> None:
        if isinstance(target, SharedMemory) and not self._is_given(target):
            self._local_socket.staging.give_back(target)


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
        with suppress(OSError):  # Who reads learns of it.
            self._connection.send(packet.message.SerializeToString())

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
            self._packet = None
            self._runs.answered(self, run)
            run.finish(partial(packet.unpacked, reply.run))
