"""`nnrt top`."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from access.conftest import Access, access, start
from canary.faults import FaultyDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from repeating import repeating
from waiting import until

from cli.command import NOBODY, json_output, nnrt, on_terminal, process
from cli.test_discovery import read_until
from nnrt_client import Compilation, Device, Executor, OutOfMemory, Runtime, Settings, UnavailableDevice
from nnrt_client.cli.work import busy_share, work_of_all, work_of_each
from nnrt_hdi.counters import DeviceCounters, DeviceLoad, Durations, IdentityCounters

StartDaemon = Callable[..., DaemonProcess]
ONE = np.ones(1, np.float32)

__all__ = ["access"]  # A fixture.


@contextmanager
def busy(*addresses: str, settings: Settings | None = None) -> Iterator[None]:
    """Runs follow each other there, until the end."""
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime(addresses, settings))
        steps = []
        for device in runtime.devices():
            compilation = stack.enter_context(Compilation(identity_model(), device))
            compilation.build()
            executor = stack.enter_context(Executor(compilation))
            executor.run_sync([ONE])
            steps.append(partial(executor.run_sync, [ONE]))
        stack.enter_context(repeating(steps))
        yield


def ran(device: Device, runs: int) -> None:
    with Compilation(identity_model(), device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            for _ in range(runs):
                executor.run_sync([ONE])


@contextmanager
def live(*arguments: object, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """`nnrt top`, until Ctrl-C."""
    with process("top", *arguments, **options) as command:
        try:
            yield command
            command.send_signal(signal.SIGINT)
            assert command.wait(30) == 130
        finally:
            command.kill()


def looks(command: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    """What it says of the one device, look by look."""
    assert command.stdout is not None
    for line in command.stdout:
        (device,) = json.loads(line)["devices"]
        yield device


def test_the_work_of_a_device(runtime: Runtime) -> None:
    device = runtime.device()
    ran(device, 2)
    before = device.counters()
    ran(device, 7)
    now = device.counters()
    work = work_of_all(now, before)
    assert (work.runs, work.failures, work.refusals) == (7, 0, 0)
    assert work.seconds == pytest.approx(now.uptime_s - before.uptime_s)
    assert 0 < work.counted.run_s < work.seconds
    assert {origin for origin, count in work.counted.models.items() if count} == {"COMPILED"}
    assert work_of_all(now, None).runs >= 9


def test_the_work_of_identities() -> None:
    """By hand: within 2 s `a` has had two runs more; `b` came; `c` was away, and begins anew."""
    before = (
        IdentityCounters(
            "a", runs={"done": 6, "failed": 1}, run_s=1.0, errors={"FAILED": 1}, served=Durations((0, 6), 6e-9)
        ),
        IdentityCounters("c", runs={"done": 9}, run_s=9.0),
    )
    now = (
        IdentityCounters(
            *("a", 3),
            runs={"done": 8, "failed": 2, "timed_out": 1},
            run_s=1.5,
            errors={"FAILED": 2, "TIMEOUT": 1},
            served=Durations((0, 6, 0, 2), 20e-9),
        ),
        IdentityCounters("b", runs={"refused": 2}, errors={"--queued-runs": 2, "INVALID_PARAMETER": 1}),
        IdentityCounters("c", runs={"done": 1}, run_s=0.25),
    )
    works = work_of_each(DeviceCounters(12.0, now), DeviceCounters(10.0, before))
    a, b, c = works["a"], works["b"], works["c"]
    assert (a.runs, a.failures, a.refusals, a.counted.sessions) == (2, 2, 0, 3)
    assert (a.counted.run_s, a.per_s(a.runs)) == (0.5, 1.0)
    assert a.mean_s == pytest.approx(7e-9)
    assert a.p99_s is not None and 4e-9 <= a.p99_s <= 8e-9
    assert (b.runs, b.refusals, b.mean_s) == (0, 3, None)
    assert (c.runs, c.counted.run_s) == (1, 0.25)


def test_the_share_that_is_busy() -> None:
    """Three seconds of two slots within two."""
    before, now = DeviceLoad(slots=2, busy_s=10.0), DeviceLoad(slots=2, busy_s=13.0)
    assert busy_share(DeviceCounters(102.0, (), now), DeviceCounters(100.0, (), before)) == 0.75
    assert busy_share(DeviceCounters(26.0, (), now), None) == 0.25
    assert busy_share(DeviceCounters(26.0, ()), None) is None


@pytest.mark.slow
def test_once(start_daemon: StartDaemon) -> None:
    """With a daemon that works, one that has nothing to do, and none."""
    working, idle = start_daemon("--name", "working"), start_daemon("--name", "idle")
    with busy(working.address):
        view = json_output("top", "--once", "--interval", 0.2, working.address, idle.address, NOBODY, exit_code=1)
    first, second, third = view["devices"]
    assert (first["name"], first["status"], first["why"]) == ("working_nnrt_v2_1", "AVAILABLE", "")
    assert first["work"]["runs"]["done"] > 0 < first["work"]["run_s"]
    assert first["work"]["seconds"] >= 0.2
    assert 0 < first["busy_share"] <= 1
    assert 0 < first["work"]["mean_s"] < first["work"]["p99_s"] * 2
    assert (first["load"]["slots"], first["load"]["sessions"]) == (1, 2)
    assert second["work"]["runs"].get("done", 0) == 0
    assert (third["name"], third["status"], third["work"]) == (None, None, None)
    assert "refused" in third["why"]
    assert [user["identity"] for user in view["users"]] == ["host 127.0.0.1"]
    assert (view["users"][0]["share"], view["users"][0]["devices"]) == (1.0, 2)


def test_a_table_where_there_is_no_terminal(shared_daemon: DaemonProcess) -> None:
    """It shows one interval, and ends."""
    result = nnrt("top", "--interval", 0.1, shared_daemon.address)
    assert result.exit_code == 0
    headline, _, titles, row = result.output.splitlines()[:4]
    assert "1 of 1 devices take work" in headline
    assert titles.split()[:3] == ["device", "state", "util"]
    assert row.split()[:2] == ["reference_nnrt_v2_1", "AVAILABLE"]
    assert "refused/s" in nnrt("top", "--by", "user", "--interval", 0.1, shared_daemon.address).output


def test_one_daemon_at_two_addresses(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--listen", f"unix:{tmp_path}/socket")
    assert len(json_output("top", "--once", "--interval", 0.1, *daemon.addresses)["devices"]) == 1


def test_a_name_that_leads_nowhere(tmp_path: Path) -> None:
    name = f"file://{tmp_path}/none"
    view = json_output("top", "--once", "--interval", 0.1, name, exit_code=1)
    assert view["devices"] == view["users"] == []
    assert "No such file" in view["failures"][name]
    assert f"{name}: the file can't be read" in nnrt("top", "--interval", 0.1, name).output


@pytest.mark.slow
def test_a_daemon_that_dies_and_comes_back(start_daemon: StartDaemon) -> None:
    """The command goes on; the counters of the new instance begin anew."""
    daemon = start_daemon("--name", "one")
    with live("--json", "--interval", 0.1, daemon.address) as command:
        seen = looks(command)
        with Runtime([daemon.address]) as runtime:
            ran(runtime.device(), 50)
        assert next(look for look in seen if look["status"] == "AVAILABLE")["name"] == "one_nnrt_v2_1"
        daemon.kill()
        gone = next(look for look in seen if look["status"] is None)
        assert (gone["name"], gone["work"], gone["load"]) == ("one_nnrt_v2_1", None, None)
        assert gone["why"]
        again = start_daemon("--name", "one", listen=daemon.address)
        back = next(look for look in seen if look["status"] == "AVAILABLE")
        assert back["work"]["runs"].get("done", 0) == 0
        assert 0 < back["work"]["seconds"] <= back["uptime_s"]
        again.stop()
        assert "has not answered for" in next(look for look in seen if look["status"] is None)["why"]
        again.send(signal.SIGCONT)
        assert next(look for look in seen if look["status"])["name"] == "one_nnrt_v2_1"


@pytest.mark.slow
def test_a_daemon_that_drains(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "slow", "--name", "one")
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor, live("--json", "--interval", 0.1, daemon.address) as command:
            run = executor.submit([ONE])
            seen = looks(command)
            assert next(look for look in seen if look["load"] and look["load"]["running"])["work"] is not None
            daemon.send(signal.SIGTERM)
            draining = next(look for look in seen if look["status"] == "DRAINING")
            assert "is shutting down" in draining["why"]
            run.cancel()


@pytest.mark.slow
def test_a_device_that_is_out(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """With the reason, and back when its canary is right again."""
    daemon = FaultyDaemon(start_daemon, tmp_path)
    with live("--json", "--interval", 0.1, daemon.address) as command:
        seen = looks(command)
        assert next(look for look in seen if look["status"])["status"] == "AVAILABLE"
        daemon.switch("wrong")
        assert "is out" in next(look for look in seen if look["status"] == "OUT")["why"]
        daemon.switch("")
        assert next(look for look in seen if look["status"] == "AVAILABLE")["why"] == ""


@pytest.mark.slow
def test_who_may_see_whom(start_daemon: StartDaemon, access: Access) -> None:
    """One that administers the daemon sees what everybody has; others see themselves, and are told so."""
    a, boss = access.add("a", "compile"), access.add("boss", "administer")
    access.add("b", "compile")
    daemon = start(start_daemon, access)
    with busy(daemon.address, settings=a):
        arguments = ("top", "--once", "--interval", 0.2, daemon.address, "--token-file")
        view = json_output(*arguments, boss.token_file)
        all_users = view["users"]
        device_s = sum(user["since_start"]["run_s"] for user in all_users)
        assert device_s == pytest.approx(view["devices"][0]["load"]["busy_s"], rel=0.02)
        assert [(user["identity"], user["share"]) for user in all_users] == [("a", 1.0), ("boss", 0.0)]
        assert all_users[0]["since_start"]["runs"]["done"] >= all_users[0]["work"]["runs"]["done"] > 0
        own = json_output(*arguments, access.settings("b").token_file)
        assert [user["identity"] for user in own["users"]] == ["b"]
        assert own["devices"][0]["sees_all"] is False
        page = nnrt(*arguments, access.settings("b").token_file).output
    assert "only your own runs are counted" in page
    stranger = json_output("top", "--once", "--interval", 0.1, daemon.address, exit_code=1)["devices"][0]
    assert stranger["status"] is None
    assert "token" in stranger["why"]


@pytest.mark.slow
def test_live_on_a_terminal(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Devices that a name gains and loses come and go; Ctrl-C leaves the terminal as it was."""
    daemon = start_daemon("--name", "\x1b[2Jone")
    path = tmp_path / "devices"
    path.write_text("")
    terminal, end = os.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as reader, os.fdopen(end, "wb") as writer:
        address = f"file://{path}?every=0.01"
        with live("--interval", 0.1, address, columns=200, stdout=writer, stderr=subprocess.DEVNULL):
            read_until(reader, b"0 of 0 devices")
            path.write_text(f"{daemon.address}\n")
            shown = read_until(reader, b"1 of 1 devices take work") + read_until(reader, daemon.address.encode())
            path.write_text("")
            read_until(reader, b"0 of 0 devices")
        shown += read_until(reader, b"\x1b[?25h")  # The cursor is back.
    assert rb"\x1b[2Jone_nnrt_v2_1" in shown


@pytest.mark.slow
@pytest.mark.parametrize("columns", [30, 60, 200])
def test_on_a_narrow_terminal(shared_daemon: DaemonProcess, columns: int) -> None:
    """What matters most is there, in one piece."""
    lines = on_terminal("top", "--once", "--interval", 0.1, shared_daemon.address, columns=columns)
    (row,) = (line.split() for line in lines if "AVAILABLE" in line)
    assert row[0] == "reference_nnrt_v2_1"
    assert max(map(len, lines)) <= columns
    assert (shared_daemon.address in row) == (columns == 200)


def test_an_interval_that_is_none() -> None:
    for interval in ("0", "nan", "1e9"):
        assert nnrt("top", NOBODY, "--interval", interval).exit_code == 2


@contextmanager
def faulty_executor(device: Device, fault: bytes) -> Iterator[Executor]:
    """Runs that go wrong in this way."""
    with Compilation(identity_model(), device) as compilation:
        compilation.add_extension_config("fault", fault)
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


def test_failures_and_refusals(start_daemon: StartDaemon) -> None:
    """One run fails; later one runs, one waits, and one is refused."""
    daemon = start_daemon("--backend", "faulty", "--queued-runs", "1", "--identity-share", "1")
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        before = device.counters()

        def counts() -> tuple[int, int, int]:
            work = work_of_all(device.counters(), before)
            return work.runs, work.failures, work.refusals

        with faulty_executor(device, b"run") as failing, faulty_executor(device, b"never ends") as endless:
            with pytest.raises(UnavailableDevice):
                failing.run_sync([ONE])
            until(lambda: counts() == (0, 1, 0), counts)
            runs = [endless.submit([ONE]) for _ in range(2)]
            until(lambda: (load := device.counters().load) and load.running == load.queued == 1)
            with pytest.raises(OutOfMemory):
                endless.run_sync([ONE])
            until(lambda: counts() == (0, 1, 1), counts)
            for run in runs:
                run.cancel()
