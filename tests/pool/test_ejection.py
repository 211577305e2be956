"""Devices that are slow or fail get no runs for a while, and are tried by copies of runs that nobody waits for."""

import logging
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import until

from nnrt_client import Pool, load
from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.replica import Replica
from pool.conftest import Fleet
from pool.load import Load, addresses, states

ONE = np.ones(1, np.float32)
FAST, SLOW, FAILS = "0.005", "0.1", "no seconds"


@pytest.fixture
def pace(tmp_path: Path) -> Path:
    """The seconds that a run of the backend `paced` takes."""
    path = tmp_path / "pace"
    path.write_text(FAST)
    return path


@pytest.mark.parametrize("wrong", [SLOW, FAILS], ids=["slow", "fails"])
def test_it_is_ejected_and_taken_back(fleet: Fleet, start_daemon: StartDaemon, pace: Path, wrong: str) -> None:
    """No run is failed by it, and none that is asked for pays for a trial."""
    good = fleet(3, "--backend", "steady", "--option", f"seconds={FAST}")
    moody = start_daemon("--backend", "paced", "--option", f"file={pace}")
    with Pool([*addresses(good), moody.address]) as pool, pool.load(identity_model()) as session:
        with Load(session, threads=4) as running:
            running.wait_for_runs()
            pace.write_text(wrong)
            until(lambda: states(pool)[moody.address] == "ejected" or running.errors, pool.members)
            (member,) = (member for member in pool.members() if member.address == moody.address)
            assert member.ejected_s > 0
            assert "slow, or failed" in member.why
            assert moody.address not in {device.address for device in session.devices}
            # It is tried, and ejected for longer. What it had been given before has ended by then.
            until(lambda: _ejected_s(pool, moody.address) > 1 or running.errors, pool.members)
            runs, failures = _counts(pool, moody.address)
            running.wait_for_runs()
            assert _counts(pool, moody.address) == (runs, failures)
            pace.write_text(FAST)
            until(lambda: states(pool)[moody.address] == "ready" or running.errors, pool.members)
            running.wait_for_runs()
            until(lambda: _counts(pool, moody.address)[0] > runs)
        assert not running.errors


def _ejected_s(pool: Pool, address: str) -> float:
    return next(member.ejected_s for member in pool.members() if member.address == address)


def _counts(pool: Pool, address: str) -> tuple[int, int]:
    return next((member.runs, member.failures) for member in pool.members() if member.address == address)


def test_runs_that_are_held_up_together_are_one_slow_run(shared_daemon: DaemonProcess) -> None:
    with load(identity_model(), shared_daemon.address) as session:
        replica = Replica(Candidate(shared_daemon.address), session, 1e-3)
        replica.slow_s = 0.0
        for _ in range(8):
            replica.count_run(60.0)
        assert replica.slow_in_a_row == 1
        replica.count_run(1e-9)
        replica.count_run(1e-9)
        assert replica.slow_in_a_row == 3


def test_a_run_that_waited_for_others_is_not_slow(shared_daemon: DaemonProcess) -> None:
    with load(identity_model(), shared_daemon.address) as session:
        replica = Replica(Candidate(shared_daemon.address), session, 1e-3)
        replica.slow_s = 0.5
        replica.count_run(60.0, queued_s=59.9)
        assert replica.slow_in_a_row == 0 and replica.latency_s == 60
        assert replica.own_s == pytest.approx(0.1)


def test_never_the_last_one(fleet: Fleet, start_daemon: StartDaemon, pace: Path) -> None:
    """Half of them at most; and where only slow ones are left, they run."""
    (good,) = fleet(1, "--backend", "steady", "--option", f"seconds={FAST}")
    moody = start_daemon("--backend", "paced", "--option", f"file={pace}")
    with Pool([good.address, moody.address]) as pool, pool.load(identity_model()) as session:
        with Load(session, threads=4) as running:
            running.wait_for_runs()
            pace.write_text(SLOW)
            until(lambda: states(pool)[moody.address] == "ejected" or running.errors, pool.members)
            good.kill()
            until(lambda: states(pool) == {good.address: "gone", moody.address: "ready"} or running.errors)
            running.wait_for_runs(20)
        assert not running.errors


def test_failures_of_all_eject_nobody_for_good(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """Runs that fail everywhere are the runs' own fault."""
    caplog.set_level(logging.CRITICAL)
    daemons = fleet(3, "--backend", "faulty")
    with Pool(addresses(daemons)) as pool:
        bad = pool.load(identity_model(), retries=5, extensions={"fault": b"run"})
        good = pool.load(identity_model(elements=2), extensions={"fault": b"none"})
        for _ in range(5):
            assert bad.submit([ONE]).exception(20) is not None
        good.run([np.ones(2, np.float32)])
        assert sum(state == "ejected" for state in states(pool).values()) <= 1
