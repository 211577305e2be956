"""gRPC service DeviceSession: converts messages and calls the device."""

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from nnrt_device_service.device import Device
from nnrt_device_service.host.log_context import add_log_fields
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_device_service.transport.grpc.admission import session_id_of
from nnrt_device_service.transport.grpc.identities import Identities
from nnrt_hdi import HDI_VERSION, PROTOCOL_MINOR, wire
from nnrt_hdi.access.callers import host_of, source_at
from nnrt_hdi.access.identity import Identity
from nnrt_hdi.access.refusals import DELAY_S
from nnrt_hdi.batching import FEATURE as BATCHING_FEATURE
from nnrt_hdi.chunks import FEATURE as CHUNKS_FEATURE
from nnrt_hdi.compression import FEATURE
from nnrt_hdi.counters import FEATURE as COUNTERS_FEATURE
from nnrt_hdi.errors import InvalidParameter, NnrtError, UnavailableDevice, UnknownHandle
from nnrt_hdi.files.file_part import FEATURE as FILES_FEATURE
from nnrt_hdi.files.model_store import FEATURE as STORE_FEATURE
from nnrt_hdi.run_times import TRACES_FEATURE
from nnrt_hdi.sequences import FEATURE as SEQUENCES_FEATURE
from nnrt_hdi.v2 import (
    session_pb2,
    session_pb2_grpc,
)

_CLIENT_NAME_LENGTH = 100
_USER_LENGTH = 100


class DeviceSessionServicer(session_pb2_grpc.DeviceSessionServicer):
    def __init__(self, device: Device, settings: Settings, identities: Identities, local_socket: bytes = b"") -> None:
        self._device = device
        self._identities = identities
        self._settings = settings
        self._local_socket = local_socket

    def Open(self, requests: Iterator[session_pb2.SessionRequest], context: Any) -> Iterator[session_pb2.SessionReply]:
        sessions, hang_up = self._device.sessions, context.cancel
        session_id = session_id_of(context)
        session = self._open_session(session_id, context)
        add_log_fields(session.log_fields)
        # gRPC can't tell a half-closed stream from a broken one for sure, so only Goodbye ends a session at once.
        ending = sessions.close if session_id is None else partial(sessions.detach, hang_up=hang_up)
        hello = None
        try:
            hello = next(requests, None)
            if hello is None or hello.WhichOneof("request") != "hello":
                raise InvalidParameter("the first message of a session must be Hello", place="DeviceSession.Open")
            # For logs: on one line, and not too long.
            name, user = hello.hello.client_name[:_CLIENT_NAME_LENGTH], hello.hello.user[:_USER_LENGTH]
            session.client = f"{name!r} of {session.identity} at {context.peer()}"
            session.wants_compression = FEATURE in hello.hello.features
            if session_id is None:
                self._device.open_account(session, user, self._identities.role_of)
                session.on_end = partial(self._audit_end, time.monotonic())
            what = "session opened" if session_id is None else "session resumed"
            self._audit(what, session, peer=context.peer(), client=name, user=user)
            ending = partial(sessions.detach, hang_up=hang_up)
            yield session_pb2.SessionReply(welcome=self._welcome(session))
            if (yield from self._answer_beats(session, requests)):
                ending = partial(sessions.close, cause="the client said goodbye")
        except NnrtError as error:
            session.usage.count_error(error)
            if hello is not None:
                ending = partial(sessions.close, cause=str(error))
            raise
        finally:
            with self._device.freeing.await_own():
                ending(session)

    def _open_session(self, session_id: bytes | None, context: Any) -> Session:
        """Open or resume a session; a refusal goes to the audit log."""
        sessions, hang_up = self._device.sessions, context.cancel
        identity = self._identify(session_id, context)
        try:
            if session_id is not None:
                return sessions.resume(session_id, hang_up, identity)
            self._device.gate.require_open()
            # Before Hello arrives, so that a client that never sends one is hung up on like any silent client.
            return sessions.open(context.peer(), hang_up, identity)
        except NnrtError as error:
            add_log_fields({"identity": str(identity)})
            self._audit_refusal(str(identity), identity, context, error)
            if isinstance(error, UnknownHandle) and self._device.gate.is_closed:
                raise UnavailableDevice("it was shut down; load the model again, there or elsewhere") from error
            raise

    def _identify(self, session_id: bytes | None, context: Any) -> Identity:
        """Return the caller's identity; delay the refusal of callers that were refused too often.

        The number of delayed calls is limited for each host. If the limit is reached, only few tokens are checked. A
        caller that knows the id of a session counts in the limit of the session's identity instead.
        """
        source, refusals = source_at(host_of(context.peer())), self._device.refusals
        waiter = source
        with suppress(UnknownHandle):
            waiter = str(self._device.sessions.find(session_id or b"").identity)
        with refusals.reserve_wait(waiter) as may_wait:
            try:
                return self._identities.identify(context, lambda: may_wait or refusals.may_check(waiter))
            except NnrtError as error:
                is_audited, is_over = self._audit_refusal(source, None, context, error), threading.Event()
                if may_wait and not is_audited and context.add_callback(is_over.set):
                    is_over.wait(DELAY_S)
                raise

    def _audit_refusal(self, source: str, identity: Identity | None, context: Any, error: NnrtError) -> bool:
        self._device.sessions.counters.find(identity).count_error(error)
        about = {"peer": context.peer(), "method": "DeviceSession/Open", "cause": str(error)}
        return self._device.refusals.audit(source, identity, **about)

    def _audit(self, event: str, session: Session, **about: Any) -> None:
        self._device.audit.write(event, session.identity, session=session.label, **about)

    def _audit_end(self, since: float, session: Session, cause: str) -> None:
        self._audit("session ended", session, cause=cause, seconds=round(time.monotonic() - since, 3))

    def _answer_beats(
        self, session: Session, requests: Iterator[session_pb2.SessionRequest]
    ) -> Generator[session_pb2.SessionReply, None, bool]:
        """Answer beats until the stream ends; return True if the client sent Goodbye."""
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
                SEQUENCES_FEATURE,
                *[FILES_FEATURE] * (self._local_socket != b""),
                *[FEATURE] * session.wants_compression,
                *[STORE_FEATURE] * device.models.stored.has_store,
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
