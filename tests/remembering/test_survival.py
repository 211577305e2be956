"""Sequences that go on on another device."""

import signal
import threading

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess

from nnrt_client import ModelSession, OperationFailed, OperationForbidden, Settings, load
from remembering.models import WIDTH, counting_model, growing_model, rows
from remembering.test_loops import ONES, START, expected, feeding

SETTINGS = Settings(heartbeat_timeout_s=2.0)


def owner_of(session: ModelSession, daemons: list[DaemonProcess], before: dict[str, int]) -> DaemonProcess:
    """Return the daemon in which more runs have been done than before."""
    (found,) = [daemon for daemon in daemons if runs_on(session, daemon) > before[daemon.address]]
    return found


def runs_on(session: ModelSession, daemon: DaemonProcess) -> int:
    (device,) = [device for device in session.devices if device.address == daemon.address]
    return sum(sum(counters.runs.values()) for counters in device.counters().identities)


def started(session: ModelSession, daemons: list[DaemonProcess]) -> dict[str, int]:
    return {daemon.address: runs_on(session, daemon) for daemon in daemons}


@pytest.fixture
def daemons(start_daemon: StartDaemon) -> list[DaemonProcess]:
    return [start_daemon("--name", f"d{at}") for at in range(2)]


@pytest.mark.parametrize("log_bytes", [1 << 20, 2000], ids=["made again", "from a checkpoint"])
def test_runs_go_on_when_the_device_dies(daemons: list[DaemonProcess], log_bytes: int) -> None:
    with load(growing_model(), [daemon.address for daemon in daemons], settings=SETTINGS) as session:
        before = started(session, daemons)
        with session.sequence(log_bytes=log_bytes) as sequence:
            for seed in range(30):
                sequence.run({"x": rows(seed)})
            owner_of(session, daemons, before).kill()
            y = sequence.run({"x": rows(30)})["y"]
            np.testing.assert_allclose(y, np.concatenate([rows(seed) for seed in range(31)], 1).sum(1), rtol=1e-4)
            assert sequence.read()["past"].shape == (1, 31, WIDTH)


def test_state_is_copied_when_the_device_leaves(daemons: list[DaemonProcess]) -> None:
    with load(growing_model(), [daemon.address for daemon in daemons], settings=SETTINGS) as session:
        before = started(session, daemons)
        with session.sequence({"past": rows(9, 50)}) as sequence, sequence.fork() as fork:
            sequence.run({"x": rows(0)})
            owner = owner_of(session, daemons, before)
            owner.send(signal.SIGTERM)
            for each in (sequence, fork):
                each.run({"x": rows(1)})
            np.testing.assert_array_equal(sequence.read()["past"], np.concatenate([rows(9, 50), rows(0), rows(1)], 1))
            np.testing.assert_array_equal(fork.read()["past"], np.concatenate([rows(9, 50), rows(1)], 1))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_loop_goes_on_and_delivers_each_step_once(daemons: list[DaemonProcess], sent: signal.Signals) -> None:
    with load(counting_model(), [daemon.address for daemon in daemons], settings=SETTINGS) as session:
        before = started(session, daemons)
        with session.sequence() as sequence:
            loop = sequence.loop(START, glue=feeding(1e30, 0.25), deliver=["y"], max_steps=100_000)
            given = [float(next(loop)["y"][0, 0]) for _ in range(50)]
            owner_of(session, daemons, before).send(sent)
            given += [float(next(loop)["y"][0, 0]) for _ in range(150)]
            np.testing.assert_allclose(given, expected(200, 0.25), rtol=1e-5)
            rest = loop.rest()
            assert loop.end is not None and loop.end.steps >= 200 + len(rest)
            last = rest[-1]["y"][0, 0] if rest else given[-1]
            np.testing.assert_allclose(sequence.run({"x": 0 * ONES})["y"], (last - 1) / 2 + 1, rtol=1e-5)


def test_loop_of_a_dead_device_can_be_closed(daemons: list[DaemonProcess]) -> None:
    with load(counting_model(), [daemon.address for daemon in daemons], settings=SETTINGS) as session:
        before = started(session, daemons)
        with session.sequence() as sequence:
            loop = sequence.loop(START, glue=feeding(1e30, 0.25), deliver=["y"], max_steps=1 << 20)
            next(loop)
            owner_of(session, daemons, before).kill()
            *_, last = loop.rest()
            assert loop.end is not None and loop.end.steps > 1
            y = sequence.run({"x": 0 * ONES})["y"]
            np.testing.assert_allclose(y, (last["y"] - 1) / 2 + 1, rtol=1e-5)


def test_sequence_goes_on_where_its_daemon_was_started_again(start_daemon: StartDaemon, tmp_path: object) -> None:
    listen = f"unix:{tmp_path}/s"
    daemon = start_daemon(listen=listen)
    with load(growing_model(), daemon.address, on_death="reload", settings=SETTINGS) as session:
        sequence = session.sequence()
        for seed in range(3):
            sequence.run({"x": rows(seed)})
        daemon.kill()
        start_daemon(listen=listen)
        y = sequence.run({"x": rows(3)})["y"]
        np.testing.assert_allclose(y, np.concatenate([rows(seed) for seed in range(4)], 1).sum(1), rtol=1e-4)
        sequence.close()


def test_session_that_closes_ends_the_wait_for_a_device(daemons: list[DaemonProcess]) -> None:
    with load(growing_model(), [daemons[0].address], replicas=1, settings=SETTINGS) as session:
        sequence = session.sequence()
        sequence.run({"x": rows(0)})
        daemons[0].kill()
        closer = threading.Timer(0.2, session.close)
        closer.start()
        with pytest.raises((OperationFailed, OperationForbidden), match="closed"):
            sequence.run({"x": rows(1)})
        closer.join()
        sequence.close()
