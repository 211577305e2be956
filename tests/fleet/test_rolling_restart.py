"""Daemons that are restarted, drained and killed under load: no run fails, and every answer is right."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fleet_load import Array, Load, affine_model, affine_questions
from part import examples
from waiting import DEADLINE_S, until

from fleet.fleet_process import FleetProcess, fleet_file, kill_one, nnrt_device, ps
from nnrt_client import ModelSession, load

pytestmark = pytest.mark.slow

NAMES = ("ada", "bell", "curie")
RUNS = 100


def run(session: ModelSession, array: Array) -> Any:
    return session.run([array])["y"]


def submit(session: ModelSession, array: Array) -> Any:
    return session.submit([array]).result(DEADLINE_S)["y"]


@pytest.fixture
def loaded(request: pytest.FixtureRequest, start_fleet: Callable[..., FleetProcess], state: Path) -> Iterator[Load]:
    """Twice as many workers as there are daemons, on all of them."""
    start_fleet(fleet_file(state.parent / "fleet.toml", *NAMES, backend="timed", option=["ms=5"]))
    addresses = [device["addresses"][0] for device in ps(state).values()]
    way = getattr(request, "param", run)
    with (
        load(affine_model(), addresses, cache=False) as session,
        Load(partial(way, session), affine_questions(), 2 * len(NAMES)) as running,
    ):
        more_runs(running)
        yield running


def more_runs(load: Load) -> None:
    """Wait until many more runs have ended."""
    enough = load.runs + RUNS
    until(lambda: load.runs >= enough)


def command(state: Path, *arguments: str) -> None:
    done = nnrt_device(*arguments, "--state-dir", state)
    assert done.returncode == 0, done.stderr


def test_a_rolling_restart_fails_no_run(loaded: Load, state: Path) -> None:
    command(state, "restart", "--all", "--rolling")
    more_runs(loaded)
    assert not loaded.outcome().failures


def test_devices_that_are_drained_one_by_one_and_started_again_fail_no_run(loaded: Load, state: Path) -> None:
    for name in NAMES[1:]:
        command(state, "drain", name)
        more_runs(loaded)
    command(state, "restart", *NAMES[1:])
    command(state, "drain", NAMES[0])
    more_runs(loaded)
    assert not loaded.outcome().failures


@pytest.mark.parametrize("loaded", [run, submit], indirect=True)
def test_daemons_killed_at_random_fail_no_run(loaded: Load, state: Path) -> None:
    chance = random.Random(0)  # noqa: S311  (no secret)
    for _ in range(examples(20)):
        kill_one(state, chance)
        more_runs(loaded)
    assert not loaded.outcome().failures
