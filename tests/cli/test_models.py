"""`nnrt models`."""

import json
import signal
import subprocess
from pathlib import Path

from access.conftest import Access, Fleet
from serving.conftest import StartServer, models, start_server
from serving.repositories import Requests, add_version
from serving.served import MODELS

from cli.command import json_output, nnrt, process
from nnrt_client.cli.failures import INTERRUPTED

_EXIT_S = 20.0

__all__ = ["models", "start_server"]  # Fixtures.


def test_what_a_server_serves(start_server: StartServer, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    add_version(folder, "next", 1)
    broken = folder / "broken" / "3"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"no model")
    server = start_server(folder)
    with Requests(server, "next", 2):
        told = json_output("models", server.grpc, "--json", "--interval", "0.3")
        page = nnrt("models", server.grpc, "--interval", "0.1")
    by_name = {one["model"]: one for one in told}
    ready, failed = by_name["next"], by_name["broken"]
    assert (ready["state"], ready["version"], failed["state"]) == ("READY", "1", "UNAVAILABLE")
    assert ready["requests_per_s"] > 0
    assert ready["failed_per_s"] == 0
    assert 0 < ready["p50_s"] <= ready["p99_s"]
    assert len(ready["devices"]) == 1
    assert "model.onnx" in failed["reason"]
    assert failed["requests_per_s"] is None
    assert page.exit_code == 0
    assert all(text in page.stdout for text in ("next", "READY", "broken", "UNAVAILABLE", "requests/s"))


def test_watching(start_server: StartServer, models: Path) -> None:
    server = start_server(models)
    watching = process("models", server.grpc, "--watch", "--json", "--interval", "0.1", stdout=subprocess.PIPE)
    with watching:
        assert watching.stdout is not None
        for _ in range(2):
            assert {one["model"] for one in json.loads(watching.stdout.readline())} == set(MODELS)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(_EXIT_S) == INTERRUPTED


def test_a_server_with_tls_and_access(start_server: StartServer, models: Path, tmp_path: Path) -> None:
    access, fleet = Access(tmp_path), Fleet(tmp_path / "fleet")
    token = access.add("watch", "observe").token_file
    server = start_server(models, *fleet.flags, "--access", str(access.path))
    assert len(json_output("models", server.grpc, "--tls-ca", fleet.ca, "--token-file", token, "--json")) == len(MODELS)
    for options, said in (
        (("--tls-ca", fleet.ca), "the call has no token"),
        ((), "it speaks TLS, and this client doesn't"),
    ):
        result = nnrt("models", server.grpc, *options)
        assert result.exit_code == 1
        assert said in result.stderr


def test_no_server() -> None:
    result = nnrt("models", "127.0.0.1:1", "--timeout", "0.5")
    assert result.exit_code == 1
    assert "server at 127.0.0.1:1" in result.stderr
    assert "use HOST:PORT" in nnrt("models", "nowhere").stderr
