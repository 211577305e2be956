"""Compilations of many clients, of which a daemon does so many at a time."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue

import pytest
from conftest import StartDaemon
from networks import identity_model
from waiting import DEADLINE_S

from nnrt_client import Compilation, OperationFailed, Runtime


class Builds:
    """Clients that build at the same time, each with a session of its own."""

    def __init__(self, address: str, closing: ExitStack) -> None:
        self._address = address
        self._closing = closing
        self._threads = closing.enter_context(ThreadPoolExecutor(4))

    def start(self) -> "Build":
        runtime = self._closing.enter_context(Runtime([self._address]))
        compilation = self._closing.enter_context(Compilation(identity_model(), runtime.device()))
        stages: SimpleQueue[str] = SimpleQueue()
        future = self._threads.submit(compilation.build, lambda stage, _: stages.put(stage))
        self._closing.callback(compilation.cancel)
        return Build(compilation, stages, future)


class Build:
    """A build under way, and what its client hears of it."""

    def __init__(self, compilation: Compilation, stages: "SimpleQueue[str]", future: "Future[None]") -> None:
        self._compilation = compilation
        self._stages = stages
        self._future = future

    def wait_until(self, stage: str) -> None:
        while self._stages.get(timeout=DEADLINE_S) != stage:
            pass

    def give_up(self) -> None:
        self._compilation.cancel()
        with pytest.raises(OperationFailed):
            self._future.result(DEADLINE_S)


@pytest.fixture
def builds(start_daemon: StartDaemon) -> Iterator[Builds]:
    """On a daemon that compiles one model at a time, and until its client gives up."""
    daemon = start_daemon("--backend", "compiling", "--concurrent-compilations", "1", "--share-models", "none")
    with ExitStack() as closing:
        yield Builds(daemon.address, closing)


def test_the_next_begins_when_one_has_ended(builds: Builds) -> None:
    first = builds.start()
    first.wait_until("compiling")
    second = builds.start()
    second.wait_until("waiting")
    first.give_up()
    second.wait_until("compiling")


def test_one_that_nobody_wants_any_more_leaves_the_queue(builds: Builds) -> None:
    first = builds.start()
    first.wait_until("compiling")
    second, third = builds.start(), builds.start()
    for build in (second, third):
        build.wait_until("waiting")
    second.give_up()
    first.give_up()
    third.wait_until("compiling")
