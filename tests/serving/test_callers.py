"""Callers of a server: TLS, identities, roles and quotas, and what the logs tell of them."""

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from access.conftest import DAYS, HOSTS, Access, Fleet, move
from conftest import StartDaemon
from tritonclient.utils import InferenceServerException
from waiting import until

from nnrt_client import Runtime
from nnrt_device_service.access.keys import Authority
from serving.conftest import StartServer
from serving.served import ServerProcess

X = np.arange(3, dtype=np.float32)
Y = [1, 2, 3]


@pytest.fixture
def access(tmp_path: Path) -> Access:
    return Access(tmp_path)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path / "fleet")


def header(name: str) -> dict[str, str]:
    """Return the header with the token that `Access.add` gives to a name."""
    return {"authorization": f"Bearer token-of-{name}"}


def ask(client: Any, headers: dict[str, str] | None = None, id: str = "") -> Any:
    """Make a request by one of Triton's clients, and return the output."""
    module = tritonclient.grpc if isinstance(client, tritonclient.grpc.InferenceServerClient) else tritonclient.http
    x = module.InferInput("x", [3], "FP32")
    x.set_data_from_numpy(X)
    return client.infer("next", [x], headers=headers, request_id=id).as_numpy("y").tolist()


def refusal(client: Any, headers: dict[str, str] | None = None) -> str:
    """Return the status of the refusal of a request, and what it says."""
    with pytest.raises(InferenceServerException) as refused:
        ask(client, headers)
    return f"{refused.value.status()} {refused.value.message()}"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def both(server: ServerProcess) -> Iterator[tuple[Any, Any]]:
    """Yield Triton's clients of both faces."""
    with (
        tritonclient.grpc.InferenceServerClient(server.grpc) as by_grpc,
        tritonclient.http.InferenceServerClient(server.http) as by_http,
    ):
        yield by_grpc, by_http


def test_tls(start_server: StartServer, models: Path, fleet: Fleet) -> None:
    """Both faces speak TLS, and take renewed certificates at once."""
    server = start_server(models, *fleet.flags)
    trusted = ssl.create_default_context(cafile=fleet.ca)

    def works(ca: str, trusted: ssl.SSLContext) -> None:
        with tritonclient.grpc.InferenceServerClient(server.grpc, ssl=True, root_certificates=ca) as client:
            assert ask(client) == Y
        assert httpx.get(f"https://{server.http}/v2/health/ready", verify=trusted).status_code == 200

    works(fleet.ca, trusted)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://{server.http}/v2/health/ready")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"https://{server.http}/v2")
    # Another authority, whose files take the places of the former ones.
    other = Authority(fleet.folder / "other")
    for new, place in zip(other.issue_server("new", HOSTS, DAYS), (fleet.certificate, fleet.key), strict=True):
        move(new, place)
    ca = str(fleet.folder / "other" / "ca.pem")
    works(ca, ssl.create_default_context(cafile=ca))
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"https://{server.http}/v2", verify=trusted)


def test_certificates_of_clients(start_server: StartServer, models: Path, fleet: Fleet, tmp_path: Path) -> None:
    """The access file names their common names; without a certificate nobody gets in."""
    (access := tmp_path / "names").write_text("render run certificate render-7\nwatch observe certificate watch-1\n")
    log = tmp_path / "log"
    server = start_server(models, *fleet.client_flags, "--access", str(access), "--access-log", str(log))
    for name, status in (("render-7", 200), ("watch-1", 403), ("other", 401)):
        certificate, key = fleet.authority.issue_client(name, DAYS)
        context = ssl.create_default_context(cafile=fleet.ca)
        context.load_cert_chain(certificate, key)
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [0, 1, 2]}]}
        reply = httpx.post(f"https://{server.http}/v2/models/next/infer", json=body, verify=context)
        assert reply.status_code == status, reply.text
        with tritonclient.grpc.InferenceServerClient(
            server.grpc,
            ssl=True,
            root_certificates=fleet.ca,
            private_key=str(key),
            certificate_chain=str(certificate),
        ) as client:
            if status == 200:
                assert ask(client) == Y
            else:
                assert {403: "PERMISSION_DENIED", 401: "UNAUTHENTICATED"}[status] in refusal(client)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"https://{server.http}/v2/health/live", verify=ssl.create_default_context(cafile=fleet.ca))
    until(lambda: len(lines(log)) == 6)
    assert [line["identity"] for line in lines(log)] == ["render"] * 2 + ["watch"] * 2 + [None] * 2


def test_roles(start_server: StartServer, models: Path, access: Access, tmp_path: Path) -> None:
    """Health is for everybody; each role may do more than the one before."""
    for name, role in (("watch", "observe"), ("alice", "run"), ("root", "administer")):
        access.add(name, role)
    audit, log = tmp_path / "audit", tmp_path / "log"
    server = start_server(
        models, "--access", str(access.path), "--audit-log", str(audit), "--access-log", str(log), "--shared-memory"
    )
    with both(server) as clients:
        for client, names in zip(clients, (("UNAUTHENTICATED", "PERMISSION_DENIED"), ("401", "403")), strict=True):
            unknown, denied = names
            assert client.is_server_live()
            assert client.is_server_ready()
            assert refusal(client).startswith(f"{_status(client)}{unknown} the call has no token; send `authorization")
            assert "no such token" in refusal(client, header("nobody"))
            assert "no token; send" in refusal(client, {"authorization": "Basic eDp5"})
            with pytest.raises(InferenceServerException, match="no token"):
                client.get_server_metadata()
            assert client.get_server_metadata(headers=header("watch"))
            assert refusal(client, header("watch")).startswith(
                f"{_status(client)}{denied} watch has the role 'observe'"
            )
            assert ask(client, header("alice"), "a") == Y
            with pytest.raises(InferenceServerException, match="needs 'administer'"):
                client.unload_model("next", headers=header("alice"))
            with pytest.raises(InferenceServerException, match="needs 'administer'"):
                client.register_system_shared_memory("mine", "/any", 8, headers=header("alice"))
            client.load_model("next", headers=header("root"))
        access.write(access.path.read_text().splitlines()[:1])
        until(lambda: "no such token" in refusal(clients[0], header("alice")))
    told = lines(audit)
    assert {(line["event"], line["identity"]) for line in told} == {
        ("refused", None),
        ("refused", "watch"),
        ("refused", "alice"),
        ("administered", "root"),
    }
    administered = [line for line in told if line["event"] == "administered"]
    assert {(line["call"], line["model"], line["status"]) for line in administered} == {
        ("RepositoryModelLoad", "next", "OK")
    }
    assert server.stop() == 0
    calls = lines(log)
    assert {(line["face"], line["identity"], line["version"]) for line in calls if line["request"] == "a"} == {
        ("grpc", "alice", "1"),
        ("http", "alice", "1"),
    }
    assert all(line["in_bytes"] and line["out_bytes"] for line in calls if line["request"] == "a")
    assert {line["status"] for line in calls} == {"OK", "UNAUTHENTICATED", "PERMISSION_DENIED"}


def _status(client: Any) -> str:
    return "StatusCode." if isinstance(client, tritonclient.grpc.InferenceServerClient) else ""


def test_streams_of_unknown_callers(start_server: StartServer, models: Path, access: Access) -> None:
    access.add("alice", "run")
    server = start_server(models, "--access", str(access.path))
    for headers, said in ((header("nobody"), "no such token"), (header("alice"), "")):
        answers: list[tuple[Any, Any]] = []
        with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
            client.start_stream(lambda result, error: answers.append((result, error)), headers=headers)  # noqa: B023
            x = tritonclient.grpc.InferInput("x", [3], "FP32")
            x.set_data_from_numpy(X)
            client.async_stream_infer("next", [x])
            until(lambda: answers)  # noqa: B023
            client.stop_stream()
        ((result, error),) = answers
        assert said in str(error) if said else result.as_numpy("y").tolist() == Y


def test_guesses_are_slow(start_server: StartServer, models: Path, access: Access, tmp_path: Path) -> None:
    """The audit log has the first refusals of a host; those that follow are delayed and counted."""
    audit = tmp_path / "audit"
    server = start_server(models, "--access", str(access.path), "--audit-log", str(audit))
    with httpx.Client(base_url=f"http://{server.http}", headers=header("nobody")) as client:
        times = [client.get("/v2").elapsed.total_seconds() for _ in range(12)]
    assert max(times[:10]) < 0.9 < min(times[10:])
    assert server.stop() == 0
    assert [line["event"] for line in lines(audit)] == ["refused"] * 10 + ["refusals counted"]
    assert lines(audit)[-1]["count"] == 2


def test_a_quota_for_each_identity(
    start_server: StartServer, start_daemon: StartDaemon, models: Path, access: Access
) -> None:
    """Who has too many requests under way is refused; others are not."""
    for name in ("alice", "bob"):
        access.add(name, "run")
    device = start_daemon("--backend", "steady", "--option", "seconds=1").address
    options = ("--access", str(access.path), "--most-waiting-per-identity", "2")
    server = start_server(models, *options, device=device)
    x = tritonclient.grpc.InferInput("x", [3], "FP32")
    x.set_data_from_numpy(X)
    ended: list[tuple[str, str]] = []

    def start(client: Any, name: str) -> None:
        def end(result: Any, error: Any) -> None:
            ended.append((name, error.status() if error else "OK"))

        client.async_infer("next", [x], end, headers=header(name))

    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        for name in ("alice", "alice", "alice", "bob"):
            start(client, name)
        until(lambda: len(ended) == 4)
    assert sorted(ended) == [
        ("alice", "OK"),
        ("alice", "OK"),
        ("alice", "StatusCode.RESOURCE_EXHAUSTED"),
        ("bob", "OK"),
    ]


def test_daemons_know_on_whose_behalf_runs_are(
    start_server: StartServer, start_daemon: StartDaemon, models: Path, access: Access, tmp_path: Path
) -> None:
    """Where the daemon has an access file, the server needs the role `serve` there."""
    access.add("alice", "run")
    (folder := tmp_path / "daemon").mkdir()
    guarded = Access(folder)
    guarded.add("server", "serve")
    admin = guarded.add("root", "administer")
    daemon = start_daemon("--access", str(guarded.path))
    options = ("--access", str(access.path), "--device-token-file", str(guarded.folder / "server.token"))

    def counted() -> dict[str, int]:
        with Runtime([daemon.address], admin) as runtime:
            return {one.identity: one.runs.get("done", 0) for one in runtime.device().counters().identities}

    server = start_server(models, *options, device=daemon.address)
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        assert ask(client, header("alice")) == Y
    assert counted()["alice"] == 1
    server.stop()
    guarded.write([line.replace(" serve ", " compile ") for line in guarded.path.read_text().splitlines()])
    server = start_server(models, *options, device=daemon.address)
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        assert "needs 'serve'" in refusal(client, header("alice"))
    server.stop()
    server = start_server(models, *options, "--no-pass-identities", device=daemon.address)
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        assert ask(client, header("alice")) == Y
    assert counted()["alice"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--http", "0.0.0.0:0"), "--http '0.0.0.0:0': other hosts can reach it"),
        (("--grpc", "0.0.0.0:0", "--tls-cert", "CERT", "--tls-key", "KEY"), "--grpc '0.0.0.0:0': other hosts"),
        (("--tls-cert", "CERT"), "TLS needs both"),
        (("--tls-cert", "CERT", "--tls-key", "missing"), "--tls-key 'missing': it can't be read"),
        (("--access", "missing"), "--access 'missing': it can't be read"),
        (("--audit-log", "missing/log"), "--audit-log 'missing/log': it can't be written"),
        (("--access-log", "missing/log"), "--access-log 'missing/log': it can't be written"),
        (("--metrics", "nowhere"), "--metrics 'nowhere': use HOST:PORT"),
    ],
)
def test_wrong_options(
    options: tuple[str, ...], said: str, start_server: StartServer, models: Path, fleet: Fleet
) -> None:
    files = {"CERT": str(fleet.certificate), "KEY": str(fleet.key)}
    with pytest.raises(RuntimeError, match=re.escape(said)):
        start_server(models, *(files.get(one, one) for one in options))


def test_insecure_beyond_loopback(start_server: StartServer, models: Path) -> None:
    server = start_server(models, "--http", "0.0.0.0:0", "--insecure")
    port = server.http.rpartition(":")[2]
    assert httpx.get(f"http://127.0.0.1:{port}/v2/health/ready").status_code == 200
