"""A process with a pool that is interrupted at any point, forks, or ends: nobody hangs, and nothing is left."""

import os
import sys
from pathlib import Path

import pytest
import warm
from observer import Observer

from pool.conftest import Fleet
from pool.load import addresses

SCRIPT = Path(__file__).parent / "pool_process.py"
TESTS = SCRIPT.parents[1]
DEADLINE_S = 100.0


@pytest.mark.slow
@pytest.mark.parametrize(("what", "backend"), [("interrupted", "cached"), ("forked", "slow"), ("ends", "slow")])
def test_a_process_with_a_pool(fleet: Fleet, what: str, backend: str) -> None:
    daemons = fleet(2, "--backend", backend, "--lease-s", "60")
    ended = warm.run(
        [sys.executable, str(SCRIPT), what, *addresses(daemons)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS / "lifecycle"))),
            "PYTHONWARNINGS": "ignore::DeprecationWarning",  # Python's own, of a fork with threads.
        },
    )
    assert (ended.returncode, ended.stdout) == (0, "ok\n"), ended.stderr
    for daemon in daemons:
        with Observer(daemon.address) as observer:
            observer.wait_until_empty()
