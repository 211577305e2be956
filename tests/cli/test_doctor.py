"""`nnrt doctor`: with real daemons, as they are to be and as they are not."""

import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from access.conftest import Access, Fleet, access, fleet, make_fleet, start
from canary.faults import FaultyDaemon, until_back, until_out
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import until

from cli.command import NOBODY, json_output, on_terminal
from nnrt_client import Compilation, Executor, NnrtError, ResidentTensor, Runtime, TensorDesc
from nnrt_client.cli import discovery
from nnrt_client.cli.connection_findings import check_encryption
from nnrt_client.cli.daemon_findings import check_counters, check_latency, check_limits, check_refusals, check_version
from nnrt_client.cli.findings import Finding, Verdict
from nnrt_client.cli.host_findings import check_cores, check_huge_pages, host_findings
from nnrt_client.cli.work import Work
from nnrt_client.enums import DataType
from nnrt_client.session.device import session_of
from nnrt_client.settings import Settings
from nnrt_hdi.counters import DeviceCounters, DeviceLoad, IdentityCounters
from nnrt_hdi.run_times import RunTimes

__all__ = ["access", "fleet", "make_fleet"]  # Fixtures.

Findings = dict[str, dict[str, Any]]
MIB = 1 << 20


def found(address: str, *flags: object, problems: bool = False) -> Findings:
    """What is found of a daemon, by what it is about; the exit code says whether there is a problem."""
    findings = json_output("doctor", address, *flags, exit_code=int(problems))
    assert {finding["place"] for finding in findings} >= {"this host", address}
    of_daemon = {finding["about"]: finding for finding in findings if finding["place"] == address}
    assert problems == any(finding["verdict"] == "problem" for finding in of_daemon.values())
    return of_daemon


def the_problem(address: str, *flags: object) -> tuple[str, str, str]:
    """The one thing that is wrong: what it is about, what was found, and the advice."""
    findings = found(address, *flags, problems=True)
    (wrong,) = (finding for finding in findings.values() if finding["verdict"] == "problem")
    return wrong["about"], wrong["found"], wrong["advice"]


def about(findings: list[Finding], what: str) -> Finding:
    (finding,) = (finding for finding in findings if finding.about == what)
    return finding


@pytest.mark.slow
@pytest.mark.parametrize("is_unix", [False, True], ids=["TCP", "Unix socket"])
def test_a_daemon_that_is_well(start_daemon: StartDaemon, tmp_path: Path, is_unix: bool) -> None:
    daemon = start_daemon("--name", "rack7", listen=f"unix:{tmp_path}/s" if is_unix else "127.0.0.1:0")
    findings = found(daemon.address)
    # A busy machine may be slow.
    assert {finding["verdict"] for what, finding in findings.items() if what != "trial run"} == {"ok"}
    assert "rack7_nnrt_v2_1 by reference" in findings["daemon"]["found"]
    assert "AVAILABLE" in findings["state"]["found"]
    assert "the local socket" in findings["side channel"]["found"]
    assert "/s there" in findings["bandwidth"]["found"]
    assert "1 of 64 sessions" in findings["limits"]["found"]
    assert "0 of 100 runs failed" in findings["failures"]["found"]
    assert "a run of 1 KiB takes" in findings["trial run"]["found"]
    assert ("TLS" in findings) is not is_unix


def test_nobody_listens() -> None:
    what, said, advice = the_problem(NOBODY)
    assert what == "connection"
    assert "nobody listens" in said
    assert f"nnrt-device serve --listen {NOBODY}" in advice


def test_a_unix_socket_that_is_gone(tmp_path: Path) -> None:
    assert the_problem(f"unix:{tmp_path}/none")[0] == "connection"


@pytest.mark.parametrize(
    ("address", "said"), [("no-host.invalid:50051", "no such host is known"), ("rack7", "no address")]
)
def test_an_address_that_is_none(address: str, said: str) -> None:
    assert said in the_problem(address)[1]


def test_a_name_with_nothing_behind_it(tmp_path: Path) -> None:
    name = f"file://{tmp_path}/none"
    findings = json_output("doctor", name, exit_code=1)
    (wrong,) = (finding for finding in findings if finding["verdict"] == "problem")
    assert wrong["about"] == name
    assert "No such file" in wrong["found"]


def test_a_name(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    (tmp_path / "fleet").write_text(f"{shared_daemon.address}\n")
    name = f"file://{tmp_path}/fleet"
    findings = json_output("doctor", name)
    assert next(finding["found"] for finding in findings if finding["about"] == name) == shared_daemon.address
    assert any(finding["place"] == shared_daemon.address for finding in findings)


def test_tls(start_daemon: StartDaemon, fleet: Fleet) -> None:
    """The certificate of these tests is good for 30 days, which is soon."""
    daemon = start_daemon(*fleet.flags)
    findings = found(daemon.address, "--tls-ca", fleet.ca)
    assert findings["TLS"]["verdict"] == "advice"
    assert "TLSv1.3; the certificate is for localhost, 127.0.0.1" in findings["TLS"]["found"]
    assert "--replace" in findings["TLS"]["advice"]


def test_tls_on_one_side(start_daemon: StartDaemon, shared_daemon: DaemonProcess, fleet: Fleet) -> None:
    what, said, advice = the_problem(start_daemon(*fleet.flags).address)
    assert (what, said) == ("TLS", "it speaks TLS, and this client doesn't")
    assert "--tls-ca" in advice
    what, said, advice = the_problem(shared_daemon.address, "--tls-ca", fleet.ca)
    assert (what, said) == ("TLS", "it speaks no TLS, and tls_ca is set")
    assert "--tls-cert" in advice


def test_a_certificate_of_others(start_daemon: StartDaemon, fleet: Fleet, make_fleet: Callable[[str], Fleet]) -> None:
    what, said, advice = the_problem(start_daemon(*make_fleet("other").flags).address, "--tls-ca", fleet.ca)
    assert what == "TLS"
    assert "of no authority in" in said
    assert "tls_ca" in advice


def test_a_missing_token(start_daemon: StartDaemon, access: Access) -> None:
    """With the token of one who may only look there is no trial, and that is no problem."""
    looker = access.add("looker", "observe")
    daemon = start(start_daemon, access)
    what, said, advice = the_problem(daemon.address)
    assert what == "session"
    assert "the client sent no token" in said
    assert "--token-file" in advice
    findings = found(daemon.address, "--token-file", looker.token_file)
    assert "not tried" in findings["trial run"]["found"]
    assert "not tried" in findings["bandwidth"]["found"]
    assert "of your own" in findings["failures"]["found"]


@pytest.mark.slow
def test_a_daemon_that_stands_still(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    daemon.stop()
    what, said, advice = the_problem(daemon.address, "--timeout", "1")
    assert what == "session"
    assert "no answer within 1 s" in said
    assert "that it is not stopped" in advice


def test_somebody_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=_answer_all, args=(listening,))
        serving.start()
        what, said, advice = the_problem(f"127.0.0.1:{listening.getsockname()[1]}")
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()
    assert what == "session"
    assert said.startswith("no daemon answers there (")
    assert "HTTP/2" in said
    assert "that it is a daemon" in advice


def _answer_all(listening: socket.socket) -> None:
    """Answer as a web server of long ago."""
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")


def test_plain_text_on_the_way() -> None:
    """Of an address that isn't for sure on this host."""
    (finding,) = check_encryption("rack7.invalid:50051", Settings())
    assert finding.verdict is Verdict.ADVICE
    assert "nnrt-device keys server" in finding.advice


def test_an_earlier_daemon(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        del session_of(device).welcome.features[:]
        for finding in (*check_version(device), *check_counters(device)):
            assert finding.verdict is Verdict.ADVICE
            assert "the same version" in finding.advice


def test_no_side_channel(start_daemon: StartDaemon) -> None:
    finding = found(start_daemon("--no-shared-memory").address)["side channel"]
    assert finding["verdict"] == "advice"
    assert "--no-shared-memory" in finding["advice"]


@pytest.mark.slow
def test_a_daemon_that_drains(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "slow")
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        device = runtime.device()
        with Executor(compilation) as executor:
            run = executor.submit([np.ones(1, np.float32)])
            until(lambda: "run started" in daemon.log())
            daemon.send(signal.SIGTERM)
            until(lambda: device.state.is_draining)
            assert the_problem(daemon.address)[0] == "session"
            run.cancel()


@pytest.mark.slow
def test_a_canary(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A device that is out is a problem; one that was out is worth a look."""
    daemon = FaultyDaemon(start_daemon, tmp_path)
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        daemon.switch("wrong")
        until_out(device)
        what, said, _ = the_problem(daemon.address)
        assert what == "state"
        assert "is out" in said
        daemon.switch("")
        until_back(device)
    finding = found(daemon.address)["canary"]
    assert finding["verdict"] == "advice"
    assert "answers were wrong" in finding["found"]


@pytest.mark.slow
def test_what_was_refused(start_daemon: StartDaemon) -> None:
    """By the flag to raise; nine tenths of the memory in use are near the limit."""
    daemon = start_daemon("--held-bytes", str(10 * MIB), "--session-bytes", str(10 * MIB), "--identity-share", "1")
    with Runtime([daemon.address]) as runtime:
        device, desc = runtime.device(), TensorDesc(DataType.UINT8, [9 * MIB])
        with ResidentTensor(device, desc) as held:
            held.write(np.zeros(9 * MIB, np.uint8))
            with pytest.raises(NnrtError):
                ResidentTensor(device, desc)
            findings = found(daemon.address, problems=True)
    assert findings["limits"]["advice"].startswith("nnrt-device serve --held-bytes")
    assert findings["refusals"]["advice"].startswith("nnrt-device serve --")
    assert findings["bandwidth"]["verdict"] == "problem"


def test_limits() -> None:
    """Each that is near is told by itself."""
    load = DeviceLoad(queued=9, queued_limit=10, sessions=1, sessions_limit=64, run_bytes=95, run_limit_bytes=100)
    found = list(check_limits(DeviceCounters(1.0, (), load)))
    assert [finding.advice.split()[2] for finding in found] == ["--queued-runs", "--run-bytes"]
    assert {finding.verdict for finding in found} == {Verdict.ADVICE}


def test_refusals() -> None:
    """The most frequent ones first, each with what helps; what failed was not refused."""
    errors = {"UNKNOWN_CAUSE": 1, "--queued-runs": 17, "--canary": 3, "FAILED": 99}
    found = list(check_refusals(Work(IdentityCounters("a", errors=errors), 1.0), ""))
    assert [(finding.found, finding.advice.split()[0]) for finding in found] == [
        ("17 by --queued-runs", "nnrt-device"),
        ("3 by --canary", "the"),
        ("1 by UNKNOWN_CAUSE", "their"),
    ]


@pytest.mark.parametrize(
    ("part", "verdict", "advice"),
    [
        ("computed_ns", Verdict.OK, ""),
        ("queued_ns", Verdict.ADVICE, "nnrt top --by user says who else uses the device"),
        ("outbound_ns", Verdict.ADVICE, "docs/guides/slow-runs.md says what helps: outbound"),
    ],
)
def test_where_the_time_of_a_run_goes(part: str, verdict: Verdict, advice: str) -> None:
    """20 µs for each part, and for one of them 80 µs, 1 ms and 6 ms."""
    longest = {"computed_ns": 80_000, "queued_ns": 1_000_000, "outbound_ns": 6_000_000}[part]
    (finding,) = check_latency([RunTimes(*[20_000] * 11)._replace(**{part: longest})] * 3)
    assert (finding.verdict, finding.advice) == (verdict, advice)
    assert f"{(200_000 + longest) / 1e6:.2f} ms" in finding.found


def test_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it has in the way is told with what to type."""
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "rack8")
    monkeypatch.setenv("GRPC_TRACE", "all")
    findings = host_findings(["rack7:50051", "rack8:50051", "unix:/run/nnrt"], Settings(token_file=str(token)))
    assert about(findings, "proxy").advice == "export no_proxy=rack8,rack7"
    assert about(findings, "environment").advice == "unset GRPC_TRACE"
    assert about(findings, "token").advice == f"chmod 600 {token}"
    assert about(findings, "shared memory").verdict is Verdict.OK
    token.chmod(0o600)
    assert about(host_findings([], Settings(token_file=str(token))), "token").verdict is Verdict.OK
    token.unlink()
    assert about(host_findings([], Settings(token_file=str(token))), "token").verdict is Verdict.PROBLEM


def test_cores_and_pages(tmp_path: Path) -> None:
    """Files as Linux has them."""
    governor = tmp_path / "devices/system/cpu/cpu0/cpufreq/scaling_governor"
    pages, pressure = tmp_path / "kernel/mm/transparent_hugepage/enabled", tmp_path / "pressure/cpu"
    for path, text in (
        (governor, "powersave\n"),
        (pages, "always madvise [never]\n"),
        (pressure, "some avg10=61.50 avg60=9.00 avg300=4.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    found = list(check_cores(tmp_path, tmp_path))
    assert "cpupower" in about(found, "clock rate").advice
    assert "in 62 %" in about(found, "load").found
    (page,) = check_huge_pages(tmp_path)
    assert page.advice == f"echo madvise > {pages}"
    pages.write_text("always [madvise] never\n")
    (page,) = check_huge_pages(tmp_path)
    assert page.verdict is Verdict.OK


@pytest.mark.slow
def test_on_a_terminal(shared_daemon: DaemonProcess) -> None:
    """Each finding begins a line, and its advice follows on one of its own."""
    lines = on_terminal("doctor", shared_daemon.address, NOBODY, columns=80)
    assert max(map(len, lines)) <= 80
    (at,) = (at for at, line in enumerate(lines) if "problem " in line)
    assert lines[at].split()[:2] == ["connection", "problem"]
    assert any("→" in line for line in lines[at + 1 : at + 3])
    assert lines[-1].startswith("1 problem")


def test_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this host it tells all the same."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(discovery, "_LINK", "file:///")
    findings = json_output("doctor")
    assert {finding["place"] for finding in findings} == {"this host", "names"}
    assert any("give an address" in finding["advice"] for finding in findings)
