"""One thread reads what comes on any number of sockets, and ends without a trace."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from shared_memory import descriptors_of, wait_for

from nnrt_client.poller import Poller

DEADLINE_S = 20.0


class Reply:
    """Waited for on a socket of its own."""

    def __init__(self, closing: ExitStack) -> None:
        self.there, self._here = (closing.enter_context(each) for each in socket.socketpair())
        self.is_read = threading.Event()
        self.then: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return self._here.fileno()

    def read_ready(self) -> None:
        self._here.recv(100, socket.MSG_DONTWAIT)
        self.is_read.set()
        self.then()


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as closing:
        yield closing


@pytest.fixture
def poller(closing: ExitStack) -> Poller:
    return Poller("poller")


def leave() -> None:
    raise SystemExit("an application's callback wants to leave")


def fail() -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("failure", [leave, fail])
def test_a_reply_that_leads_to_an_error(closing: ExitStack, poller: Poller, failure: Callable[[], None]) -> None:
    """Others are read all the same."""
    bad, other = Reply(closing), Reply(closing)
    bad.then = failure
    closing.callback(poller.stop)
    for reply in (bad, other):
        poller.arm(reply)
        reply.there.send(b"reply")
        assert reply.is_read.wait(DEADLINE_S)


def test_a_thread_that_cannot_be_started_at_first(
    closing: ExitStack, poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Reply(closing), Reply(closing)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda thread: fail())
        with pytest.raises(RuntimeError):
            poller.arm(first)
    poller.arm(second)
    closing.callback(poller.stop)
    for reply in (first, second):
        reply.there.send(b"reply")
        assert reply.is_read.wait(DEADLINE_S)


def test_a_reply_that_comes_while_it_stops(closing: ExitStack, poller: Poller, monkeypatch: pytest.MonkeyPatch) -> None:
    """It doesn't end before it is told to: who tells it would write to a descriptor that may be somebody else's."""
    before = descriptors_of("event")
    reply = Reply(closing)
    poller.arm(reply)
    write = os.eventfd_write

    def write_late(fd: int, number: int) -> None:
        reply.there.send(b"reply")
        assert reply.is_read.wait(DEADLINE_S)
        poller.join(0.1)
        write(fd, number)

    monkeypatch.setattr(os, "eventfd_write", write_late)
    poller.stop()
    poller.join(DEADLINE_S)
    wait_for(lambda: descriptors_of("event") < before, lambda: "it leaves descriptors")
