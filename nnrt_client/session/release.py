"""Releasing what a session has in its daemon, before the session ends."""

from typing import Any

from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, TimedOut, UnavailableDevice
from nnrt_hdi.signals import suppressed
from nnrt_hdi.v2 import device_pb2

# Nothing was decided by the device: what was asked may be asked again.
TRANSPORT_ERRORS = (UnavailableDevice, ConnectionFailed, TimedOut)


def release(session: Session, name: str, request: Any) -> None:
    """Have the daemon free what the request names; one that is gone has done so, and the end of the session does."""
    if session.is_alive:
        with suppressed(*TRANSPORT_ERRORS):
            session.call(name, request, session.settings.query_timeout_s)


def release_buffer(session: Session, buffer_id: int) -> None:
    """Have the daemon free a buffer, as `release` does."""
    request = device_pb2.ReleaseBufferRequest(buffer_id=buffer_id)
    release(session, "NnrtDevice.ReleaseBuffer", request)
