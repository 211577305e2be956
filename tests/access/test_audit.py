"""The audit log: who did what, and nothing that is a secret."""

import fcntl
import json
import os
import resource
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from waiting import until

from access.conftest import Access, refusal, start
from access.test_access import compile_and_run, exported, refused
from nnrt_client import Runtime
from nnrt_hdi.access.audit import AuditLog


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def events(path: Path) -> list[tuple[str, str | None]]:
    return [(line["event"], line["identity"]) for line in lines(path)]


def test_audit_log(start_daemon: StartDaemon, access: Access, tmp_path: Path) -> None:
    log, moved = tmp_path / "audit", tmp_path / "audit.1"
    alice, bob = access.add("alice", "compile"), access.add("bob", "run")
    daemon = start(start_daemon, access, "--backend", "restoring", "--audit-log", str(log))
    with Runtime([daemon.address], alice) as runtime:
        compile_and_run(runtime.device())
        refused(runtime.device(), "alice", exported)
    with Runtime([daemon.address], bob) as runtime:
        refused(runtime.device(), "bob", compile_and_run)
    refusal(daemon.address, access.settings("mallory"))
    until(lambda: events(log).count(("session ended", "bob")))
    assert sorted(set(events(log)), key=str) == sorted(
        [
            ("session opened", "alice"),
            ("model", "alice"),
            ("refused", "alice"),
            ("session ended", "alice"),
            ("session opened", "bob"),
            ("model", "bob"),
            ("refused", "bob"),
            ("session ended", "bob"),
            ("refused", None),
        ],
        key=str,
    )
    made = [line for line in lines(log) if line["event"] == "model"]
    assert [line.get("origin") for line in made if line["identity"] == "alice"] == ["COMPILED", "COMPILED"]
    assert all("needs 'compile'" in line["cause"] for line in made if line["identity"] == "bob")
    (ended,) = (line for line in lines(log) if line["event"] == "session ended" and line["identity"] == "bob")
    assert ended["cause"] == "the client said goodbye"
    assert "token-of" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    log.rename(moved)
    with Runtime([daemon.address], alice) as runtime:
        runtime.device().status()
    assert ("session opened", "alice") in events(log)


def test_standard_error(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--audit-log", "-")
    with Runtime([daemon.address]) as runtime:
        runtime.device().status()
    assert '"event": "session opened", "identity": "host 127.0.0.1", "role": "administer"' in daemon.log()


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And says how many lines are missing, each time that there were some."""
    folder, moved = tmp_path / "logs", tmp_path / "moved"
    folder.mkdir()
    audit = AuditLog(str(folder / "audit"))
    audit.write("first", None)
    for times in (1, 2):
        folder.rename(moved)
        audit.write("second", None)
        audit.write("third", None)
        assert caplog.text.count("lines of the audit log are lost") == times
        moved.rename(folder)
        audit.write("fourth", None)
    lost = [line.get("count") for line in lines(folder / "audit")]
    assert [line["event"] for line in lines(folder / "audit")] == ["first", *["lines lost", "fourth"] * 2]
    assert lost == [None, 2, None, 2, None]
    audit.close()


def test_a_full_disk_leaves_no_half_of_a_line(tmp_path: Path) -> None:
    """A limit on the size of files cuts off what is written as a full disk does."""
    before, audit = resource.getrlimit(resource.RLIMIT_FSIZE), AuditLog(str(tmp_path / "audit"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        for number in range(100):
            audit.write("event", None, number=number)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept = [line["number"] for line in lines(tmp_path / "audit")]
    assert 1 < len(kept) < 100
    assert kept == list(range(len(kept)))
    audit.write("after", None)
    assert [line.get("count") for line in lines(tmp_path / "audit")][len(kept) :] == [100 - len(kept), None]
    audit.close()


@pytest.mark.slow
def test_nobody_reads_the_standard_error(tmp_path: Path, closing: ExitStack) -> None:
    """The daemon serves all the same; when somebody reads again, both logs say how much is missing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    closing.callback(os.close, reader)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    daemon = DaemonProcess("--audit-log", "-", "--verbose", through=("sh", "-c", 'exec 2>"$0"; exec "$@"', str(pipe)))
    closing.callback(daemon.kill)

    def opens_a_session() -> None:
        with Runtime([daemon.address]) as runtime:
            runtime.device().status()

    for _ in range(20):
        opens_a_session()
    before = os.read(reader, 1 << 16)
    assert before.count(b"session opened") < 20
    opens_a_session()
    after = os.read(reader, 1 << 16)
    assert b"lines are lost here: nobody read the standard error" in after
    (lost,) = (json.loads(line)["count"] for line in after.splitlines() if b'"lines lost"' in line)
    assert before.count(b'"event"') + lost >= 20
