"""One thread reads what comes on any number of sockets, and ends without a trace."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from nnrt_client.run.reply_reader import ReplyReader
from shared_memory import descriptors_of
from waiting import until

DEADLINE_S = 20.0


class Reply:
    """Waited for on a socket of its own."""

    def __init__(self, closing: ExitStack) -> None:
        self.there, self._here = (closing.enter_context(each) for each in socket.socketpair())
        self.is_read = threading.Event()
        self.then: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return self._here.fileno()

    def close(self) -> None:
        self._here.close()

    def take(self, closing: ExitStack, fd: int) -> None:
        """Have the descriptor of that number, which nobody has, instead."""
        os.dup2(self._here.fileno(), fd, inheritable=False)
        self._here.close()
        self._here = closing.enter_context(socket.socket(fileno=fd))

    def read_ready(self) -> None:
        self._here.recv(100, socket.MSG_DONTWAIT)
        self.is_read.set()
        self.then()


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as closing:
        yield closing


@pytest.fixture
def reader(closing: ExitStack) -> ReplyReader:
    return ReplyReader("reader")


def leave() -> None:
    raise SystemExit("an application's callback wants to leave")


def fail() -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("failure", [leave, fail])
def test_a_reply_that_leads_to_an_error(closing: ExitStack, reader: ReplyReader, failure: Callable[[], None]) -> None:
    """Others are read all the same."""
    bad, other = Reply(closing), Reply(closing)
    bad.then = failure
    closing.callback(reader.stop)
    for reply in (bad, other):
        reader.arm(reply)
        reply.there.send(b"reply")
        assert reply.is_read.wait(DEADLINE_S)


def test_a_descriptor_that_is_closed_and_opened_again_while_it_is_armed(
    closing: ExitStack, reader: ReplyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has it now is read, not who had it."""
    former, later = Reply(closing), Reply(closing)
    closing.callback(reader.stop)

    def replace() -> None:
        reader.close(former, former.close)
        later.take(closing, fd)
        reader.arm(later)

    fd, replacing = former.fileno(), threading.Thread(target=replace)

    def ask() -> int:
        monkeypatch.undo()  # Those who ask later are told at once.
        replacing.start()
        replacing.join(0.1)  # If it needn't wait for who arms it, which has its number and nothing else.
        return fd

    monkeypatch.setattr(former, "fileno", ask)
    reader.arm(former)
    replacing.join(DEADLINE_S)
    later.there.send(b"reply")
    assert later.is_read.wait(DEADLINE_S)


def test_a_reply_that_comes_while_it_stops(
    closing: ExitStack, reader: ReplyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It doesn't end before it is told to: who tells it would write to a descriptor that may be somebody else's."""
    before = descriptors_of("event")
    reply = Reply(closing)
    reader.arm(reply)
    write = os.eventfd_write

    def write_late(fd: int, number: int) -> None:
        reply.there.send(b"reply")
        assert reply.is_read.wait(DEADLINE_S)
        reader.join(0.1)
        write(fd, number)

    monkeypatch.setattr(os, "eventfd_write", write_late)
    reader.stop()
    reader.join(DEADLINE_S)
    until(lambda: descriptors_of("event") < before, lambda: "it leaves descriptors")
