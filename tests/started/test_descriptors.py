"""What becomes of the descriptor of a connection whose replies other threads send."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from unittest.mock import Mock

import pytest
from storing_backend import StoringBackend
from waiting import until

from nnrt_device_service.device import Device
from nnrt_device_service.runs.frames import read_runs
from nnrt_device_service.runs.replies import Replies
from nnrt_device_service.settings import Settings
from nnrt_device_service.transport.local.batchers import LocalBatchers
from nnrt_device_service.transport.local.connection import LocalConnection
from nnrt_device_service.transport.local.reactor import Reactor
from nnrt_hdi.wire.packet import REQUEST_MARK, request_head
from started.conftest import DEADLINE_S

UNKNOWN = 7


class Watched(LocalConnection):
    """A connection that tells when it is served no more."""

    is_closed = False

    def close(self) -> None:
        super().close()
        self.is_closed = True


class Told(socket.socket):
    """A socket on which somebody does something before each packet is sent."""

    before_send: Callable[[], None] = staticmethod(lambda: None)

    def send(self, *arguments: object) -> int:
        self.before_send()
        return super().send(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device(StoringBackend(), Settings())
    yield device
    assert device.close(DEADLINE_S)


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor("a test")
    reactor.start()
    yield reactor
    reactor.stop()


def test_a_client_that_goes_before_its_reply_is_sent(device: Device, reactor: Reactor, closing: ExitStack) -> None:
    """The descriptor stays the connection's: the reply must not go to another client that gets its number."""
    session = device.sessions.open("client", lambda: None)
    device.open_account(session, "user")
    closing.callback(device.sessions.close, session)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection = Told(fileno=ours.detach())
    resources = ExitStack()
    resources.enter_context(connection)
    served = Watched(device, Replies(1 << 20), reactor, Mock(spec=LocalBatchers), session, connection, resources)
    numbers: list[int] = []

    def go() -> None:
        theirs.close()
        until(lambda: served.is_closed)
        numbers.append(connection.fileno())

    connection.before_send = go
    reactor.add(served)
    frame = request_head.pack(REQUEST_MARK, request_head.size, 1, 0, UNKNOWN, 0)
    served._start_all(read_runs(session, frame, time.perf_counter_ns()), (), lambda usual_ns: None)
    assert numbers
    assert -1 not in numbers
    assert connection.fileno() == -1
