"""`nnrt devices` with names, with nothing, and with --watch."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from daemon_process import DaemonProcess
from resolvers.test_local import write
from resolvers.test_mdns import ANNOUNCED, NAME, why_not
from waiting import until

from cli.command import NOBODY, nnrt, process
from nnrt_client.cli import discovery

StartDaemon = Callable[..., DaemonProcess]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "devices"


@pytest.fixture
def own_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(discovery, "_LINK", NAME)  # Tests stay on loopback.
    return tmp_path / "nnrt"


def test_devices_behind_a_name(shared_daemon: DaemonProcess, path: Path) -> None:
    path.write_text(f"{shared_daemon.address}\n")
    (device,) = json.loads(nnrt("devices", "--json", f"file://{path}").stdout)
    assert device["found_by"] == [f"file://{path}"]
    result = nnrt("devices", f"file://{path}")
    assert "found by" in result.output
    assert f"file://{path}" in result.output


def test_a_name_with_nothing_behind_it(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert nnrt("devices", f"file://{path}").exit_code == 1
    assert "the file can't be read: No such file or directory" in caplog.text


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_what_is_on_this_host_and_this_link(start_daemon: StartDaemon, own_fleet: Path) -> None:
    """One that is found in both ways is there once."""
    kept = start_daemon("--name", "kept", *ANNOUNCED, "--listen", f"unix:{own_fleet.parent}/socket")
    announced = start_daemon("--name", "announced", *ANNOUNCED)
    write(own_fleet, "kept", state="ready", addresses=kept.addresses)

    def found() -> list[tuple[str, str, list[str]]]:
        devices = json.loads(nnrt("devices", "--json").stdout or "[]")
        ours = [device for device in devices if device["name"] in ("kept_nnrt_v2_1", "announced_nnrt_v2_1")]
        return sorted((device["name"], device["address"], device["found_by"]) for device in ours)

    # The link is asked for half a second, in which a busy machine may not answer.
    wanted = [
        ("announced_nnrt_v2_1", announced.address, [NAME]),
        ("kept_nnrt_v2_1", kept.address, ["local:///", NAME]),
    ]
    until(lambda: found() == wanted, found)


def test_nothing_here(own_fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without zeroconf, or with a token that strangers must not get, the link isn't asked."""
    result = nnrt("devices", "--token-file", tmp_path / "token")
    assert result.exit_code == 1
    assert "nnrt-device up keeps no daemon on this host (this link was not asked: the token would be" in result.stderr
    monkeypatch.delitem(sys.modules, "nnrt_client.resolvers.mdns", raising=False)
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    result = nnrt("devices")
    assert result.exit_code == 1
    assert "pip install 'nnrt[mdns]'); give an address" in result.stderr
    write(own_fleet, "gone", state="ready", addresses=[NOBODY])
    assert nnrt("devices").exit_code == 1


@contextmanager
def watching(*arguments: object, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """`nnrt devices --watch`, until Ctrl-C."""
    with process("devices", "--watch", *arguments, **options) as command:
        try:
            yield command
            command.send_signal(signal.SIGINT)
            assert command.wait(30) == 130
        finally:
            command.kill()


def replace_by(path: Path, text: str) -> None:
    """Change a file at once: one that was emptied, and not written again soon, would count as empty."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def events(command: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    assert command.stdout is not None
    return map(json.loads, command.stdout)


def next_status(news: Iterator[dict[str, Any]], status: str | None) -> dict[str, Any]:
    return next(event for event in news if event["event"] == "status" and event["status"] == status)


def test_events(start_daemon: StartDaemon, path: Path) -> None:
    daemon = start_daemon("--name", "one")
    path.write_text(f"{daemon.address}\n{NOBODY}\n")
    with watching("--json", f"file://{path}?every=0.01") as command:
        news = events(command)
        added = [next(news), next(news)]
        assert [(event["event"], event["address"]) for event in added] == [
            ("added", daemon.address),
            ("added", NOBODY),
        ]
        first = {event["address"]: event for event in (next(news), next(news))}
        assert first[daemon.address]["status"] == "AVAILABLE"
        assert first[daemon.address]["name"] == "one_nnrt_v2_1"
        assert first[daemon.address]["found_by"] == [f"file://{path}?every=0.01"]
        assert first[NOBODY]["status"] is None
        assert first[NOBODY]["why"]
        replace_by(path, f"{daemon.address}\n")
        removed = next(event for event in news if event["event"] == "removed")
        assert removed["address"] == NOBODY
        daemon.kill()
        gone = next_status(news, None)
        assert (gone["address"], gone["name"]) == (daemon.address, "one_nnrt_v2_1")
        assert gone["why"]
        again = start_daemon("--name", "one", listen=daemon.address)
        assert next_status(news, "AVAILABLE")["address"] == again.address


def test_events_as_text(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--name", "one")
    with watching(daemon.address) as command:
        assert command.stdout is not None
        assert command.stdout.readline().decode().split() == ["added", daemon.address, "-", "-"]
        assert command.stdout.readline().decode().split() == ["status", daemon.address, "one_nnrt_v2_1", "AVAILABLE"]


def test_a_table_on_a_terminal(start_daemon: StartDaemon, path: Path) -> None:
    daemon = start_daemon("--name", "\x1b[2Jone")
    path.write_text("")
    terminal, end = os.openpty()
    with (
        os.fdopen(terminal, "rb", buffering=0) as reader,
        os.fdopen(end, "wb") as writer,
        watching(f"file://{path}", columns=200, stdout=writer, stderr=subprocess.DEVNULL),
    ):
        read_until(reader, b"why it takes no work")
        path.write_text(f"{daemon.address}\n")
        shown = read_until(reader, b"1 client")
    assert rb"\x1b[2Jone_nnrt_v2_1" in shown
    assert b"AVAILABLE" in shown
    assert daemon.address.encode() in shown


def read_until(reader: IO[bytes], text: bytes) -> bytes:
    shown = b""
    while text not in shown:
        shown += reader.read(1 << 16)
    return shown
