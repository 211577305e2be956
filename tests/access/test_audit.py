"""The audit log: who did what, and nothing that is a secret."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from conftest import StartDaemon
from waiting import until

from access.conftest import Access, refusal, start
from access.test_access import compile_and_run, exported, refused
from nnrt_client import Runtime
from nnrt_device_service.access.audit import AuditLog


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
    folder, moved = tmp_path / "logs", tmp_path / "moved"
    folder.mkdir()
    audit = AuditLog(str(folder / "audit"))
    audit.write("first", None)
    folder.rename(moved)
    audit.write("second", None)
    audit.write("third", None)
    assert caplog.text.count("lines of the audit log are lost") == 1
    folder.mkdir()
    audit.write("fourth", None)
    assert events(moved / "audit") == [("first", None)]
    assert events(folder / "audit") == [("fourth", None)]
    assert audit._handler is not None
    audit._handler.close()
