"""What the base class of models that start runs does for them, and listeners of a cancellation."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from nnrt_hdi.backend import Cancellation, RunEnd, StartableModel
from nnrt_hdi.errors import OperationFailed, TimedOut
from nnrt_hdi.tensor import Array

OnEnd = Callable[[RunEnd], None]
Start = Callable[[Sequence[Array], Cancellation, OnEnd], None]

ONE: Array = np.ones(1, np.float32)


class Model(StartableModel):
    inputs = outputs = ()

    def __init__(self, start: Start) -> None:
        self._start = start

    def start(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        on_end: OnEnd,
    ) -> None:
        self._start(inputs, cancellation, on_end)


def test_a_run_waits_for_an_end_that_another_thread_gives() -> None:
    threads = []

    def start(inputs: Sequence[Array], cancellation: Cancellation, on_end: OnEnd) -> None:
        threads.append(threading.Thread(target=on_end, args=([inputs[0] + 1],)))
        threads[0].start()

    (output,) = Model(start).run([ONE], Cancellation())
    threads[0].join()
    assert output == 2


def test_a_run_may_end_before_its_start_returns() -> None:
    assert Model(lambda inputs, _, on_end: on_end(tuple(inputs))).run([ONE], Cancellation()) == [ONE]


@pytest.mark.parametrize("error", [OperationFailed("too hot"), SystemExit("DMA fault")], ids=lambda error: repr(error))
def test_a_run_raises_what_it_ended_with(error: BaseException) -> None:
    with pytest.raises(type(error), match=str(error.args[0])):
        Model(lambda inputs, _, on_end: on_end(error)).run([ONE], Cancellation())


def test_a_run_raises_what_its_start_raises() -> None:
    def start(inputs: Sequence[Array], cancellation: Cancellation, on_end: OnEnd) -> None:
        raise OperationFailed("no queue is left")

    with pytest.raises(OperationFailed, match="no queue is left"):
        Model(start).run([ONE], Cancellation())


def test_a_second_end_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def start(inputs: Sequence[Array], cancellation: Cancellation, on_end: OnEnd) -> None:
        on_end(inputs)
        on_end(OperationFailed("too hot"))

    with caplog.at_level(logging.ERROR):
        assert Model(start).run([ONE], Cancellation()) == [ONE]
    assert "had ended already" in caplog.text


def test_a_run_is_cancelled_at_its_deadline() -> None:
    def start(inputs: Sequence[Array], cancellation: Cancellation, on_end: OnEnd) -> None:
        def stop() -> None:
            with pytest.raises(TimedOut) as raised:
                cancellation.check()
            on_end(raised.value)

        cancellation.on_cancel(stop)

    with pytest.raises(TimedOut, match="longer than it was given"):
        Model(start).run([ONE], Cancellation(time.monotonic()))


def test_a_run_goes_on_when_what_was_to_stop_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    """It is on the device until it ends: its memory and its model must not go before."""

    def start(inputs: Sequence[Array], cancellation: Cancellation, on_end: OnEnd) -> None:
        def fail() -> None:
            raise RuntimeError("no such job")

        cancellation.on_cancel(fail)
        cancellation.on_cancel(lambda: on_end(inputs))

    assert Model(start).run([ONE], Cancellation(time.monotonic())) == [ONE]
    assert "RuntimeError: no such job" in caplog.text


def test_a_listener_is_called_once() -> None:
    calls: list[str] = []
    cancellation = Cancellation()
    cancellation.on_cancel(lambda: calls.append("before"))
    cancellation.cancel()
    cancellation.cancel()
    cancellation.on_cancel(lambda: calls.append("after"))
    assert calls == ["before", "after"]


def test_a_listener_that_is_taken_back_is_not_called() -> None:
    calls: list[str] = []
    cancellation = Cancellation()
    take_back = cancellation.on_cancel(lambda: calls.append("taken back"))
    cancellation.on_cancel(lambda: calls.append("left"))
    take_back()
    take_back()
    cancellation.cancel()
    assert calls == ["left"]


def test_a_listener_may_take_back_others_and_itself() -> None:
    calls: list[str] = []
    cancellation = Cancellation()

    def first() -> None:
        take_back_first()
        take_back_second()
        calls.append("first")

    take_back_first = cancellation.on_cancel(first)
    take_back_second = cancellation.on_cancel(lambda: calls.append("second"))
    cancellation.cancel()
    assert calls == ["first"]


def test_taking_back_what_was_called_at_once_does_nothing() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    cancellation.on_cancel(lambda: None)()
