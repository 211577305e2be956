"""How runs travel to a daemon on this host: packets on the side channel, and tensors in memory that both have."""

import queue
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import grpc

from nnrt_client.buffer import Buffer, Elements, Stored, received, sent_fields
from nnrt_client.connection import Connection
from nnrt_client.region import Region
from nnrt_client.run_call import Outputs, RunCall
from nnrt_client.run_streams import Decode, PendingRun, RunStream, RunStreams
from nnrt_client.side_channel import SideChannel, SideConnection
from nnrt_hdi import wire
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter, NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.limits import SIDE_PACKET_BYTES
from nnrt_hdi.run_codec import Incoming
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import model_pb2, side_channel_pb2

# Tensors up to this size are part of a packet, as long as all of one direction together have no more than that.
_INLINE_BYTES = 16 << 10
_PACKET_INLINE_BYTES = 40 << 10
# A packet has room for the id and the time limit, too, which are known when it is sent.
_LONGEST_REQUEST_BYTES = SIDE_PACKET_BYTES - 64


MemoryT = TypeVar("MemoryT", Region, Buffer)


@dataclass(frozen=True, slots=True)
class _Target(Generic[MemoryT]):
    """Where the daemon writes an output: a tensor's memory, or some on loan."""

    memory: MemoryT
    is_tensor: bool


class Parcel:
    """A run packed for the side channel: its request, and the memory that it uses."""

    def __init__(self, channel: SideChannel, call: RunCall) -> None:
        """Raises OutOfMemory, also where it doesn't fit into a packet, and whatever the daemon refuses to share memory
        with."""
        self._channel = channel
        self._call = call
        self._staged: list[Region] = []
        self._targets: list[_Target[Region] | _Target[Buffer] | None] = []
        self.message = side_channel_pb2.SideRequest()
        request = self.message.run
        request.model_id = call.signature.model_id
        request.takes_chunks = True  # Of a reply that is kept.
        self._pack_inputs(request.inputs)
        self._pack_outputs(request.outputs)
        if (size_bytes := self.message.ByteSize()) > _LONGEST_REQUEST_BYTES:  # Of many tensors, or long names.
            raise OutOfMemory(f"the request has {size_bytes} bytes, a packet room for {_LONGEST_REQUEST_BYTES}")

    def _pack_inputs(self, messages: Any) -> None:
        room = _PACKET_INLINE_BYTES
        call, staging = self._call, self._channel.staging
        for spec, array, source in zip(call.signature.inputs, call.inputs, call.sources, strict=True):
            if isinstance(array, Stored):
                messages.add(**sent_fields(spec, array))
                continue
            if array.nbytes <= min(_INLINE_BYTES, room):
                room -= array.nbytes
                messages.add(**wire.io_tensor_fields(spec, array))
                continue
            if isinstance(source, Region) and source.is_sealed:
                region, offset = source, source.offset
            else:
                region, offset = staging.take(array.nbytes), 0
                self._staged.append(region)
                region.array(array.dtype, array.shape)[...] = array
            place = model_pb2.BufferRegion(buffer_id=self._channel.buffer_of(region), offset=offset)
            messages.add(**wire.io_region_fields(spec, array.shape, array.nbytes, place))

    def _pack_outputs(self, messages: Any) -> None:
        room = _PACKET_INLINE_BYTES
        for at, spec in enumerate(self._call.signature.outputs):
            place = messages.add().data
            given = self._call.targets[at] if self._call.targets is not None else None
            if isinstance(given, Buffer):
                place.region.CopyFrom(given.place)
                self._targets.append(_Target(given, True))
                continue
            size_bytes = self._call.signature.expected_bytes(at)
            if not spec.is_dynamic and size_bytes <= min(_INLINE_BYTES, room):
                room -= size_bytes
                target = None
            else:
                target = self._target(given, size_bytes)
            self._targets.append(target)
            if target is not None:
                region = target.memory
                place.region.buffer_id = self._channel.buffer_of(region)
                place.region.offset, place.region.data_size = region.offset, len(region.view)

    def _target(self, given: Region | None, size_bytes: int) -> _Target[Region] | None:
        """Memory for an output, None where nothing is known of its size."""
        if given is not None and given.is_sealed:
            return _Target(given, True)
        return _Target(self._channel.staging.take(size_bytes), False) if size_bytes else None

    def results(self, reply: Any, arrived: Mapping[int, Array]) -> list[Elements]:
        """The outputs in the reply, or that came beside it. Raises the error that it carries instead, InvalidParameter
        for one that makes no sense."""
        staging = self._channel.staging
        for region in self._staged:
            staging.give_back(region)
        if reply.HasField("error"):
            for target in self._targets:
                self._give_back(target)
            raise wire.error_from_detail(reply.error)
        signature = self._call.signature
        signature.require_result_count(len(reply.outputs))
        results: list[Elements] = []
        for at, (output, target) in enumerate(zip(reply.outputs, self._targets, strict=True)):
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

    parcel: Parcel
    # Whether the thread that asked for it reads its reply, too.
    is_callers = False

    @property
    def is_written_there(self) -> bool:
        return self.call.targets is not None

    def read(self) -> None:
        """Wait for the reply, unless the run waits for its turn in the queue."""
        stream = self.stream
        if self.is_callers and isinstance(stream, _SideStream):
            del self  # Its error would know this frame: in a cycle, tensors would stay in memory.
            stream.read_here()

    def received(self, reply: Incoming, replies: Iterator[Incoming]) -> Outputs:
        return self.call.read(reply, replies, self.parcel.results, None)


class SideRuns(RunStreams):
    """Runs on connections of the side channel, one at a time on each.

    Who waits for a run reads its reply: no other thread need wake up. The replies of other runs are read by a few
    threads, of which there are as many as runs under way have needed so far.
    """

    def __init__(self, connection: Connection, channel: SideChannel, fallback: RunStreams) -> None:
        self._channel = channel
        self._fallback = fallback
        self._unread: queue.SimpleQueue[_SideStream | None] = queue.SimpleQueue()
        self._unread_count = 0
        super().__init__(connection)

    def submit(
        self,
        call: RunCall,
        decode: Decode,
        timeout_ms: int | None = None,
        priority: Priority = Priority.NONE,
        is_callers: bool = False,
    ) -> SidePendingRun:
        """Start a run, or queue it. Whoever starts one as the caller's calls its `read` next.

        Raises OutOfMemory where there is no memory to share, or a packet has no room for the run.
        """
        run = SidePendingRun(self._connection.next_run_id(), call, decode, timeout_ms, priority)
        run.parcel = Parcel(self._channel, call)
        run.is_callers = is_callers
        self._begin(run)
        return run

    def read_elsewhere(self, stream: "_SideStream") -> None:
        """Have a thread wait for the reply on a stream."""
        with self._changed:
            self._unread_count += 1
            if self._unread_count > len(self._readers):
                self._start_reader(self._read_all)
        self._unread.put(stream)

    def _place(self, run: PendingRun) -> None:
        assert isinstance(run, SidePendingRun)
        super()._place(run)
        if run.stream is None:
            run.is_callers = False  # It waits in the queue.

    def _place_waiting(self) -> None:
        """Where no connection can be had, those that wait go over gRPC."""
        with self._changed:
            for stream in [stream for stream in self._idle if not stream.is_of_this_line]:
                self._idle.remove(stream)
                self._retire(stream)
        super()._place_waiting()
        with self._changed:
            can_go_on = self._open or not self._connection.is_attached
            stranded = [] if can_go_on else self._waiting.take_all()
        for run in stranded:
            self._fallback.take_over(run)

    def _opened(self) -> "_SideStream":
        stream = _SideStream(self, self._connection, self._channel.opened())
        self._open.add(stream)
        return stream

    def _read_all(self) -> None:
        while (stream := self._unread.get()) is not None:
            stream.read()
            with self._changed:
                self._unread_count -= 1
                if self._death is not None:
                    return
            stream = None  # It keeps no tensors alive.

    def _retire(self, stream: RunStream) -> None:
        """Nobody reads it, who would notice."""
        assert isinstance(stream, _SideStream)
        self._open.discard(stream)
        stream.close()
        if stream.answered:  # The next request would have told the daemon so.
            self.forget(stream.answered)

    def _end_all(self, reason: NnrtError) -> None:
        super()._end_all(reason)
        with self._changed:
            for _ in self._readers:
                self._unread.put(None)


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
        self._side = side
        self._side_runs = streams
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
            self._side_runs.read_elsewhere(self)

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self.hang_up()

    def hang_up(self) -> None:
        self._side.end()

    def close(self) -> None:
        """Give the connection back. Nobody may be reading it."""
        self._side.close()

    def read_here(self) -> None:
        """`read` in a thread of the application."""
        try:
            self.read()
        except BaseException:  # Such as KeyboardInterrupt.
            self._side_runs.read_elsewhere(self)
            raise

    def read(self) -> None:
        """Hand out the reply of the run on it, or what came of the run."""
        try:
            reply = self._side.receive()
        except (OSError, ConnectionFailed):
            reply = None
        if reply is None or not reply.HasField("run"):
            self._lose()
        elif reply.run.kept:
            failure = self._pursue(None)
            run = self._streams.finished(self)
            if run is None:
                self.close()
            elif failure is not None:
                run.fail(failure)
        else:
            run = self._streams.finished(self)
            if run is not None:
                assert isinstance(run, SidePendingRun)
                run.end(partial(run.parcel.results, reply.run, {}))
            else:  # It was abandoned, and this connection with it.
                self.close()
            run = None  # Its error knows this frame, too.

    def _lose(self) -> None:
        """The connection is over; the reply may be had in another way."""
        self._streams.broken(self)
        failure = self._pursue(_CutOff()) or OperationFailed("the daemon ended the run", place=self._connection.place)
        run = self._streams.lost(self)
        if run is not None:
            run.fail(failure)
        self._side.close()
