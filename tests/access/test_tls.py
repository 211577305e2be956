"""TLS between client and daemon: it works, mistakes say what they are, and renewed files are taken at once."""

import os
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
import warm
from click.testing import CliRunner
from conftest import StartDaemon
from waiting import until

from access.conftest import DAYS, HOSTS, Fleet, MakeFleet, move, refusal, works
from nnrt_client import (
    InvalidParameter,
    NnrtError,
    Runtime,
    Settings,
)
from nnrt_client.cli import main
from nnrt_hdi.certificate import expiry_of


@pytest.mark.parametrize("shares", [True, False], ids=["local socket", "gRPC"])
def test_tls(start_daemon: StartDaemon, fleet: Fleet, shares: bool) -> None:
    daemon = start_daemon(*fleet.flags)
    works(daemon.address, replace(fleet.settings(), share_memory=shares))


def test_certificates_of_clients(start_daemon: StartDaemon, fleet: Fleet) -> None:
    daemon = start_daemon(*fleet.client_flags)
    works(daemon.address, fleet.settings("alice"))


def test_a_unix_socket_stays_plain(start_daemon: StartDaemon, fleet: Fleet, tmp_path: Path) -> None:
    daemon = start_daemon(*fleet.client_flags, listen=f"unix:{tmp_path}/s")
    works(daemon.address, fleet.settings())


def test_settings_of_the_environment(start_daemon: StartDaemon, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = start_daemon(*fleet.flags)
    monkeypatch.setenv("NNRT_TLS_CA", fleet.ca)
    works(daemon.address, Settings())
    assert "speaks TLS" in refusal(daemon.address, Settings(tls_ca=""))


@pytest.mark.parametrize(
    ("flags", "client", "said"),
    [
        ("flags", "plain", "it speaks TLS, and this client doesn't; set tls_ca"),
        ("client_flags", "plain", "it speaks TLS, and this client doesn't; set tls_ca"),
        ("", "trusting", "it speaks no TLS, and tls_ca is set; give the daemon --tls-cert"),
        ("flags", "distrusting", "its certificate is of no authority in .*ca.pem' .tls_ca."),
        ("client_flags", "trusting", "hangs up on a client without a certificate .*set tls_cert and tls_key"),
        ("client_flags", "foreign", "doesn't take the certificate '.*mallory.pem' .tls_cert.: .* another authority"),
        ("client_flags", "expired", "doesn't take the certificate '.*late.pem' .tls_cert., which expired on 20"),
        ("client_flags", "server", "doesn't take the certificate '.*daemon.pem' .*none for clients"),
    ],
)
def test_mistakes(
    start_daemon: StartDaemon, make_fleet: MakeFleet, fleet: Fleet, flags: str, client: str, said: str
) -> None:
    daemon = start_daemon(*(getattr(fleet, flags) if flags else ()))
    other = make_fleet("other")
    foreign, late = other.settings("mallory"), fleet.authority.issue_client("late", days=0)
    settings = {
        "plain": Settings(),
        "trusting": fleet.settings(),
        "distrusting": other.settings(),
        "foreign": replace(foreign, tls_ca=fleet.ca),
        "expired": replace(fleet.settings(), tls_cert=str(late[0]), tls_key=str(late[1])),
        "server": replace(fleet.settings(), tls_cert=str(fleet.certificate), tls_key=str(fleet.key)),
    }[client]
    with pytest.raises(NnrtError, match=said), Runtime([daemon.address], settings) as runtime:
        runtime.device()


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ("plain", "WRONG_VERSION_NUMBER"),
        ("without", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("foreign", "CERTIFICATE_VERIFY_FAILED"),
        ("expired", "CERTIFICATE_VERIFY_FAILED"),
        ("server", "CERTIFICATE_VERIFY_FAILED"),
    ],
)
def test_what_a_daemon_says_of_mistakes(
    start_daemon: StartDaemon, make_fleet: MakeFleet, fleet: Fleet, client: str, said: str
) -> None:
    """gRPC does, on the daemon's standard error, in words that docs/guides/secure.md explains; it names no address."""
    daemon = start_daemon(*fleet.client_flags)
    certificate, key = {
        "foreign": lambda: make_fleet("other").authority.issue_client("mallory", DAYS),
        "expired": lambda: fleet.authority.issue_client("late", days=0),
        "server": lambda: (fleet.certificate, fleet.key),
    }.get(client, lambda: ("", ""))()
    trusting = Settings(tls_ca=fleet.ca, tls_cert=str(certificate), tls_key=str(key))
    refusal(daemon.address, Settings() if client == "plain" else trusting)
    until(lambda: f"OPENSSL_internal:{said}" in daemon.log(), daemon.log)
    assert said in (Path(__file__).parents[2] / "docs/guides/secure.md").read_text()


def test_an_expired_certificate(start_daemon: StartDaemon, fleet: Fleet) -> None:
    certificate, key = fleet.authority.issue_server("expired", HOSTS, days=0)
    daemon = start_daemon("--tls-cert", str(certificate), "--tls-key", str(key))
    assert "certificate has expired" in refusal(daemon.address, fleet.settings())
    assert f"the certificate {certificate} (--tls-cert) expired on 20" in daemon.log()


@pytest.mark.parametrize(("days", "is_said"), [(3, True), (30, False), (12_000, False)])
def test_a_certificate_that_expires_soon(start_daemon: StartDaemon, fleet: Fleet, days: int, is_said: bool) -> None:
    """After 2049 certificates write dates in another way."""
    certificate, key = fleet.authority.issue_server("next", HOSTS, days)
    expires_at = expiry_of(certificate)
    assert expires_at is not None
    assert abs((expires_at - datetime.now(timezone.utc)).total_seconds() / 86_400 - days) < 2
    daemon = start_daemon("--tls-cert", str(certificate), "--tls-key", str(key))
    assert (f"{certificate} (--tls-cert) expires on {expires_at:%Y-%m-%d}; renew it" in daemon.log()) is is_said
    assert expiry_of(key) is expiry_of("/nowhere") is None


def test_another_host(start_daemon: StartDaemon, fleet: Fleet) -> None:
    certificate, key = fleet.authority.issue_server("elsewhere", ["rack7"], DAYS)
    daemon = start_daemon("--tls-cert", str(certificate), "--tls-key", str(key))
    assert "its certificate is not for '127.0.0.1'" in refusal(daemon.address, fleet.settings())
    works(daemon.address, replace(fleet.settings(), tls_server_name="rack7"))
    wrong = replace(fleet.settings(), tls_server_name="rack8")
    assert "its certificate is not for 'rack8'" in refusal(daemon.address, wrong)
    options = ("--tls-ca", fleet.ca, "--tls-server-name", "rack7")
    assert daemon.address in nnrt("devices", daemon.address, *options)


def test_settings_that_make_no_sense(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="give both or neither"):
        Settings(tls_ca=fleet.ca, tls_cert="a.pem")
    with pytest.raises(InvalidParameter, match="without tls_ca"):
        Settings(tls_cert="a.pem", tls_key="b.pem")
    with pytest.raises(InvalidParameter, match="tls_server_name is given without tls_ca"):
        Settings(tls_server_name="rack7")
    nothing, wrong = tmp_path / "nothing.pem", tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for settings, said in (
        (Settings(tls_ca=str(nothing)), "nothing.pem' can't be read: No such file"),
        (Settings(tls_ca=str(wrong)), "wrong.pem' holds no certificate in PEM"),
        (Settings(tls_ca=fleet.ca, tls_cert=str(wrong), tls_key=str(wrong)), "are no PEM files of a certificate"),
        (replace(fleet.settings(), token_file=str(nothing)), "nothing.pem' can't be read: No such file"),
        (replace(fleet.settings(), token_file=fleet.ca), "ca.pem' holds no token"),
    ):
        assert said in refusal("127.0.0.1:1", settings)


def test_a_token_does_not_travel_in_plain_text(fleet: Fleet) -> None:
    """Not to another host: whether it answers or not, it gets no token."""
    settings = Settings(token_file=fleet.ca)
    assert "192.0.2.1:50051: the token would travel there in plain text" in refusal("192.0.2.1:50051", settings)


@pytest.mark.parametrize("file", ["certificate", "key"])
def test_files_of_a_daemon_that_make_no_sense(start_daemon: StartDaemon, fleet: Fleet, file: str) -> None:
    path: Path = getattr(fleet, file)
    path.write_text("nothing")
    with pytest.raises(
        RuntimeError, match=r"--tls-cert, --tls-key: .*daemon.pem and .*daemon-key.pem are no PEM files"
    ):
        start_daemon(*fleet.flags)
    path.unlink()
    with pytest.raises(RuntimeError, match=rf"--tls-(cert|key) '{path}': it can't be read: No such file"):
        start_daemon(*fleet.flags)


def test_a_key_that_everybody_may_read(start_daemon: StartDaemon, fleet: Fleet) -> None:
    """Some who mount secrets can't help it; others hear of it."""
    warning = f"everybody on this host may read the key {fleet.key}"
    assert warning not in start_daemon(*fleet.flags).log()
    fleet.key.chmod(0o644)
    daemon = start_daemon(*fleet.flags)
    assert warning in daemon.log()
    works(daemon.address, fleet.settings())


def test_half_of_the_flags(start_daemon: StartDaemon, fleet: Fleet) -> None:
    for flags in (fleet.flags[:2], fleet.flags[2:], fleet.client_flags[4:]):
        with pytest.raises(RuntimeError, match=r"--tls-cert is .* and --tls-key .*; TLS needs both"):
            start_daemon(*flags)
    with pytest.raises(RuntimeError, match=r"--tls-client-ca: .*daemon-key.pem is no PEM file of certificates"):
        start_daemon(*fleet.flags, "--tls-client-ca", str(fleet.key))


def test_renewed_files_count(start_daemon: StartDaemon, make_fleet: MakeFleet, fleet: Fleet) -> None:
    """Sessions go on, and a file that is broken leaves the daemon with what it had."""
    daemon, other = start_daemon(*fleet.flags), make_fleet("other")

    def is_refused() -> bool:
        with Runtime([daemon.address], fleet.settings()) as runtime:
            return not runtime.devices()

    with Runtime([daemon.address], fleet.settings()) as runtime:
        device = runtime.device()
        fleet.certificate.write_text("half a certif")
        until(lambda: not is_refused() and "former content stays in force" in daemon.log())
        works(daemon.address, fleet.settings())
        assert daemon.log().count("former content stays in force") == 1
        move(other.key, fleet.key)
        works(daemon.address, fleet.settings())  # The key is for a certificate that is still to come.
        move(other.certificate, fleet.certificate)
        works(daemon.address, other.settings())
        assert "its certificate is of no authority" in refusal(daemon.address, fleet.settings())
        device.status()


def test_options_of_commands(start_daemon: StartDaemon, fleet: Fleet) -> None:
    daemon, settings = start_daemon(*fleet.client_flags), fleet.settings("alice")
    options = ("--tls-ca", settings.tls_ca, "--tls-cert", settings.tls_cert, "--tls-key", settings.tls_key)
    assert daemon.address in nnrt("devices", daemon.address, *options)
    assert "it speaks TLS, and this client doesn't" in nnrt("devices", daemon.address)


def nnrt(*arguments: str) -> str:
    """What the command says, on its output or its standard error."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NNRT_")}
    done = warm.run(
        [sys.executable, "-m", "nnrt_client", *arguments], capture_output=True, text=True, timeout=60, env=clean
    )
    return done.stdout + done.stderr


def test_options_count_for_their_command_only() -> None:
    before = dict(os.environ)
    result = CliRunner().invoke(main, ["devices", "127.0.0.1:1", "--tls-ca", "nothing.pem"])
    assert result.exit_code == 1
    assert dict(os.environ) == before
