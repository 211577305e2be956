"""How long a supervisor waits before it starts a daemon again."""

import random

import pytest

from nnrt_device_service.fleet.backoff import Backoff


def test_the_wait_of_a_daemon_that_is_never_ready_doubles_up_to_half_a_minute() -> None:
    backoff = Backoff()
    waits = [backoff.wait_s(0.0) for _ in range(12)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30])


def test_it_halves_for_every_five_seconds_that_it_was_ready() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.wait_s(0.0)
    assert backoff.wait_s(10.0) == pytest.approx(0.8)
    assert backoff.wait_s(60.0) == pytest.approx(0.1)


def test_a_daemon_that_is_killed_again_and_again_is_away_for_a_small_part_of_the_time() -> None:
    backoff, chance = Backoff(), random.Random(0)  # noqa: S311  (no secret)
    served = [chance.expovariate(1 / 8) for _ in range(1000)]
    assert sum(map(backoff.wait_s, served)) < sum(served) / 10


def test_one_that_was_ready_need_not_wait_where_nothing_else_serves() -> None:
    """One that didn't get ready waits ever longer all the same."""
    backoff = Backoff()
    waits = []
    for ready_s in (1.0, 1.0, 0.0, 0.0, 0.0, 1.0):
        backoff.wait_s(ready_s)
        waits.append(backoff.least_wait_s)
    assert waits == pytest.approx([0, 0, 0.1, 0.2, 0.4, 0])
    for _ in range(12):
        backoff.wait_s(0.0)
    assert backoff.least_wait_s == pytest.approx(30)
