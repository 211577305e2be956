"""A supervisor keeps daemons alive, and they outlive it."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from fleet.fleet_process import FleetProcess, fleet_file, is_running, nnrt_device, pids, ps, wait_for
from fleet.gated import gated_file, run_under_way, stuck
from nnrt_client import Runtime, UnavailableDevice
from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory

pytestmark = pytest.mark.slow

StartFleet = Callable[..., FleetProcess]


def test_four_devices_serve(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """Each is a device of its own, and all end with the supervisor."""
    fleet = start_fleet(fleet_file(tmp_path / "fleet.toml", "a", "b", "c", "d"))
    assert "ready: 4 devices in " in fleet.said
    devices = ps(state)
    assert [(name, device["state"]) for name, device in devices.items()] == [(name, "ready") for name in "abcd"]
    with Runtime([device["addresses"][0] for device in devices.values()]) as runtime:
        names = {device.info.device_name.rpartition("-")[2] for device in runtime.devices()}
    assert names == set("abcd")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
    assert not any(is_running(device["pid"]) for device in devices.values())
    assert ps(state) == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGBUS])
def test_killed_daemon_comes_back_where_it_was(
    start_fleet: StartFleet, state: Path, tmp_path: Path, number: signal.Signals
) -> None:
    start_fleet(fleet_file(tmp_path / "fleet.toml", "a", "b"))
    before = ps(state)
    os.kill(before["a"]["pid"], number)
    after = wait_for(state, "a", state="ready", restarts=1)
    assert after["addresses"] == before["a"]["addresses"]
    assert after["pid"] != before["a"]["pid"]
    assert ps(state)["b"]["pid"] == before["b"]["pid"]
    with Runtime(after["addresses"]) as runtime:
        assert runtime.device().info.backend_name == "reference"


def test_daemon_that_somebody_else_ends_comes_back(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """It was not drained by a command."""
    start_fleet(fleet_file(tmp_path / "fleet.toml", "a"))
    os.kill(ps(state)["a"]["pid"], signal.SIGTERM)
    wait_for(state, "a", state="ready", restarts=1)


def test_stuck_device_is_started_again(start_fleet: StartFleet, state: Path, gate: Path) -> None:
    """Its daemon ends itself with 75."""
    fleet = start_fleet(gated_file(gate, stuck_s=0.1))
    with stuck(state):
        until(lambda: "it ended with 75: its device was stuck; it is started again in 0.1 s" in fleet.log(), fleet.log)
    wait_for(state, "a", state="ready", restarts=1)


def test_silent_daemon_is_killed(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """A stopped process gives no sign of life."""
    fleet = start_fleet(fleet_file(tmp_path / "fleet.toml", "a", watchdog_s=1.5))
    os.kill(ps(state)["a"]["pid"], signal.SIGSTOP)
    wait_for(state, "a", state="ready", restarts=1)
    assert "a: it gave no sign of life for 1.5 s and was killed" in fleet.log()


def test_next_supervisor_takes_daemons_over(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """They go on under it, and are watched as before; `ps` finds them with no supervisor at all."""
    path = fleet_file(tmp_path / "fleet.toml", "a", "b", watchdog_s=1.5)
    fleet = start_fleet(path)
    before = pids(state)
    fleet.kill()
    assert pids(state) == before
    alone = nnrt_device("ps", "--state-dir", state)
    assert "no supervisor looks after them" in alone.stdout
    second = start_fleet(path)
    assert pids(state) == before
    assert all(device["restarts"] == 0 for device in ps(state).values())
    os.kill(before["a"], signal.SIGKILL)
    wait_for(state, "a", state="ready", restarts=1)
    os.kill(before["b"], signal.SIGSTOP)
    wait_for(state, "b", state="ready", restarts=1)
    second.send(signal.SIGTERM)
    assert second.wait() == 0


def test_daemon_that_died_unsupervised_comes_back(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    path = fleet_file(tmp_path / "fleet.toml", "a", "b")
    start_fleet(path).kill()
    before = ps(state)
    os.kill(before["a"]["pid"], signal.SIGKILL)
    dead = wait_for(state, "a", pid=None)
    assert (dead["state"], dead["why"]) == ("failed", "it ended, unsupervised")
    start_fleet(path)
    assert ps(state)["a"]["addresses"] == before["a"]["addresses"]
    assert ps(state)["b"]["pid"] == before["b"]["pid"]


def test_accelerator_has_one_daemon(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """Also where the directory has lost it, as on a full disk: the next supervisor starts no second one beside it."""
    path = fleet_file(tmp_path / "fleet.toml", "a", backend="faulty", option=f"of-this-test={tmp_path}")
    start_fleet(path).kill()
    pid = ps(state)["a"]["pid"]
    (state / "daemons" / "a.json").unlink()
    try:
        fleet = start_fleet(path)
        assert fleet.wait() == 1
        assert f"the process with pid {pid} serves it already" in fleet.log()
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_running(pid))
    start_fleet(path)
    os.kill(ps(state)["a"]["pid"], signal.SIGKILL)
    wait_for(state, "a", state="ready", restarts=1)


def test_next_supervisor_goes_by_its_own_file(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    start_fleet(fleet_file(path, "a", "b", "c")).kill()
    before = pids(state)
    path.write_text(path.read_text().replace("[device.b]", "[device.b]\nmax-sessions = 5").replace("[device.c]", ""))
    start_fleet(path)
    after = pids(state)
    assert set(after) == {"a", "b"}
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert not is_running(before["c"])


def test_second_supervisor_is_refused(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    path = fleet_file(tmp_path / "fleet.toml", "a")
    fleet = start_fleet(path)
    done = nnrt_device("up", path, "--state-dir", state)
    assert done.returncode == 1
    assert f"the supervisor with pid {fleet.process.pid} looks after the daemons here" in done.stderr
    assert ps(state)["a"]["state"] == "ready"


def test_full_disk_is_said(state: Path, tmp_path: Path) -> None:
    """Here of a process that may write nothing into files."""
    path = fleet_file(tmp_path / "fleet.toml", "a")
    done = nnrt_device("up", path, "--state-dir", state, through=("sh", "-c", 'ulimit -f 0; exec "$@"', "sh"))
    said = f"Error: --state-dir {str(state)!r}: it can't be used: File too large\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_others_directory_is_refused(tmp_path: Path) -> None:
    path = fleet_file(tmp_path / "fleet.toml", "a")
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    done = nnrt_device("up", path, "--state-dir", tmp_path / "open")
    assert done.returncode == 1
    assert "others than you may use it; take one of mode 0700" in done.stderr


def test_wrong_device_leaves_the_others(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """What `serve` refuses isn't tried again, until somebody asks."""
    path = tmp_path / "fleet.toml"
    path.write_text('[defaults]\nbackend = "reference"\n[device.a]\n[device.b]\noptions = { no-such = "1" }\n')
    fleet = start_fleet(path)
    assert "ready: 1 of 2 devices" in fleet.said
    assert "the reference backend has no option 'no-such'" in fleet.said
    wrong = ps(state)["b"]
    assert (wrong["state"], wrong["restarts"], wrong["last_exit"]) == ("failed", 0, 1)
    again = nnrt_device("restart", "b", "--state-dir", state)
    assert again.returncode == 1
    assert "b is failed after its restart: the reference backend has no option 'no-such'" in again.stderr
    assert ps(state)["a"]["state"] == "ready"


def test_device_that_never_gets_ready_holds_up_nobody(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """It is tried again and again, and whoever restarts it is told."""
    path = tmp_path / "fleet.toml"
    path.write_text('[defaults]\nbackend = "reference"\n[device.a]\n[device.b]\nstart-timeout-s = 0.1\n')
    fleet = start_fleet(path)
    assert "ready: 1 of 2 devices" in fleet.said
    done = nnrt_device("restart", "b", "--state-dir", state)
    said = "b is backing off after its restart: it was not ready within 0.1 s and was killed"
    assert (done.returncode, done.stderr) == (1, f"Error: {said}\n")
    assert nnrt_device("drain", "b", "--state-dir", state).returncode == 0
    assert ps(state)["a"]["restarts"] == 0


def test_adopted_daemon_says_how_it_ended(start_fleet: StartFleet, state: Path, gate: Path) -> None:
    """No other process than its parent may ask the kernel."""
    path = gated_file(gate, stuck_s=0.1)
    start_fleet(path).kill()
    fleet = start_fleet(path)
    with stuck(state):
        until(lambda: "it ended with 75: its device was stuck; it is started again" in fleet.log(), fleet.log)
    wait_for(state, "a", state="ready", restarts=1)


def test_records_of_other_versions(state: Path) -> None:
    """What is new in them is left out, what is missing is as it always was, and other files are nothing."""
    directory = StateDirectory(state)
    with directory.locked():
        directory.write(Record(DeviceSpec("a", ("--backend=reference",)), State.READY, addresses=("127.0.0.1:1",)))
        path = state / "daemons" / "a.json"
        written = json.loads(path.read_text())
        written["new"] = written["spec"]["new"] = 1
        del written["restarts"], written["spec"]["watchdog_s"]
        path.write_text(json.dumps(written))
        (state / "daemons" / "b.json").write_text("[]")
        assert directory.records() == {
            "a": Record(DeviceSpec("a", ("--backend=reference",)), State.READY, addresses=("127.0.0.1:1",))
        }


def test_nothing_but_wrong_devices_ends(start_fleet: StartFleet, tmp_path: Path) -> None:
    path = fleet_file(tmp_path / "fleet.toml", "a", backend="skipped")
    fleet = start_fleet(path)
    assert fleet.wait() == 1
    assert "backend 'skipped' can't work here: there is no such accelerator" in fleet.said


def test_second_signal_ends_at_once(start_fleet: StartFleet, state: Path, gate: Path) -> None:
    """A run is under way that nobody will end."""
    fleet = start_fleet(gated_file(gate))
    device = ps(state)["a"]
    with run_under_way(device) as (_, run):
        fleet.send(signal.SIGTERM)
        wait_for(state, "a", state="draining")
        fleet.send(signal.SIGTERM)
        with pytest.raises(UnavailableDevice):
            run.result(30)
    assert fleet.wait() == 0


def test_processors_niceness_and_environment(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    path = tmp_path / "fleet.toml"
    path.write_text(
        f'[device.a]\nbackend = "reference"\ncpus = "{cpu}"\nnice = 7\nenvironment = {{ NNRT_TEST = "a b" }}\n'
    )
    start_fleet(path)
    pid = ps(state)["a"]["pid"]
    assert os.sched_getaffinity(pid) == {cpu}
    assert os.getpriority(os.PRIO_PROCESS, pid) == 7
    assert b"NNRT_TEST=a b" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_json_of_ps(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    fleet = start_fleet(fleet_file(tmp_path / "fleet.toml", "a"))
    listed = json.loads(nnrt_device("ps", "--json", "--state-dir", state).stdout)
    assert listed["supervised"] is True
    assert set(listed["devices"][0]) == {
        "name", "state", "why", "pid", "addresses", "uptime_s", "restarts", "last_exit", "log",
    }  # fmt: skip
    fleet.kill()
    assert json.loads(nnrt_device("ps", "--json", "--state-dir", state).stdout)["supervised"] is False
