"""Calls that free what a session has in its daemon, before the session ends."""

from typing import Any

from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, TimedOut, UnavailableDevice
from nnrt_hdi.signals import suppressed
from nnrt_hdi.v2 import device_pb2

# The device has decided nothing about the request, so the client may repeat it.
TRANSPORT_ERRORS = (UnavailableDevice, ConnectionFailed, TimedOut)


def release(session: Session, name: str, request: Any) -> None:
    """Ask the daemon to free what the request names.

    A daemon that is gone has freed it already, and the end of the session frees whatever this call doesn't.
    """
    if session.is_alive:
        with suppressed(*TRANSPORT_ERRORS):
            session.call(name, request, session.settings.query_timeout_s)


def release_buffer(session: Session, buffer_id: int) -> None:
    """Ask the daemon to free a device buffer, as `release` does."""
    request = device_pb2.ReleaseBufferRequest(buffer_id=buffer_id)
    release(session, "NnrtDevice.ReleaseBuffer", request)
