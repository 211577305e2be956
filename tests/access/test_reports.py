"""No report tells a secret that a daemon has."""

import json
import signal
from pathlib import Path

import pytest
from conftest import StartDaemon
from waiting import until

from access.conftest import Access, Fleet, start
from access.test_access import compile_and_run
from nnrt_client import Runtime
from nnrt_client.session.device import session_of
from nnrt_device_service.reports.archive import unpack
from nnrt_device_service.reports.hidden import hide_values
from nnrt_hdi.wire import SESSION_METADATA

SECRET = "hunter2-" + "x" * 30


def test_nothing_secret_is_told(
    start_daemon: StartDaemon, access: Access, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NNRT_TOKEN", "DATABASE_PASSWORD", "NNRT_DEVICE_SOMETHING", "GRPC_AUTH", "HF_HOME_KEY"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    key, reports = tmp_path / "cache.key", tmp_path / "reports"
    key.write_text(SECRET)
    key.chmod(0o600)
    reports.mkdir()
    alice, token = access.add("alice", "administer"), "token-of-alice"
    flags = ("--backend", "restoring", "--cache-key", str(key), "--report-dir", str(reports), "--verbose")
    daemon = start(start_daemon, access, *flags)
    with Runtime([daemon.address], alice) as runtime:
        compile_and_run(runtime.device())
        session = dict(session_of(runtime.device()).metadata)[SESSION_METADATA]
        assert isinstance(session, bytes)
        daemon.send(signal.SIGUSR1)
        (path,) = until(lambda: list(reports.glob("nnrt-report-*")))
    parts = unpack(path.read_bytes())
    everything = "\n".join(parts.values())
    for secret in (SECRET, session.hex(), token, fleet.key.read_text().splitlines()[1]):
        assert secret
        assert secret not in everything
    for line in access.path.read_text().splitlines():
        assert not any(len(word) >= 32 and word in everything for word in line.replace('"', " ").split()), line
    assert "DATABASE_PASSWORD" not in everything, "it doesn't matter to a daemon"
    settings = json.loads(parts["settings.json"])
    assert (settings["cache_key"], settings["access"]) == (str(key), str(access.path))
    environment = json.loads(parts["environment.json"])
    assert (environment["NNRT_TOKEN"], environment["OMP_NUM_THREADS"]) == ("***", "3")
    (told,) = json.loads(parts["sessions.json"])
    assert (told["identity"], told["session"]) == ("alice", session.hex()[:8])


def test_a_secret_may_have_any_form() -> None:
    """Of JSON, or as a part of a URL: that of a proxy, or of a store that a backend has as an option."""
    odd = 'hunter2"\\\u00e9'
    told = f"{odd} {json.dumps(odd)} https://me:{SECRET}@proxy:1/a@b?c=1 https://{SECRET}@store/x https://h/a@b"
    assert hide_values([odd], told) == '*** "***" https://***@proxy:1/a@b?c=1 https://***@store/x https://h/a@b'
