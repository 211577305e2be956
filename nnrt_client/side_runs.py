"""How runs travel to a daemon on this host: packets on the side channel, and tensors in memory that both have."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import grpc

from nnrt_client.buffer import Buffer, Elements, Stored, received
from nnrt_client.connection import Connection
from nnrt_client.poller import Poller
from nnrt_client.region import Region
from nnrt_client.run_call import Outputs, RunCall, raising
from nnrt_client.run_streams import PendingRun, RunStream, RunStreams
from nnrt_client.side_channel import SideChannel, SideConnection
from nnrt_hdi import wire
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter, NnrtError
from nnrt_hdi.run_codec import Incoming
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import side_channel_pb2

_log = logging.getLogger(__name__)

# Tensors up to this size are part of a packet, as long as all of one direction together have no more than that.
_INLINE_BYTES = 16 << 10
_PACKET_INLINE_BYTES = 40 << 10


MemoryT = TypeVar("MemoryT", Region, Buffer)


@dataclass(frozen=True, slots=True)
class _Target(Generic[MemoryT]):
    """Where the daemon writes an output: a tensor's memory, or some on loan."""

    memory: MemoryT
    is_tensor: bool


class Parcel:
    """A run packed for the side channel: its request, and the memory that it uses."""

    def __init__(self, channel: SideChannel, call: RunCall) -> None:
        """Raises OutOfMemory, and whatever the daemon refuses to share memory with."""
        self._channel = channel
        self._call = call
        self._staged: list[Region] = []
        self._targets: list[_Target[Region] | _Target[Buffer] | None] = []
        self.message = side_channel_pb2.SideRequest()
        request = self.message.run
        request.CopyFrom(call.signature.prototype)
        request.takes_chunks = True  # Of a reply that is kept.
        self._pack_inputs(request.inputs)
        self._pack_outputs(request.outputs)

    def _pack_inputs(self, messages: Any) -> None:
        room = _PACKET_INLINE_BYTES
        call, staging = self._call, self._channel.staging
        for message, spec, array, source in zip(
            messages, call.signature.inputs, call.inputs, call.sources, strict=True
        ):
            if spec.is_dynamic:
                message.dimensions.extend(array.shape)
            if isinstance(array, Stored):
                message.data.region.CopyFrom(array.place)
                message.data.region.data_size = array.nbytes
                continue
            if array.nbytes <= _INLINE_BYTES and array.nbytes <= room:
                room -= array.nbytes
                message.data.inline = array.tobytes()
                continue
            if isinstance(source, Region) and source.is_sealed:
                region, offset = source, source.offset
            else:
                region, offset = staging.take(array.nbytes), 0
                self._staged.append(region)
                region.array(array.dtype, array.shape)[...] = array
            place = message.data.region
            place.buffer_id, place.offset = self._channel.buffer_of(region), offset
            place.data_size = array.nbytes

    def _pack_outputs(self, messages: Any) -> None:
        room = _PACKET_INLINE_BYTES
        call = self._call
        for at, spec in enumerate(call.signature.outputs):
            given = call.targets[at] if call.targets is not None else None
            size_bytes = call.signature.expected_bytes(at)
            if isinstance(given, Buffer):
                self._targets.append(_Target(given, True))
            elif not spec.is_dynamic and size_bytes <= _INLINE_BYTES and size_bytes <= room:
                room -= size_bytes
                self._targets.append(None)
            else:
                self._targets.append(self._target(given, size_bytes))
        if any(self._targets):  # Without any place all outputs come inline.
            for target in self._targets:
                self._pack_place(messages.add().data, target)

    def _pack_place(self, place: Any, target: _Target[Region] | _Target[Buffer] | None) -> None:
        if target is None:
            return
        memory = target.memory
        if isinstance(memory, Buffer):
            place.region.CopyFrom(memory.place)
        else:
            place.region.buffer_id = self._channel.buffer_of(memory)
            place.region.offset, place.region.data_size = memory.offset, len(memory.view)

    def _target(self, given: Region | None, size_bytes: int) -> _Target[Region] | None:
        """Memory for an output, None where nothing is known of its size."""
        if given is not None and given.is_sealed:
            return _Target(given, True)
        return _Target(self._channel.staging.take(size_bytes), False) if size_bytes else None

    def results(self, reply: Any, arrived: Mapping[int, Array]) -> list[Elements]:
        """The outputs in the reply, or that came beside it. Raises the error that it carries instead, InvalidParameter
        for one that makes no sense."""
        staging, signature = self._channel.staging, self._call.signature
        for region in self._staged:
            staging.give_back(region)
        if reply.HasField("error"):
            for target in self._targets:
                self._give_back(target)
            raise wire.error_from_detail(reply.error)
        outputs = reply.outputs
        signature.require_result_count(len(outputs))
        results: list[Elements] = []
        for at, (output, target) in enumerate(zip(outputs, self._targets, strict=True)):
            spec = signature.result_spec(at, output)
            if spec is not signature.outputs[at]:
                signature.expect(at, spec.byte_size)
            if not output.data.HasField("region"):
                self._give_back(target)
                is_beside = at in arrived
                results.append(arrived[at] if is_beside else wire.array_from_bytes(output.data.inline, spec))
            elif target is None or spec.byte_size > target.memory.room_bytes:
                raise InvalidParameter(f"the reply says that {spec} is in memory that has no room for it")
            elif isinstance(target.memory, Buffer):
                results.append(received(spec, output))
            elif target.is_tensor:
                results.append(target.memory.array(spec.numpy_dtype, spec.shape))
            else:
                results.append(staging.result(target.memory, spec.numpy_dtype, spec.shape))
        signature.run_times = wire.run_times(reply)
        return results

    def _give_back(self, target: _Target[Region] | _Target[Buffer] | None) -> None:
        if target is not None and isinstance(target.memory, Region) and not target.is_tensor:
            self._channel.staging.give_back(target.memory)


class SidePendingRun(PendingRun):
    """A run on the side channel."""

    # Packed as soon as it can be sent: shared memory is for those that are under way.
    parcel: Parcel | None = None

    @property
    def is_written_there(self) -> bool:
        return self.call.targets is not None

    def received(self, reply: Incoming, replies: Iterator[Incoming]) -> Outputs:
        if self.parcel is None:
            return super().received(reply, replies)
        return self.call.read(reply, replies, self.parcel.results, None)


class SideRuns(RunStreams):
    """Runs on connections of the side channel, one at a time on each.

    Starting one raises OutOfMemory where there is no memory to share, too.
    """

    _kind = SidePendingRun

    def __init__(self, connection: Connection, channel: SideChannel, fallback: RunStreams) -> None:
        self._channel = channel
        self._fallback = fallback
        self._poller = Poller(f"nnrt-replies {connection.address}")
        # Runs for which there is no memory to share, until the lock is free: what ends may call the application.
        self._stranded: list[PendingRun] = []
        super().__init__(connection)

    def enter_child(self, reason: NnrtError) -> None:
        self._poller.enter_child()
        super().enter_child(reason)

    def poll(self, stream: "_SideStream") -> None:
        """Have the reply on a stream read when it comes."""
        with self._changed:
            if self._death is None:
                self._poller.arm(stream)
            else:
                self.read_elsewhere(stream)

    def poll_unread(self, stream: "_SideStream", run: PendingRun | None) -> None:
        """The same, where the thread that was to read the reply of a run on it may have done so."""
        with self._changed:
            goes_on_with_others = stream in self._open and stream.run is not run
            if not goes_on_with_others and stream.fileno() >= 0:
                self.poll(stream)

    def finished(self, stream: RunStream) -> PendingRun | None:
        run = super().finished(stream)
        self._take_stranded_on()
        return run

    def _begin(self, run: PendingRun) -> None:
        assert isinstance(run, SidePendingRun)
        if self._has_room:  # Packed here, so that others don't wait for the lock meanwhile.
            run.parcel = Parcel(self._channel, run.call)
        super()._begin(run)
        self._take_stranded_on()

    def _take_stranded_on(self) -> None:
        """Let runs that can't go here go over gRPC."""
        if self._stranded:
            with self._changed:
                stranded, self._stranded = self._stranded, []
            for run in stranded:
                self._fallback.take_over(run)

    def wait_ended(self, timeout_s: float) -> None:
        self._poller.join(timeout_s)
        super().wait_ended(timeout_s)

    def _end_all(self, reason: NnrtError) -> None:
        super()._end_all(reason)
        self._poller.stop()

    def _place_waiting(self) -> None:
        """Where no connection can be had, those that wait go over gRPC."""
        super()._place_waiting()
        with self._changed:
            if not self._open and self._connection.is_attached:
                self._stranded += self._waiting.take_all()
        self._take_stranded_on()

    def _is_ready(self, run: PendingRun) -> bool:
        assert isinstance(run, SidePendingRun)
        if run.parcel is None:
            try:
                run.parcel = Parcel(self._channel, run.call)
            except (NnrtError, RuntimeError, MemoryError) as error:  # Such as no thread to be had.
                _log.debug("a run goes over gRPC: %s", error)
                run.is_callers = False  # Another thread may be the one that takes it on.
                self._stranded.append(run)
                return False
        return True

    def _new_stream(self) -> RunStream:
        return _SideStream(self, self._connection, self._channel.opened())


class _CutOff(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """What a connection that broke would be, were it an RPC."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the side channel broke off"

    def trailing_metadata(self) -> None:
        return None


class _SideStream(RunStream):
    """One connection. Its state is its owner's to change."""

    def __init__(self, streams: SideRuns, connection: Connection, side: SideConnection) -> None:
        self._runs = streams
        self._side = side
        # What has been read and takes time: a reply that must be fetched, or the end of the connection.
        self._unhandled: tuple[Any] | None = None
        super().__init__(streams, connection)
        self._opened_on = self._attachment

    @property
    def is_of_this_line(self) -> bool:
        """Whether the daemon has not broken it off; a reply may have been fetched on a later line."""
        return self._opened_on == self._connection.attachment

    def _open(self) -> None:
        """Nothing of gRPC is under way until a reply must be fetched."""

    def send(self, run: PendingRun) -> None:
        assert isinstance(run, SidePendingRun)
        assert run.parcel is not None
        run.stream = self
        self.run = run
        run.call.begin()
        request = run.parcel.message.run
        request.run_id = run.id
        if (remaining_ms := run.remaining_ms) is not None:
            request.timeout_ms = remaining_ms
        with suppress(OSError):  # Who reads learns of it.
            self._side.send(run.parcel.message)
        if not run.is_callers:
            self._runs.poll(self)

    def fileno(self) -> int:
        return self._side.fileno()

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self.hang_up()

    def hang_up(self) -> None:
        self._side.end()

    def close(self) -> None:
        self._side.close()

    def read_here(self) -> None:
        run = self.run
        try:
            self.read()
        except BaseException:  # Such as KeyboardInterrupt. The run ends when the daemon has confirmed it.
            self._runs.poll_unread(self, run)
            del run  # The error knows this frame.
            raise

    def read_ready(self) -> None:
        try:
            reply = self._side.receive_ready()
        except BlockingIOError:  # It was ready for another connection that had its descriptor.
            self._runs.poll(self)
            return
        except (OSError, ConnectionFailed):
            reply = None
        if reply is None or not reply.HasField("run") or reply.run.kept:
            self._unhandled = (reply,)
            self._runs.read_elsewhere(self)
        else:
            self._handle(reply)

    def read(self) -> None:
        """Hand out the reply of the run on it, or what came of the run."""
        if self._unhandled is not None:
            (reply,) = self._unhandled
        else:
            try:
                reply = self._side.receive()
            except (OSError, ConnectionFailed):
                reply = None
        self._unhandled = None
        self._handle(reply)

    def _handle(self, reply: Any) -> None:
        run = self.run
        if reply is None or not reply.HasField("run"):
            self._lose(_CutOff())
        elif reply.run.kept:
            failure = self._pursue(None)
            self._finish(raising(failure) if failure is not None else list)
        elif isinstance(run, SidePendingRun):
            assert run.parcel is not None
            self._finish(partial(run.parcel.results, reply.run, {}))
        else:  # It was abandoned.
            self._finish(list)
        run = None  # Its error knows this frame.
