"""RPCs that free models and buffers in a daemon before the session ends."""

from typing import Any

from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, TimedOut, UnavailableDevice
from nnrt_hdi.signals import suppressed
from nnrt_hdi.v2 import device_pb2

# Errors after which the device has not decided about a request, so that the client may repeat it.
TRANSPORT_ERRORS = (UnavailableDevice, ConnectionFailed, TimedOut)


def release(session: Session, name: str, request: Any) -> None:
    """Make an RPC that frees a model or buffer in the daemon, and ignore transport errors.

    A daemon that is gone has freed it already, and the end of the session frees everything left.
    """
    if session.is_alive:
        with suppressed(*TRANSPORT_ERRORS):
            session.call(name, request, session.settings.query_timeout_s)


def release_buffer(session: Session, buffer_id: int) -> None:
    """Ask the daemon to free a device buffer, and ignore transport errors."""
    request = device_pb2.ReleaseBufferRequest(buffer_id=buffer_id)
    release(session, "NnrtDevice.ReleaseBuffer", request)
