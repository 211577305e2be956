"""What sessions leave is freed by a thread that is there for that, one thing after another."""

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from waiting import until

from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.freeing import Freeing
from nnrt_hdi.errors import OutOfMemory

DEADLINE_S = 20.0
NO_TIME_S = 0.0


class FewThreads(Threads):
    """There may be none left."""

    has_some = True

    def run(self, work: Callable[[], object]) -> None:
        if not self.has_some:
            raise OutOfMemory("no thread is left")
        super().run(work)


@pytest.fixture
def threads() -> Iterator[FewThreads]:
    threads = FewThreads("device")
    yield threads
    threads.close()


def left_to(freeing: Freeing, close: Callable[[], object], on_freed: Callable[[], object] = lambda: None) -> None:
    freeing.expect()
    freeing.free("close a model", close, on_freed)


def test_in_order_and_by_another_thread(threads: FewThreads) -> None:
    freeing, done, by = Freeing(threads), list[str](), set[threading.Thread]()
    for name in "abc":
        left_to(freeing, lambda: by.add(threading.current_thread()), partial(done.append, name))
    assert freeing.await_all(DEADLINE_S)
    assert done == ["a", "b", "c"]
    assert threading.current_thread() not in by


def test_one_that_takes_long(threads: FewThreads) -> None:
    """Nobody waits for it, and it counts until it has ended."""
    freeing, may_end, freed = Freeing(threads), threading.Event(), list[str]()
    left_to(freeing, may_end.wait, partial(freed.append, "first"))
    left_to(freeing, lambda: None, partial(freed.append, "second"))
    assert not freeing.await_queued(NO_TIME_S)
    assert not freed
    assert [doing for _, doing in freeing.backend_calls] == ["close a model"]
    may_end.set()
    assert freeing.await_queued(DEADLINE_S)
    assert freed == ["first", "second"]
    assert not freeing.backend_calls


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_one_that_fails(threads: FewThreads, caplog: pytest.LogCaptureFixture, kind: type[BaseException]) -> None:
    freeing, freed = Freeing(threads), list[str]()

    def fail() -> None:
        raise kind("the vendor's mistake")

    for close in (fail, lambda: None):
        left_to(freeing, close, partial(freed.append, close.__name__))
    assert freeing.await_all(DEADLINE_S)
    assert freed == ["fail", "<lambda>"]
    assert "the vendor's mistake" in caplog.text


def test_who_left_nothing_waits_for_nobody(threads: FewThreads) -> None:
    """Neither for what others have left, nor for what its thread left before, when it did something else."""
    freeing, may_end, began = Freeing(threads), threading.Event(), time.monotonic()
    left_to(freeing, may_end.wait)
    with freeing.await_own(DEADLINE_S):
        pass
    assert time.monotonic() - began < DEADLINE_S
    assert freeing.backend_calls
    with freeing.await_own(NO_TIME_S):
        left_to(freeing, lambda: None)
    assert not freeing.await_queued(NO_TIME_S)
    with freeing.await_own(DEADLINE_S):
        left_to(freeing, lambda: None)
        may_end.set()
    assert freeing.await_queued(NO_TIME_S)


def test_what_is_in_use(threads: FewThreads) -> None:
    """The end of the daemon waits for it, a client that releases something else does not."""
    freeing = Freeing(threads)
    freeing.expect()
    left_to(freeing, lambda: None)
    assert freeing.await_queued(DEADLINE_S)
    assert not freeing.await_all(NO_TIME_S)
    freeing.free("free a buffer", lambda: None, lambda: None)
    assert freeing.await_all(DEADLINE_S)


def test_no_thread_is_left(threads: FewThreads) -> None:
    """It is freed when there is one again."""
    freeing, freed = Freeing(threads), list[str]()
    threads.has_some = False
    left_to(freeing, lambda: None, partial(freed.append, "first"))
    freeing.ensure_thread()
    assert not freed
    threads.has_some = True
    freeing.ensure_thread()
    assert freeing.await_all(DEADLINE_S)
    assert freed == ["first"]


def test_an_idle_thread_keeps_nothing_of_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the work that it was started for, nor of what it got later."""
    monkeypatch.setattr("nnrt_device_service.host.threads._IDLE_S", 1000.0)

    class Weights:
        pass

    threads = Threads("test")
    for _ in range(2):
        weights = Weights()
        gone, done = weakref.ref(weights), threading.Event()
        threads.run(partial(lambda _, done: done.set(), weights, done))
        del weights
        assert done.wait(20)
        until(lambda gone=gone: gone() is None)  # type: ignore[misc]
    threads.close()
