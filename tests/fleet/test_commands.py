"""What an operator does to daemons that run: reads the file again, drains, restarts."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import until

from fleet.fleet_process import FleetProcess, fleet_file, is_running, nnrt_device, pids, ps, wait_for
from fleet.gated import ONE, gated_file, run_under_way
from nnrt_client import UnavailableDevice

pytestmark = pytest.mark.slow

StartFleet = Callable[..., FleetProcess]


def test_reload_restarts_what_changed(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """`a` stays, `b` has new settings, `c` goes, `d` comes."""
    path = fleet_file(tmp_path / "fleet.toml", "a", "b", "c")
    fleet = start_fleet(path)
    before, addresses = pids(state), ps(state)["b"]["addresses"]
    text = path.read_text()
    path.write_text(text.replace("[device.b]", "[device.b]\nmax-sessions = 5").replace("[device.c]", "[device.d]"))
    fleet.send(signal.SIGHUP)
    wait_for(state, "d", state="ready")
    wait_for(state, "b", state="ready")
    until(lambda: set(ps(state)) == {"a", "b", "d"})
    after = pids(state)
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert not is_running(before["c"])
    assert ps(state)["b"]["restarts"] == 0
    assert ps(state)["b"]["addresses"] == addresses, "a free port that it keeps"


def test_reload_of_a_wrong_file_changes_nothing(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    path = fleet_file(tmp_path / "fleet.toml", "a", "b")
    fleet = start_fleet(path)
    before = pids(state)
    path.write_text("[device.a]\nmax-sesions = 5\n")
    fleet.send(signal.SIGHUP)
    until(lambda: "the devices stay unchanged: fleet file" in fleet.log(), fleet.log)
    assert "[device.a] max-sesions: there is no such setting; 'max-sessions'?" in fleet.log()
    assert pids(state) == before


def test_device_may_take_the_address_of_one_that_goes(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """It waits until the other has drained."""
    path = fleet_file(tmp_path / "fleet.toml", "a")
    fleet = start_fleet(path)
    (address,) = ps(state)["a"]["addresses"]
    fleet_file(path, "b", listen=address)
    fleet.send(signal.SIGHUP)
    assert wait_for(state, "b", state="ready", restarts=0)["addresses"] == [address]


def test_device_may_take_the_accelerator_of_one_that_goes(start_fleet: StartFleet, state: Path, gate: Path) -> None:
    """Under another name, which is no other accelerator: it waits until the other has drained."""
    path = gated_file(gate)
    fleet = start_fleet(path)
    with run_under_way(ps(state)["a"]) as (_, run):
        path.write_text(path.read_text().replace("[device.a]", "[device.b]"))
        fleet.send(signal.SIGHUP)
        wait_for(state, "a", state="draining")
        assert set(ps(state)) == {"a"}
        gate.write_bytes(b"")
        assert run.result(30)[0] == ONE
    wait_for(state, "b", state="ready", restarts=0)


def test_nobody_waits_for_a_cpu(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """Which many may share. The one that goes has stopped, so it can't drain."""
    path = fleet_file(tmp_path / "fleet.toml", "a")
    fleet = start_fleet(path)
    former = ps(state)["a"]["pid"]
    os.kill(former, signal.SIGSTOP)
    fleet_file(path, "b")
    fleet.send(signal.SIGHUP)
    wait_for(state, "b", state="ready", restarts=0)
    assert ps(state)["a"]["state"] == "draining"
    os.kill(former, signal.SIGCONT)
    until(lambda: set(ps(state)) == {"b"}, lambda: ps(state))


def test_drain_loses_no_run(start_fleet: StartFleet, state: Path, gate: Path) -> None:
    """The daemon is seen draining until its run has ended, takes nothing new, and stays down."""
    start_fleet(gated_file(gate))
    device = ps(state)["a"]
    with run_under_way(device) as (executor, run), ThreadPoolExecutor(2) as threads:
        drain = threads.submit(nnrt_device, "drain", "a", "--state-dir", state)
        wait_for(state, "a", state="draining")
        with pytest.raises(UnavailableDevice):
            executor.run_sync([ONE])
        assert not drain.done()
        again = threads.submit(nnrt_device, "drain", "--all", "--state-dir", state)
        gate.write_bytes(b"")
        assert run.result(30)[0] == ONE
        assert drain.result().stdout == again.result().stdout == "a is drained\n"
    drained = ps(state)["a"]
    assert (drained["state"], drained["last_exit"], drained["pid"]) == ("drained", 0, None)


def test_daemons_that_drain_are_left_to_it(start_fleet: StartFleet, state: Path, gate: Path) -> None:
    """A supervisor that takes one over, and drains it itself, cuts nothing off."""
    path = gated_file(gate)
    start_fleet(path).kill()
    device = ps(state)["a"]
    with run_under_way(device) as (_, run), ThreadPoolExecutor(1) as threads:
        drain = threads.submit(nnrt_device, "drain", "a", "--state-dir", state)
        until(lambda: "draining" in Path(device["log"]).read_text())
        fleet = start_fleet(path, to_be_ready=False)
        wait_for(state, "a", state="draining", pid=device["pid"])
        until(lambda: "found a, which is draining" in fleet.log(), fleet.log)
        fleet.send(signal.SIGTERM)
        gate.write_bytes(b"")
        assert run.result(30)[0] == ONE
        assert drain.result().stdout == "a is drained\n"
    assert fleet.wait() == 0


def test_restart_of_all_leaves_drained_ones(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    start_fleet(fleet_file(tmp_path / "fleet.toml", "a", "b"))
    assert nnrt_device("drain", "a", "--state-dir", state).returncode == 0
    done = nnrt_device("restart", "--all", "--state-dir", state)
    assert done.stdout.startswith("b is ready on ")
    assert ps(state)["a"]["state"] == "drained"


def test_drained_stays_down_until_its_restart(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """So it does under another supervisor, and when the file is read again. It comes back where it was."""
    path = fleet_file(tmp_path / "fleet.toml", "a", "b")
    fleet = start_fleet(path)
    addresses = ps(state)["a"]["addresses"]
    assert nnrt_device("drain", "a", "--state-dir", state).returncode == 0
    fleet.kill()
    fleet = start_fleet(path)
    assert ps(state)["a"]["state"] == "drained"
    back = nnrt_device("restart", "a", "--state-dir", state)
    assert back.stdout == f"a is ready on {addresses[0]}\n"
    assert nnrt_device("drain", "a", "--state-dir", state).returncode == 0
    path.write_text(path.read_text() + "max-sessions = 5\n")  # Of b.
    path.write_text(path.read_text().replace("[device.a]", "[device.a]\nmax-sessions = 5"))
    fleet.send(signal.SIGHUP)
    until(lambda: "read the devices again" in fleet.log())
    assert nnrt_device("restart", "b", "--state-dir", state).returncode == 0  # When the reload is over.
    assert ps(state)["a"]["state"] == "drained"


def test_drain_with_no_supervisor(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """The daemon itself is asked, and the next supervisor leaves it down."""
    path = fleet_file(tmp_path / "fleet.toml", "a", "b")
    start_fleet(path).kill()
    before = pids(state)
    assert nnrt_device("drain", "a", "--state-dir", state).stdout == "a is drained\n"
    assert not is_running(before["a"])
    assert ps(state)["a"]["state"] == "drained"
    assert ps(state)["b"]["pid"] == before["b"]
    refused = nnrt_device("restart", "a", "--state-dir", state)
    assert "no supervisor looks after" in refused.stderr
    start_fleet(path)
    assert ps(state)["a"]["state"] == "drained"
    assert pids(state)["b"] == before["b"]


def test_rolling_restart_keeps_one_ready(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """Somebody watches all the while: of two daemons one is ready at any time."""
    start_fleet(fleet_file(tmp_path / "fleet.toml", "a", "b"))
    before = ps(state)
    least = 2
    over = threading.Event()

    def watch() -> int:
        nonlocal least
        while not over.is_set():
            least = min(least, sum(device["state"] == "ready" for device in ps(state).values()))
        return least

    with ThreadPoolExecutor(1) as threads:
        watching = threads.submit(watch)
        done = nnrt_device("restart", "--all", "--rolling", "--state-dir", state)
        over.set()
        assert watching.result() == 1
    assert done.returncode == 0, done.stderr
    assert [line.partition(" on ")[0] for line in done.stdout.splitlines()] == ["a is ready", "b is ready"]
    after = ps(state)
    for name in "ab":
        assert after[name]["pid"] != before[name]["pid"]
        assert after[name]["addresses"] == before[name]["addresses"]


def test_supervisor_that_ends_starts_nothing(start_fleet: StartFleet, state: Path, gate: Path) -> None:
    """It gets SIGTERM in the middle of a restart."""
    fleet = start_fleet(gated_file(gate))
    device = ps(state)["a"]
    with run_under_way(device) as (_, run), ThreadPoolExecutor(1) as threads:
        restart = threads.submit(nnrt_device, "restart", "a", "--state-dir", state)
        wait_for(state, "a", state="draining")
        fleet.send(signal.SIGTERM)
        gate.write_bytes(b"")
        assert run.result(30)[0] == ONE
        assert fleet.wait() == 0
        assert "the supervisor end" in restart.result().stderr
    assert Path(device["log"]).read_text().count("serving ") == 1


def test_unknown_devices_are_refused(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    fleet = start_fleet(fleet_file(tmp_path / "fleet.toml", "a"))
    for command in ("drain", "restart"):
        done = nnrt_device(command, "x", "--state-dir", state)
        assert (done.returncode, done.stderr) == (1, "Error: no device is called 'x'; there are: a\n")
        assert nnrt_device(command, "--state-dir", state).returncode == 2
    fleet.kill()
    done = nnrt_device("drain", "x", "--state-dir", state)
    assert (done.returncode, done.stderr) == (1, "Error: no device is called 'x'; there are: a\n")


def test_one_shot_runs_a_command(tmp_path: Path) -> None:
    """Which finds the devices; its end ends all, and is the outcome."""
    path = fleet_file(tmp_path / "fleet.toml", "a", "b")
    script = "import os; print('DEVICES', os.environ['NNRT_DEVICES']); raise SystemExit(7)"
    done = nnrt_device("up", path, "--one-shot", "--", "python3", "-c", script)
    assert done.returncode == 7, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("DEVICES"))
    assert line.count("127.0.0.1:") == 2


def test_one_shot_ends_with_the_first_daemon(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    fleet = start_fleet(fleet_file(tmp_path / "fleet.toml", "a", "b"), "--one-shot")
    before = pids(state)
    os.kill(before["b"], signal.SIGKILL)
    assert fleet.wait() == 128 + signal.SIGKILL
    assert not any(map(is_running, before.values()))


def test_one_shot_has_a_directory_of_its_own(state: Path, tmp_path: Path) -> None:
    """Whatever the environment says of others, whose supervisor may be there."""
    path = fleet_file(tmp_path / "fleet.toml", "a")
    others = ("env", f"NNRT_FLEET_STATE_DIR={state}")
    done = nnrt_device("up", path, "--one-shot", "--", "true", through=others)
    assert done.returncode == 0, done.stderr
    assert not state.exists()


def test_one_shot_with_a_wrong_device(tmp_path: Path) -> None:
    path = fleet_file(tmp_path / "fleet.toml", "a", backend="skipped")
    done = nnrt_device("up", path, "--one-shot", "--", "echo", "never")
    assert done.returncode == 1
    assert "never" not in done.stdout
    assert "there is no such accelerator" in done.stderr


def test_one_shot_outlives_nobody(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """A killed job leaves no daemon behind."""
    fleet = start_fleet(fleet_file(tmp_path / "fleet.toml", "a", "b"), "--one-shot")
    before = pids(state)
    fleet.kill()
    until(lambda: not any(map(is_running, before.values())))


def test_ps_says_that_a_device_is_out(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    path = fleet_file(tmp_path / "fleet.toml", "a", backend="injected", option=f"fault={fault}", canary=0.2)
    start_fleet(path)
    assert ps(state)["a"]["why"] == ""
    fault.write_text("crash")
    until(lambda: ps(state)["a"]["why"].startswith("the device is out: its canary failed"), lambda: ps(state))
    assert ps(state)["a"]["state"] == "ready"
    fault.unlink()
    wait_for(state, "a", state="ready", why="", restarts=0)
