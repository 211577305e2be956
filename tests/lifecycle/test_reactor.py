"""Few threads serve many connections, whatever one of them is at."""

import errno
import logging
import os
import select
import socket
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from observer import Observer
from shared_memory import descriptors_of
from typing_extensions import Self
from waiting import until

from nnrt_client import Compilation, Executor, Runtime
from nnrt_device_service.transport.local import turns
from nnrt_device_service.transport.local.reactor import Reactor
from nnrt_device_service.transport.local.served import Batcher, HandOver, ServedConnection

DEADLINE_S = 20.0


class Connection:
    """Answers each request with itself: at once, or, a `slow` or `stuck` one, when it is let go; a `short` one might
    have taken a millisecond. Its joint answers one that is `joined`, or `stuck and joined`. One that says so is set
    aside, and answered by `answer_later`."""

    def __init__(self, user: str = "user", session: object = None, joint: Batcher | None = None) -> None:
        self.user = user
        self.session = session or self
        self.joint = joint
        self.client, self._socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.client.settimeout(DEADLINE_S)
        self.let_go = threading.Event()
        self.closed = threading.Event()
        self.closed_times = 0
        self.is_aside = threading.Event()
        self.threads: list[int] = []
        self.when_served: Callable[[], None] = lambda: None
        self.failure: BaseException = ValueError("a bad request")
        self.failure_to_close: Exception | None = None
        self._serving = threading.Lock()
        # That it is connected to.
        self.reactor: Reactor | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def serve(self, hand_over: HandOver) -> bool | Batcher:
        assert self._serving.acquire(blocking=False), "two threads serve one connection"
        with self._socket.dup() as connection:
            request = connection.recv(100, socket.MSG_DONTWAIT)
            self.threads.append(threading.get_ident())
            if request:
                self.when_served()
            if request == b"bad":
                self._serving.release()
                raise self.failure
            if request == b"slow":
                hand_over(None)
            if request == b"short":
                hand_over(1_000_000)
            if request.endswith(b"aside"):
                assert self.reactor is not None
                self.reactor.set_aside(self)
                if request.startswith(b"slow"):
                    hand_over(None)
                self.is_aside.set()
                self._serving.release()
                return True
            if request in (b"slow", b"stuck", b"stuck and joined"):
                assert self.let_go.wait(DEADLINE_S)
            self._serving.release()
            if request.endswith(b"joined"):
                assert self.joint is not None
                return self.joint
            if request:
                connection.send(request)
        return bool(request)

    def close(self) -> None:
        self._socket.close()
        self.closed_times += 1
        self.closed.set()
        if self.failure_to_close is not None:
            raise self.failure_to_close

    def answer(self, reply: bytes) -> None:
        """Answer one that is joined, when the others are."""
        assert self._serving.acquire(blocking=False), "it is served before it is answered"
        with self._socket.dup() as connection:
            connection.send(reply)
        self._serving.release()

    def answer_later(self, reply: bytes) -> None:
        """Answer one that is set aside."""
        assert self.is_aside.wait(DEADLINE_S)
        self.is_aside.clear()
        assert self.reactor is not None
        # It is held first: whoever has it back may close it.
        with self._socket.dup() as connection:
            self.reactor.take_back(self)
            connection.send(reply)

    def ask(self, request: bytes) -> None:
        self.client.send(request)
        assert self.client.recv(100) == request

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self.client.close()
        assert self.closed.wait(DEADLINE_S)
        assert self.closed_times == 1


class Together:
    """Answers connections with how many are answered at once; when it is let go, if it is slow or stuck."""

    def __init__(self, pace: str = "quick") -> None:
        self.pace = pace
        self.began, self.let_go = threading.Event(), threading.Event()
        self.ended: Collection[ServedConnection] = ()
        self.failure: BaseException | None = None

    def answer(self, connections: Sequence[ServedConnection], hand_over: HandOver) -> Collection[ServedConnection]:
        self.began.set()
        if self.pace == "slow":
            hand_over(None)
        if self.pace != "quick":
            assert self.let_go.wait(DEADLINE_S)
        if self.failure is not None:
            raise self.failure
        for connection in connections:
            assert isinstance(connection, Connection)
            connection.answer(b"%d" % len(connections))
        return self.ended


class Crowd:
    """A reactor with connections."""

    def __init__(self, closing: ExitStack) -> None:
        self._closing = closing
        self._reactor = Reactor("reactor")
        closing.callback(self._reactor.stop)

    def start(self) -> None:
        self._reactor.start()

    def connect(self, user: str = "user", session: object = None, joint: Batcher | None = None) -> Connection:
        connection: Connection = self._closing.enter_context(Connection(user, session, joint))
        connection.reactor = self._reactor
        self._reactor.add(connection)
        return connection


@pytest.fixture
def late_crowd() -> Iterator[Crowd]:
    """It waits for its `start`."""
    with ExitStack() as closing:
        yield Crowd(closing)


@pytest.fixture
def crowd(late_crowd: Crowd) -> Crowd:
    late_crowd.start()
    return late_crowd


def members() -> int:
    return sum(thread.name == "reactor" for thread in threading.enumerate())


def test_one_thread_serves_what_is_quick(crowd: Crowd) -> None:
    connections = [crowd.connect() for _ in range(50)]
    for _ in range(3):
        for connection in connections:
            connection.client.send(b"quick")
        for connection in connections:
            assert connection.client.recv(100) == b"quick"
    assert len({thread for connection in connections for thread in connection.threads}) == 1
    assert members() == 2, "a leader, and the watchdog"


def test_what_is_short_wakes_nobody_for_one_who_is_alone(crowd: Crowd) -> None:
    alone, other = crowd.connect(), crowd.connect()

    def are_served_by_one(*connections: Connection) -> bool:
        threads: set[int] = set()
        for _ in range(50):
            for connection in connections:
                connection.ask(b"short")
                threads.add(connection.threads[-1])
        return len(threads) == 1

    alone.ask(b"short")
    until(lambda: are_served_by_one(alone), lambda: alone.threads)  # On a busy machine it may take long after all.
    until(lambda: not are_served_by_one(alone, other), lambda: other.threads)


def test_turns_go_round(late_crowd: Crowd) -> None:
    """Among users, whatever the number of their connections, and among the sessions of each."""
    served: list[str] = []

    class Session:
        pass

    connections = []
    for user, name, number in [("many", "many", 4)] * 3 + [("many", "one of many", 4), ("few", "few", 2)]:
        session = Session()
        for _ in range(number):
            connection = late_crowd.connect(user, session)
            connection.when_served = partial(served.append, name)
            for _ in range(8):
                connection.client.send(b"quick")
            connections.append(connection)
    late_crowd.start()
    for connection in connections:
        for _ in range(8):
            assert connection.client.recv(100) == b"quick"
    assert served[:32].count("few") == 16
    assert served[:32].count("one of many") == 4  # A fourth of the turns of many, for it is one session of four.


@pytest.mark.parametrize("request_", [b"slow", b"stuck"], ids=["that says so", "that doesn't"])
def test_nobody_waits_for_what_is_slow(crowd: Crowd, request_: bytes) -> None:
    """More of them than threads are kept: they come, and go again."""
    slow, other = [crowd.connect() for _ in range(12)], crowd.connect()
    for connection in slow:
        connection.client.send(request_)
        other.ask(b"quick")
    while members() < len(slow) + 2:  # With a deadline: that of the test.
        other.ask(b"quick")
    for connection in slow:
        connection.let_go.set()
        assert connection.client.recv(100) == request_
        connection.ask(b"quick")
    while members() > 6:
        other.ask(b"quick")


def test_a_connection_is_served_by_one_thread_at_a_time(crowd: Crowd) -> None:
    """A request that comes while another of its connection is answered waits, and keeps nobody busy."""
    slow, other = crowd.connect(), crowd.connect()
    slow.client.send(b"slow")
    for number in range(5):
        slow.client.send(b"%d" % number)
        other.ask(b"quick")
    assert len(slow.threads) == 1
    slow.let_go.set()
    assert [slow.client.recv(100) for _ in range(6)] == [b"slow", b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("request_", [b"aside", b"slow aside"], ids=["by its leader", "by who leads no more"])
def test_a_connection_that_is_set_aside(crowd: Crowd, request_: bytes) -> None:
    """It is served no more until it is taken back, and keeps nobody from being served."""
    aside, other = crowd.connect(), crowd.connect()
    other.ask(b"quick")
    for _ in range(3):
        served = len(aside.threads)
        aside.client.send(request_)
        aside.client.send(b"next")
        assert aside.is_aside.wait(DEADLINE_S)
        for _ in range(5):
            other.ask(b"quick")
        assert len(aside.threads) == served + 1
        aside.answer_later(b"later")
        assert {aside.client.recv(100), aside.client.recv(100)} == {b"later", b"next"}
        aside.ask(b"quick")


def test_a_connection_that_ends_while_it_is_set_aside(crowd: Crowd) -> None:
    gone, other = crowd.connect(), crowd.connect()
    gone.client.send(b"aside")
    assert gone.is_aside.wait(DEADLINE_S)
    gone.client.close()
    other.ask(b"quick")
    assert not gone.closed.is_set()
    with pytest.raises(BrokenPipeError):
        gone.answer_later(b"later")
    assert gone.closed.wait(DEADLINE_S)
    other.ask(b"quick")


def test_a_connection_that_ends_while_it_is_served(crowd: Crowd) -> None:
    gone, other = crowd.connect(), crowd.connect()
    gone.client.send(b"slow")
    other.ask(b"quick")
    gone.client.close()
    other.ask(b"quick")
    assert not gone.closed.is_set()
    gone.let_go.set()
    assert gone.closed.wait(DEADLINE_S)
    other.ask(b"quick")


@pytest.mark.parametrize("failure", [ValueError("a bad request"), SystemExit("the device's library wants to leave")])
def test_a_connection_that_fails_is_its_own_problem(
    crowd: Crowd, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    bad, other = crowd.connect(), crowd.connect()
    bad.failure = failure
    with caplog.at_level(logging.ERROR):
        bad.client.send(b"bad")
        assert bad.closed.wait(DEADLINE_S)
    assert "a connection could not be served" in caplog.text
    other.ask(b"quick")


def test_a_connection_that_cannot_be_closed(crowd: Crowd) -> None:
    bad, other = crowd.connect(), crowd.connect()
    bad.failure_to_close = ValueError("its run has no reply")
    bad.client.close()
    assert bad.closed.wait(DEADLINE_S)
    other.ask(b"quick")


def test_a_connection_that_cannot_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed, and the reactor ends without it."""
    epoll = select.epoll

    class FullEpoll:
        """The host's limit of what may be waited for is reached, in a while."""

        is_full = False

        def __init__(self) -> None:
            self._epoll = epoll()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._epoll, name)

        def register(self, fd: int, events: int) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._epoll.register(fd, events)

    with ExitStack() as closing:
        monkeypatch.setattr(select, "epoll", FullEpoll)
        reactor = Reactor("reactor")
        closing.callback(reactor.stop)
        monkeypatch.setattr(FullEpoll, "is_full", True)
        reactor.start()
        reactor.add(closing.enter_context(Connection()))
        reactor.stop()
        until(lambda: not members(), members)


def test_an_ended_reactor_leaves_nothing() -> None:
    """No thread, no descriptor; nor one that was never started."""
    before = descriptors_of("event")
    started, other = Reactor("reactor"), Reactor("reactor")
    started.start()
    with Connection() as connection:
        started.add(connection)
        connection.ask(b"quick")
        started.stop()
    other.stop()
    until(lambda: not members(), members)
    del started, other
    until(lambda: descriptors_of("event") <= before, lambda: descriptors_of("event"))


def test_no_thread_can_be_started(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then others wait, and nothing is lost."""

    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    slow, other = crowd.connect(), crowd.connect()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        slow.client.send(b"slow")
        other.client.send(b"quick")
        slow.let_go.set()
        assert slow.client.recv(100) == b"slow"
    assert other.client.recv(100) == b"quick"
    slow.ask(b"slow")


# ---- connections that are answered together


def test_those_that_are_ready_are_answered_together(late_crowd: Crowd) -> None:
    """What is alone is answered at once."""
    one, other = Together(), Together()
    connections = [late_crowd.connect(joint=joint) for joint in [one, other] * 3 + [one]]
    for connection in connections:
        connection.client.send(b"joined")
    late_crowd.start()
    assert [connection.client.recv(100) for connection in connections] == [b"4", b"3"] * 3 + [b"4"]
    connections[0].client.send(b"joined")
    assert connections[0].client.recv(100) == b"1"
    connections[0].ask(b"quick")
    assert members() == 2, "a leader, and the watchdog"


def test_those_that_wait_for_others_do_not_wait_for_what_is_slow(late_crowd: Crowd) -> None:
    """Which was ready after them, or is slow itself."""
    slow_joint = Together("slow")
    joined, last = (late_crowd.connect(joint=Together()) for _ in range(2))
    slow = late_crowd.connect()
    joined_slowly = [late_crowd.connect(joint=slow_joint) for _ in range(2)]
    for connection, request in [(joined, b"joined"), *((each, b"joined") for each in joined_slowly), (slow, b"slow")]:
        connection.client.send(request)
    last.client.send(b"joined")
    late_crowd.start()
    assert joined.client.recv(100) == b"1"
    assert last.client.recv(100) == b"1"
    assert slow_joint.began.wait(DEADLINE_S)
    slow.let_go.set()
    assert slow.client.recv(100) == b"slow"
    slow.ask(b"quick")
    slow_joint.let_go.set()
    assert [connection.client.recv(100) for connection in joined_slowly] == [b"2", b"2"]
    for connection in (joined, slow, last, *joined_slowly):
        connection.ask(b"quick")


@pytest.mark.parametrize("pace", ["slow", "stuck"])
def test_requests_of_those_that_are_being_answered_wait(crowd: Crowd, pace: str) -> None:
    """Also the end of one; and nobody else waits, whether the joint says that it is slow or not."""
    joint = Together(pace)
    connections, other = [crowd.connect(joint=joint) for _ in range(2)], crowd.connect()
    connections[0].client.send(b"joined")
    assert joint.began.wait(DEADLINE_S)
    connections[0].client.send(b"quick")
    connections[0].client.shutdown(socket.SHUT_WR)
    for _ in range(5):
        other.ask(b"quick")
    assert not connections[0].closed.is_set()
    joint.let_go.set()
    assert [connections[0].client.recv(100) for _ in range(2)] == [b"1", b"quick"]
    assert connections[0].closed.wait(DEADLINE_S)
    connections[1].ask(b"quick")


def test_one_that_took_long_to_be_read_is_answered(crowd: Crowd) -> None:
    """By the thread that read it, which doesn't lead any more."""
    late, other = crowd.connect(joint=Together()), crowd.connect()
    late.client.send(b"stuck and joined")
    other.ask(b"quick")
    late.let_go.set()
    assert late.client.recv(100) == b"1"
    late.ask(b"quick")


def test_some_end_with_their_answers(late_crowd: Crowd) -> None:
    joint = Together()
    connections = [late_crowd.connect(joint=joint) for _ in range(3)]
    joint.ended = connections[:2]
    for connection in connections:
        connection.client.send(b"joined")
    late_crowd.start()
    for connection in connections[:2]:
        assert connection.client.recv(100) == b"3"
        assert connection.client.recv(100) == b""
        assert connection.closed.wait(DEADLINE_S)
    assert connections[2].client.recv(100) == b"3"
    connections[2].ask(b"quick")


@pytest.mark.parametrize("failure", [ValueError("a bad joint"), SystemExit("the device's library wants to leave")])
def test_a_joint_that_fails_ends_those_that_joined(
    crowd: Crowd, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    joint = Together()
    joint.failure = failure
    bad, other = crowd.connect(joint=joint), crowd.connect(joint=joint)
    with caplog.at_level(logging.ERROR):
        bad.client.send(b"joined")
        assert bad.closed.wait(DEADLINE_S)
    assert "1 connections could not be served" in caplog.text
    other.ask(b"quick")


def test_the_more_are_ready_the_more_are_answered_together(crowd: Crowd) -> None:
    """Though others would be served in cohorts."""
    joint = Together()
    connections = [crowd.connect(joint=joint) for _ in range(3 * turns.WARM)]

    def most_at_once() -> int:
        for connection in connections:
            connection.client.send(b"joined")
        return max(int(connection.client.recv(100)) for connection in connections)

    until(lambda: most_at_once() > turns.WARM, most_at_once)


# ---- more sessions than caches have room for


def test_few_sessions_are_served_while_many_are_ready(late_crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each to its end, as long as it has more; among them those of all users."""
    monkeypatch.setattr(turns, "_COHORT_S", 3600.0)
    served: list[int] = []
    users = ["many"] * 3 * turns.WARM + ["few"]
    connections = [late_crowd.connect(user) for user in users]
    for number, connection in enumerate(connections):
        connection.when_served = partial(served.append, number)
        for _ in range(5):
            connection.client.send(b"quick")
    late_crowd.start()
    for connection in connections:
        for _ in range(5):
            assert connection.client.recv(100) == b"quick"
    first = set(served[: 5 * turns.WARM])
    assert len(first) == turns.WARM
    assert users.index("few") in first


def test_all_sessions_have_their_turns(late_crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are ready all the time."""
    monkeypatch.setattr(turns, "_COHORT_S", 0.0)
    served: list[int] = []
    connections = [late_crowd.connect() for _ in range(3 * turns.WARM)]
    for number, connection in enumerate(connections):
        connection.when_served = partial(served.append, number)
        for _ in range(3):
            connection.client.send(b"quick")
    late_crowd.start()
    for connection in connections:
        for _ in range(3):
            assert connection.client.recv(100) == b"quick"
    count = len(connections)
    # The last cohort of a round may be served beside the first of the next.
    assert all(len(set(served[at : at + count])) > count - turns.WARM for at in range(0, 3 * count, count))


@pytest.mark.parametrize("request_", [b"slow", b"stuck"], ids=["that says so", "that doesn't"])
def test_a_cohort_with_what_is_slow(late_crowd: Crowd, monkeypatch: pytest.MonkeyPatch, request_: bytes) -> None:
    """It keeps nobody waiting; nor does one who leaves."""
    monkeypatch.setattr(turns, "_COHORT_S", 3600.0)
    slow, gone = late_crowd.connect(), late_crowd.connect()
    others = [late_crowd.connect() for _ in range(2 * turns.WARM)]
    slow.client.send(request_)
    slow.client.send(b"quick")
    gone.client.shutdown(socket.SHUT_WR)
    for connection in others:
        connection.client.send(b"quick")
    late_crowd.start()
    for connection in others:
        assert connection.client.recv(100) == b"quick"
        connection.ask(b"quick")
    assert gone.closed.wait(DEADLINE_S)
    slow.let_go.set()
    assert [slow.client.recv(100) for _ in range(2)] == [request_, b"quick"]


def test_sessions_of_a_cohort_are_forgotten(late_crowd: Crowd) -> None:
    """When it is over, though nothing comes any more."""

    class Session:
        pass

    connections = [late_crowd.connect(session=Session()) for _ in range(2 * turns.WARM)]
    for connection in connections:
        connection.client.send(b"quick")
    late_crowd.start()
    for connection in connections:
        assert connection.client.recv(100) == b"quick"
    sessions = [weakref.ref(connection.session) for connection in connections]
    for connection in connections:
        connection.session = connection
    until(lambda: not any(session() for session in sessions), lambda: sessions)


# ---- runs


def test_a_run_that_was_always_quick_hangs(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The runs of others begin all the same."""
    gate, fifo = tmp_path / "gate", tmp_path / "fifo"
    gate.touch()
    os.mkfifo(fifo)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--concurrent-runs", "3")
    with ExitStack() as closing:
        observer = closing.enter_context(Observer(daemon.address))
        executors = []
        for _ in range(3):
            runtime = closing.enter_context(Runtime([daemon.address]))
            compilation = closing.enter_context(Compilation(identity_model(), runtime.device()))
            compilation.build()
            executors.append(closing.enter_context(Executor(compilation)))
        x = np.ones(1, np.float32)
        for _ in range(50):
            for executor in executors:
                executor.run_sync([x])
        fifo.rename(gate)
        runs = [executor.submit([x]) for executor in executors]
        observer.wait_for(lambda state: state.running == 3)
        assert all(run.cancel() for run in runs)
