"""The thread that makes spans: what it is given is bounded, and none of it is lost at the end."""

import logging
import threading

import pytest

from nnrt_hdi import spans
from nnrt_hdi.spans import Backlog

DEADLINE_S = 30.0


def test_what_waits_is_made_at_the_end() -> None:
    """More than it takes up in a second."""
    made: list[int] = []
    backlog = Backlog("backlog", most_per_s=10)
    for number in range(1000):
        backlog.put(lambda number=number: made.append(number))  # type: ignore[misc]
    backlog.join(DEADLINE_S)
    assert made == list(range(1000))


def test_what_comes_just_after_the_end_is_made() -> None:
    """Runs that end with a session are told of then."""
    backlog, made = Backlog("backlog"), threading.Event()
    backlog.end()
    backlog.put(made.set)
    assert made.wait(DEADLINE_S)
    backlog.join(DEADLINE_S)


def test_what_fails_is_logged_and_others_are_made(caplog: pytest.LogCaptureFixture) -> None:
    backlog, made = Backlog("backlog"), threading.Event()
    backlog.put(lambda: 1 // 0)
    backlog.put(made.set)
    backlog.join(DEADLINE_S)
    assert made.is_set()
    assert "could not be made" in caplog.text


def test_no_more_than_so_much_waits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What is left out is said, once in a while."""
    monkeypatch.setattr(spans, "_MOST_WAITING", 10)
    backlog, begun, go_on = Backlog("backlog"), threading.Event(), threading.Event()
    made: list[int] = []

    def hold() -> None:
        begun.set()
        go_on.wait(DEADLINE_S)

    backlog.put(hold)
    assert begun.wait(DEADLINE_S)
    with caplog.at_level(logging.WARNING):
        for number in range(25):
            backlog.put(lambda number=number: made.append(number))  # type: ignore[misc]
        go_on.set()
        backlog.join(DEADLINE_S)
    assert made == list(range(10))
    assert "15 runs were left out" in caplog.text
