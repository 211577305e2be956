"""The three services: convert, call the device, convert back."""

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from nnrt_device_service.access.identity import Identity
from nnrt_device_service.access.refusals import DELAY_S
from nnrt_device_service.device import Device
from nnrt_device_service.host.log_context import say_about
from nnrt_device_service.memory.constants import MissingConstants
from nnrt_device_service.memory.device_memory import DevicePlace
from nnrt_device_service.memory.shared_files import FileRegion
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Build, Outcome, Program
from nnrt_device_service.runs.replies import COUNTED_BYTES, Replies, messages_of
from nnrt_device_service.runs.requests import inline_bytes, run_of
from nnrt_device_service.runs.tensors import put
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.settings import Settings
from nnrt_device_service.transport.grpc.admission import session_id_of, session_of
from nnrt_device_service.transport.grpc.identities import Identities, source_of
from nnrt_device_service.transport.grpc.run_stream import RunStream
from nnrt_hdi import HDI_VERSION, PROTOCOL_MINOR, wire
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.batching import FEATURE as BATCHING_FEATURE
from nnrt_hdi.chunks import FEATURE as CHUNKS_FEATURE
from nnrt_hdi.chunks import cut
from nnrt_hdi.compression import FEATURE, expanded
from nnrt_hdi.counters import FEATURE as COUNTERS_FEATURE
from nnrt_hdi.errors import InvalidParameter, NnrtError, UnavailableDevice, UnknownHandle
from nnrt_hdi.files.compiled import MAX_PARTS
from nnrt_hdi.files.file_part import FEATURE as FILES_FEATURE
from nnrt_hdi.files.model_store import FEATURE as STORE_FEATURE
from nnrt_hdi.graph import Constant
from nnrt_hdi.limits import MAX_RUN_IDS, REQUEST_ID_BYTES
from nnrt_hdi.run_times import TRACES_FEATURE
from nnrt_hdi.v2 import (
    device_pb2,
    device_pb2_grpc,
    model_pb2,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from nnrt_hdi.wire.packet import Bytes
from nnrt_hdi.wire.run_messages import Chunk

_CLIENT_NAME_LENGTH = 100
_USER_LENGTH = 100
_MAX_REASON_BYTES = 512

PartT = TypeVar("PartT")
_PrepareRequest = device_pb2.PrepareModelRequest | device_pb2.PrepareFromBuffersRequest


class DeviceSessionServicer(session_pb2_grpc.DeviceSessionServicer):
    def __init__(self, device: Device, settings: Settings, identities: Identities, local_socket: bytes = b"") -> None:
        self._device = device
        self._identities = identities
        self._settings = settings
        self._local_socket = local_socket

    def Open(self, requests: Iterator[session_pb2.SessionRequest], context: Any) -> Iterator[session_pb2.SessionReply]:
        sessions, hang_up = self._device.sessions, context.cancel
        session_id = session_id_of(context)
        session = self._opened(session_id, context)
        say_about(session.names)
        # gRPC doesn't tell a half-closed stream from a broken one for sure: only a client that says so is done.
        ending = sessions.close if session_id is None else partial(sessions.detach, hang_up=hang_up)
        hello = None
        try:
            hello = next(requests, None)
            if hello is None or hello.WhichOneof("request") != "hello":
                raise InvalidParameter("the first message of a session must be Hello", place="DeviceSession.Open")
            # For logs: on one line, and no longer than a name is.
            name, user = hello.hello.client_name[:_CLIENT_NAME_LENGTH], hello.hello.user[:_USER_LENGTH]
            session.client = f"{name!r} of {session.identity} at {context.peer()}"
            session.wants_compression = FEATURE in hello.hello.features
            if session_id is None:
                self._device.open_account(session, user)
                session.on_end = partial(self._audit_end, time.monotonic())
            what = "session opened" if session_id is None else "session resumed"
            self._audit(what, session, peer=context.peer(), client=name, user=user)
            ending = partial(sessions.detach, hang_up=hang_up)
            yield session_pb2.SessionReply(welcome=self._welcome(session))
            if (yield from self._beats(session, requests)):
                ending = partial(sessions.close, cause="the client said goodbye")
        except NnrtError as error:
            session.usage.count_error(error)
            if hello is not None:
                ending = partial(sessions.close, cause=str(error))
            raise
        finally:
            with self._device.freeing.awaited():
                ending(session)

    def _opened(self, session_id: bytes | None, context: Any) -> Session:
        """The session that a client opens, or resumes; a refusal is audited."""
        sessions, hang_up = self._device.sessions, context.cancel
        identity = self._identified(session_id, context)
        try:
            if session_id is not None:
                return sessions.resume(session_id, hang_up, identity)
            self._device.gate.require_open()
            # The session exists before Hello, so that a client that never sends one is hung up like any silent client.
            return sessions.open(context.peer(), hang_up, identity)
        except NnrtError as error:
            say_about({"identity": str(identity)})
            self._audit_refusal(str(identity), identity, context, error)
            raise

    def _identified(self, session_id: bytes | None, context: Any) -> Identity:
        """Who calls. Strangers who have been refused too often wait for it, in places of their host; where those are
        taken, few tokens are looked at. Whoever knows the id of a session is no stranger to its identity."""
        source, refusals = source_of(context.peer()), self._device.refusals
        place = source
        with suppress(UnknownHandle):
            place = str(self._device.sessions.of(session_id or b"").identity)
        with refusals.place(place) as has_place:
            try:
                return self._identities.of(context, lambda: has_place or refusals.may_look(place))
            except NnrtError as error:
                is_audited, is_over = self._audit_refusal(source, None, context, error), threading.Event()
                if has_place and not is_audited and context.add_callback(is_over.set):
                    is_over.wait(DELAY_S)
                raise

    def _audit_refusal(self, source: str, identity: Identity | None, context: Any, error: NnrtError) -> bool:
        self._device.sessions.counters.of(identity).count_error(error)
        about = {"peer": context.peer(), "method": "DeviceSession/Open", "cause": str(error)}
        return self._device.refusals.audit(source, identity, **about)

    def _audit(self, event: str, session: Session, **about: Any) -> None:
        self._device.audit.write(event, session.identity, session=session.label, **about)

    def _audit_end(self, since: float, session: Session, cause: str) -> None:
        self._audit("session ended", session, cause=cause, seconds=round(time.monotonic() - since, 3))

    def _beats(
        self, session: Session, requests: Iterator[session_pb2.SessionRequest]
    ) -> Generator[session_pb2.SessionReply, None, bool]:
        """Answer beats to the end of the stream; true if the client said goodbye."""
        for request in requests:
            session.touch()
            if stuck := self._device.stuck:
                raise UnavailableDevice(f"{stuck}; the daemon ends itself: load the model again, there or elsewhere")
            match request.WhichOneof("request"):
                case "beat":
                    state = wire.device_state_message(self._device.state)
                    clock_ns = time.perf_counter_ns()
                    beat = session_pb2.Beat(sequence=request.beat.sequence, state=state, clock_ns=clock_ns)
                    yield session_pb2.SessionReply(beat=beat)
                case "goodbye":
                    return True
                case other:
                    raise InvalidParameter(
                        f"after Welcome comes Beat or Goodbye, not {other or 'nothing'}",
                        place="DeviceSession.Open",
                    )
        return False

    def _welcome(self, session: Session) -> session_pb2.Welcome:
        device, settings = self._device, self._settings
        return session_pb2.Welcome(
            session_id=session.id,
            instance_id=device.instance_id,
            protocol_minor=PROTOCOL_MINOR,
            features=[
                BATCHING_FEATURE,
                CHUNKS_FEATURE,
                COUNTERS_FEATURE,
                *[FILES_FEATURE] * (self._local_socket != b""),
                *[FEATURE] * session.wants_compression,
                *[STORE_FEATURE] * device.models.stored.are_kept,
                *[TRACES_FEATURE] * settings.traces,
            ],
            hdi_major=HDI_VERSION[0],
            hdi_minor=HDI_VERSION[1],
            device=wire.device_info_message(device.info),
            limits=session_pb2.Limits(
                message_bytes=settings.message_bytes,
                session_bytes=settings.session_bytes,
                session_models=settings.session_models,
                session_streams=settings.session_streams,
                tensor_bytes=settings.tensor_bytes,
            ),
            heartbeat_timeout_ms=int(settings.heartbeat_timeout_s * 1000),
            lease_ms=int(settings.lease_s * 1000),
            local_socket=self._local_socket,
        )


class NnrtDeviceServicer(device_pb2_grpc.NnrtDeviceServicer):
    def __init__(self, device: Device, settings: Settings) -> None:
        self._device = device
        self._models = device.models
        self._settings = settings

    def GetDeviceStatus(
        self, request: device_pb2.GetDeviceStatusRequest, context: Any
    ) -> device_pb2.GetDeviceStatusReply:
        session_of(self._device, context)
        canary = self._device.canary
        return wire.device_status_message(self._device.status, canary.state if canary is not None else None)

    def GetCounters(self, request: device_pb2.GetCountersRequest, context: Any) -> device_pb2.GetCountersReply:
        return wire.counters_message(self._device.counters(session_of(self._device, context)))

    def GetSupportedOperation(
        self, request: device_pb2.GetSupportedOperationRequest, context: Any
    ) -> device_pb2.GetSupportedOperationReply:
        session, progress = session_of(self._device, context), Progress()
        context.add_callback(progress.cancellation.cancel)
        answers = self._models.supported(session, wire.graph(request.model), progress)
        return device_pb2.GetSupportedOperationReply(
            nodes=[
                device_pb2.NodeSupport(
                    supported=answer.supported,
                    reason=wire.shortened(answer.reason, _MAX_REASON_BYTES),
                    note=wire.shortened(answer.note, _MAX_REASON_BYTES),
                )
                for answer in answers
            ]
        )

    def PrepareModel(
        self, request: device_pb2.PrepareModelRequest, context: Any
    ) -> Iterator[device_pb2.PrepareModelReply]:
        session = session_of(self._device, context)
        yield from self._built(session, context, request, partial(self._models.prepare, wire.SentModel(request.model)))

    def PrepareModelFromModelCache(
        self, request: device_pb2.PrepareFromBuffersRequest, context: Any
    ) -> Iterator[device_pb2.PrepareModelReply]:
        session = session_of(self._device, context)
        buffers = _parts(request, partial(_part, session))
        yield from self._built(session, context, request, partial(self._models.restore, buffers))

    def PrepareOfflineModel(
        self, request: device_pb2.PrepareFromBuffersRequest, context: Any
    ) -> Iterator[device_pb2.PrepareModelReply]:
        if not request.program_format:
            # To a backend a vendor's model file is what it would have exported itself.
            yield from self.PrepareModelFromModelCache(request, context)
            return
        session = session_of(self._device, context)
        program = Program(request.program_format, _parts(request, _program_part))
        yield from self._built(session, context, request, partial(self._models.load_program, program))

    def UploadConstants(
        self, requests: Iterator[device_pb2.ConstantChunk], context: Any
    ) -> device_pb2.UploadConstantsReply:
        session = session_of(self._device, context)
        completed, sha256, size_bytes = 0, b"", 0
        unfinished: set[bytes] = set()
        try:
            for chunk in (chunk for message in requests for chunk in (message, *message.more)):
                sha256, size_bytes = (chunk.sha256, chunk.size_bytes) if chunk.sha256 else (sha256, size_bytes)
                unfinished.add(sha256)
                for offset, data in _uploaded(session, chunk):
                    if session.constants.write(sha256, size_bytes, offset, data):
                        unfinished.discard(sha256)
                        completed += 1
        finally:
            session.constants.pause(unfinished)
        return device_pb2.UploadConstantsReply(completed=completed)

    def AllocateBuffer(self, request: device_pb2.AllocateBufferRequest, context: Any) -> device_pb2.AllocateBufferReply:
        session = session_of(self._device, context)
        to_share = session.local_peer is not None
        buffer_id = session.buffers.allocate(request.length, to_share=to_share, heap=self._device.heap)
        region = model_pb2.BufferRegion(buffer_id=buffer_id, data_size=request.length)
        return device_pb2.AllocateBufferReply(
            buffer=model_pb2.SharedBuffer(region=region), is_on_device=session.buffers.is_on_device(buffer_id)
        )

    def ReleaseBuffer(self, request: device_pb2.ReleaseBufferRequest, context: Any) -> device_pb2.ReleaseBufferReply:
        session = session_of(self._device, context)
        with self._device.freeing.awaited():
            session.release_buffer(request.buffer_id)
        return device_pb2.ReleaseBufferReply()

    def WriteBuffer(self, requests: Iterator[device_pb2.BufferChunk], context: Any) -> device_pb2.WriteBufferReply:
        session = session_of(self._device, context)
        written = buffer_id = 0
        for chunk in requests:
            buffer_id = chunk.buffer_id or buffer_id
            put(session.buffers.writable_region(buffer_id, chunk.offset, len(chunk.data)), memoryview(chunk.data))
            written += len(chunk.data)
        return device_pb2.WriteBufferReply(written_bytes=written)

    def ReadBuffer(self, request: model_pb2.BufferRegion, context: Any) -> Iterator[device_pb2.BufferChunk]:
        session = session_of(self._device, context)
        region = session.buffers.region(request.buffer_id, request.offset, request.data_size)
        most_bytes = self._settings.message_bytes
        pieces = region.pieces(most_bytes) if isinstance(region, DevicePlace) else cut(region, most_bytes)
        for start, piece in pieces:
            yield device_pb2.BufferChunk(offset=request.offset + start, data=bytes(piece))

    def _built(
        self, session: Session, context: Any, request: _PrepareRequest, make: Callable[[Build], Outcome]
    ) -> Iterator[device_pb2.PrepareModelReply]:
        """The replies to a request for a model, which `make` makes."""
        config = wire.model_config(request.config, self._settings.tensor_bytes, self._settings.takes_programs)

        def prepare(progress: Progress) -> Outcome:
            return make(Build(session, config, progress, wire.batching(request)))

        yield from self._prepared(session, context, prepare, request.request_id)

    def _prepared(
        self, session: Session, context: Any, prepare: Callable[[Progress], Outcome], request_id: bytes = b""
    ) -> Iterator[device_pb2.PrepareModelReply]:
        """The replies of a compilation: its progress while it goes on, then its outcome."""
        if (made := _made_before(session, request_id)) is not None:
            yield _prepare_reply(made)
            return
        replies: queue.SimpleQueue[device_pb2.PrepareModelReply | None] = queue.SimpleQueue()

        def report(stage: str, fraction: float) -> None:
            reached = device_pb2.Progress(stage=stage, fraction=fraction)
            replies.put(device_pb2.PrepareModelReply(progress=reached))

        progress = Progress(report)
        if not context.add_callback(progress.cancellation.cancel):
            progress.cancellation.cancel()
        is_sending = False

        def release_unsent(model_id: int) -> None:
            """The client will never learn of it. (gRPC tells of the call's end, not of each message's way.)"""
            if not is_sending:
                session.release_model(model_id)

        def wanted() -> Outcome:
            outcome = prepare(progress)
            if isinstance(outcome, Prepared):
                release = partial(release_unsent, outcome.model_id)
                if not context.add_callback(release):  # The call is over already.
                    release()
            return outcome

        # The end of the block waits for the compilation, also where the client has gone: all that this call holds (its
        # count in the session, memory, the gate) is in use until then.
        began = time.monotonic()
        compiled = self._device.threads.submit(partial(copy_context().run, wanted))
        compiled.add_done_callback(lambda _: replies.put(None))
        try:
            yield from iter(replies.get, None)
        finally:
            wait([compiled])
        outcome = self._audited(session, compiled.result, began)
        is_sending = True
        if isinstance(outcome, Prepared):
            session.remember(request_id, outcome)
        yield _prepare_reply(outcome)

    def _audited(self, session: Session, result: Callable[[], Outcome], began: float) -> Outcome:
        """The outcome of a compilation, for the audit log too unless constants are missing yet."""
        about = {"session": session.label, "seconds": round(time.monotonic() - began, 3)}
        write = partial(self._device.audit.write, "model", session.identity, **about)
        try:
            outcome = result()
        except Exception as error:
            write(cause=str(error) if isinstance(error, NnrtError) else type(error).__name__)
            raise
        if isinstance(outcome, Prepared):
            write(model=outcome.model_id, origin=outcome.origin.name)
        return outcome


class PreparedModelServicer(prepared_model_pb2_grpc.PreparedModelServicer):
    def __init__(self, device: Device, settings: Settings, replies: Replies) -> None:
        self._device = device
        self._replies = replies
        self._settings = settings

    def Run(self, request: prepared_model_pb2.RunRequest, context: Any) -> prepared_model_pb2.RunReply:
        received_at_ns = time.perf_counter_ns()
        session = session_of(self._device, context)
        say_about({"model": request.model_id})
        remaining = context.time_remaining()
        cancellation = Cancellation(None if remaining is None else time.monotonic() + remaining)
        context.add_callback(cancellation.cancel)
        run = run_of(session, request, cancellation, received_at_ns)
        self._device.executing.execute(run)
        reply, inline_bytes = self._replies.message(run)
        if inline_bytes >= COUNTED_BYTES:
            session.budget.reserve(inline_bytes)
            release = partial(session.budget.release, inline_bytes)
            if not context.add_callback(release):  # The call is over already.
                release()
        return reply

    def RunStream(self, requests: Iterator[Bytes | Chunk], context: Any) -> Iterator[bytes]:
        session = session_of(self._device, context)
        message_bytes = self._settings.message_bytes
        yield from RunStream(self._device, self._replies, message_bytes, session, requests, context).messages()

    def AwaitRun(self, request: prepared_model_pb2.AwaitRunRequest, context: Any) -> Iterator[bytes]:
        session = session_of(self._device, context)
        context.add_callback(session.runs.wake)
        run = session.runs.reply_of(request.run_id, context.is_active)
        is_compressed, message_bytes = session.wants_compression, self._settings.message_bytes
        yield from messages_of(run.reply or b"", run, message_bytes, is_compressed=is_compressed)

    def CancelRuns(
        self, request: prepared_model_pb2.CancelRunsRequest, context: Any
    ) -> prepared_model_pb2.CancelRunsReply:
        if len(request.run_ids) > MAX_RUN_IDS:
            raise InvalidParameter(f"{len(request.run_ids)} run_ids were given; give at most {MAX_RUN_IDS} at a time")
        stopping = session_of(self._device, context).runs.cancel(request.run_ids)
        return prepared_model_pb2.CancelRunsReply(stopping_run_ids=stopping)

    def ExportModelCache(
        self, request: prepared_model_pb2.ExportModelCacheRequest, context: Any
    ) -> prepared_model_pb2.ExportModelCacheReply:
        session, progress = session_of(self._device, context), Progress()
        say_about({"model": request.model_id})
        context.add_callback(progress.cancellation.cancel)
        reply = prepared_model_pb2.ExportModelCacheReply()
        for buffer_id, size_bytes in self._device.models.export(session, request.model_id, progress):
            reply.buffers.add(region=model_pb2.BufferRegion(buffer_id=buffer_id, data_size=size_bytes))
        return reply

    def GetInputDimRanges(
        self, request: prepared_model_pb2.GetInputDimRangesRequest, context: Any
    ) -> prepared_model_pb2.GetInputDimRangesReply:
        say_about({"model": request.model_id})
        with session_of(self._device, context).model(request.model_id) as model:
            return wire.dim_ranges_message(model.prepared.input_ranges())

    def Release(self, request: prepared_model_pb2.ReleaseRequest, context: Any) -> prepared_model_pb2.ReleaseReply:
        session = session_of(self._device, context)
        if request.request_id:
            _require_request_id(request.request_id)
            session.give_up(request.request_id)
        else:
            with self._device.freeing.awaited():
                session.release_model(request.model_id)
        return prepared_model_pb2.ReleaseReply()


def _made_before(session: Session, request_id: bytes) -> Prepared | None:
    """The model that this very request has made, when its reply was lost."""
    if request_id:
        _require_request_id(request_id)
    return session.prepared_by(request_id)


def _require_request_id(request_id: bytes) -> None:
    if len(request_id) != REQUEST_ID_BYTES:
        raise InvalidParameter(f"request_id has {len(request_id)} bytes; use {REQUEST_ID_BYTES}, or none")


def _prepare_reply(outcome: Outcome) -> device_pb2.PrepareModelReply:
    if isinstance(outcome, MissingConstants):
        missing = [
            device_pb2.MissingConstant(sha256=sha256, received_bytes=received)
            for sha256, received in outcome.received_bytes.items()
        ]
        return device_pb2.PrepareModelReply(missing=device_pb2.MissingConstants(constants=missing))
    return device_pb2.PrepareModelReply(
        prepared=device_pb2.PreparedModelInfo(
            model_id=outcome.model_id,
            inputs=[wire.tensor_message(spec) for spec in outcome.inputs],
            outputs=[wire.tensor_message(spec) for spec in outcome.outputs],
            origin=wire.origin_number(outcome.origin),
            notes={wire.shortened(note, _MAX_REASON_BYTES): count for note, count in outcome.notes.items()},
        )
    )


def _parts(
    request: device_pb2.PrepareFromBuffersRequest, part: Callable[[model_pb2.SharedBuffer], PartT]
) -> list[PartT]:
    if len(request.buffers) > MAX_PARTS:
        raise InvalidParameter(f"there are {len(request.buffers)} buffers; use at most {MAX_PARTS}")
    return [wire.at_place(f"buffer {index}", partial(part, buffer)) for index, buffer in enumerate(request.buffers)]


def _part(session: Session, buffer: model_pb2.SharedBuffer) -> Constant | bytes | memoryview | DevicePlace:
    if buffer.HasField("constant"):
        return wire.named_constant(buffer.constant)
    if buffer.HasField("region"):
        region = buffer.region
        return session.buffers.region(region.buffer_id, region.offset, region.data_size)
    return inline_bytes(buffer)


def _uploaded(
    session: Session, chunk: device_pb2.ConstantChunk
) -> Iterator[tuple[int, bytes | memoryview | FileRegion]]:
    """The bytes of a chunk, where they are, and where they begin in their constant. Those in memory of the device are
    copied, some at a time."""
    if not chunk.HasField("region"):
        yield chunk.offset, expanded(chunk.data, chunk.expanded_bytes)
        return
    region = chunk.region
    regions = session.files if region.buffer_id in session.files else session.buffers
    data = regions.region(region.buffer_id, region.offset, region.data_size)
    if not isinstance(data, DevicePlace):
        yield chunk.offset, data
        return
    for start, piece in data.pieces():
        yield chunk.offset + start, memoryview(piece)


def _program_part(buffer: model_pb2.SharedBuffer) -> Constant | bytes:
    """A part that never changes, so that its digest says what is loaded."""
    if buffer.HasField("constant"):
        return wire.named_constant(buffer.constant)
    if buffer.HasField("inline"):
        return buffer.inline
    raise InvalidParameter("a part of a program is sent inline, or named by its digest")
