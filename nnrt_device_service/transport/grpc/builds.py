"""Calls that make models. Each is answered with a stream of replies: progress, then the outcome."""

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextvars import copy_context
from functools import partial
from typing import Any

from nnrt_device_service.device import Device
from nnrt_device_service.memory.constants import MissingConstants
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Build, Outcome
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.settings import Settings
from nnrt_device_service.transport.grpc.admission import at_end_of_call
from nnrt_hdi import wire
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.limits import REQUEST_ID_BYTES
from nnrt_hdi.v2 import (
    device_pb2,
)

_MAX_REASON_BYTES = 512

PrepareRequest = device_pb2.PrepareModelRequest | device_pb2.PrepareFromBuffersRequest


class Builds:
    """Server of calls that make models; it answers each with a stream of replies."""

    def __init__(self, device: Device, settings: Settings) -> None:
        self._device = device
        self._settings = settings

    def build(
        self, session: Session, context: Any, request: PrepareRequest, make: Callable[[Build], Outcome]
    ) -> Iterator[device_pb2.PrepareModelReply]:
        """Yield the replies to a request for a model; `make` makes the model."""
        config = wire.model_config(request.config, self._settings.tensor_bytes, self._settings.takes_programs)

        def prepare(progress: Progress) -> Outcome:
            outcome = make(Build(session, config, progress, wire.batching(request)))
            if request.pin and isinstance(outcome, Prepared):
                self._device.models.pin(session, outcome, progress.cancellation)
            return outcome

        yield from self._compile(session, context, prepare, request.request_id)

    def _compile(
        self, session: Session, context: Any, prepare: Callable[[Progress], Outcome], request_id: bytes = b""
    ) -> Iterator[device_pb2.PrepareModelReply]:
        """Yield the replies of a compilation: its progress while it goes on, then its outcome."""
        if (made := _find_made(session, request_id)) is not None:
            yield _prepare_reply(made)
            return
        replies: queue.SimpleQueue[device_pb2.PrepareModelReply | None] = queue.SimpleQueue()

        def report(stage: str, fraction: float) -> None:
            reached = device_pb2.Progress(stage=stage, fraction=fraction)
            replies.put(device_pb2.PrepareModelReply(progress=reached))

        progress = Progress(report)
        at_end_of_call(context, progress.cancellation.cancel)
        is_sending = False

        def release_unsent(model_id: int) -> None:
            """Release a model that the client never learns of, as its call ended before the reply was sent."""
            if not is_sending:
                session.release_model(model_id)

        def prepare_or_release() -> Outcome:
            outcome = prepare(progress)
            if isinstance(outcome, Prepared):
                at_end_of_call(context, partial(release_unsent, outcome.model_id))
            return outcome

        # The block waits for the compilation even if the client has gone: until then it uses what belongs to this call
        # (its count in the session, its memory, the drain gate).
        began = time.monotonic()
        compiled = self._device.threads.submit(partial(copy_context().run, prepare_or_release))
        compiled.add_done_callback(lambda _: replies.put(None))
        try:
            yield from iter(replies.get, None)
        finally:
            wait([compiled])
        outcome = self._audit_outcome(session, compiled.result, began)
        is_sending = True
        if isinstance(outcome, Prepared):
            session.remember(request_id, outcome)
        yield _prepare_reply(outcome)

    def _audit_outcome(self, session: Session, result: Callable[[], Outcome], began: float) -> Outcome:
        """Return the outcome of a compilation, and write it to the audit log unless constants are missing."""
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


def _find_made(session: Session, request_id: bytes) -> Prepared | None:
    """Return the model that a request with this id has already made, in case its reply was lost, or None."""
    if request_id:
        require_request_id(request_id)
    return session.prepared_by.get(request_id)


def require_request_id(request_id: bytes) -> None:
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
