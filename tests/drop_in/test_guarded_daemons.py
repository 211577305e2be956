"""InferenceSession with a daemon with TLS and access control; the provider's options identify the application."""

import gc
from pathlib import Path

import numpy as np
import pytest
from access.conftest import DAYS, HOSTS
from conftest import StartDaemon
from daemon_process import DaemonProcess

import nnrt_client.onnxruntime as ours
from drop_in.both_runtimes import require_equal
from drop_in.conftest import sums
from nnrt_client.onnxruntime.capi.onnxruntime_pybind11_state import EPFail, InvalidArgument, NoSuchFile
from nnrt_client.onnxruntime.connections import _connections
from nnrt_device_service.access.keys import CA, Authority
from nnrt_device_service.access.tokens import issue_token
from nnrt_hdi.access.access_file import new_entry
from nnrt_hdi.access.identity import Identity, Role

NNRT = "NnrtExecutionProvider"
X = np.array([[1, 2, 3]], np.float32)
FEED = {"x": X, "y": X}


class Guarded:
    """Daemon with TLS and an access file, and its clients' files."""

    def __init__(self, start_daemon: StartDaemon, folder: Path) -> None:
        authority = Authority(folder)
        certificate, key = authority.issue_server("daemon", HOSTS, DAYS)
        alice, bob = (Identity("name", name, Role.COMPILE) for name in ("alice", "bob"))
        access = folder / "access"
        token = issue_token(folder, access, alice)
        with new_entry(access, bob, "certificate", "bob"):
            own = authority.issue_client("bob", DAYS)
        self.daemon: DaemonProcess = start_daemon(
            *("--tls-cert", str(certificate), "--tls-key", str(key), "--access", str(access)),
            *("--tls-client-ca", str(folder / CA)),
        )
        self.options = {"device": self.daemon.address, "tls_ca": str(folder / CA), "cache": "0"}
        self.certificate = {"tls_cert": str(own[0]), "tls_key": own[1]}
        self.token = {"token_file": token}


@pytest.fixture
def guarded(start_daemon: StartDaemon, tmp_path: Path) -> Guarded:
    return Guarded(start_daemon, tmp_path / "fleet")


def runs(options: dict[str, object]) -> None:
    with ours.InferenceSession(sums().SerializeToString(), providers=[(NNRT, options)]) as session:
        require_equal(session.run(["s"], FEED), [X + X])
        value = session.create_ortvalue_from_shape_and_type([1, 3], np.float32)
        value.update_inplace(X)
        require_equal(session.run(["s"], {"x": value, "y": X}), [X + X])
        del value
        gc.collect()


def test_options_of_the_provider(guarded: Guarded) -> None:
    """A certificate or a token identifies the client, the token first; paths may be strings or Path objects."""
    runs({**guarded.options, **guarded.certificate})
    runs({**guarded.options, **guarded.certificate, **guarded.token})
    no_token = {**guarded.options, **guarded.certificate, "token_file": "/nowhere"}
    for options, kind, says in (
        ({"device": guarded.daemon.address}, EPFail, "it speaks TLS, and this client doesn't"),
        (guarded.options, EPFail, "hangs up on a client without a certificate"),
        (no_token, NoSuchFile, "token_file '/nowhere' can't be read"),
    ):
        with pytest.raises(kind, match=says):
            runs(dict(options))


def test_options_that_make_no_sense(guarded: Guarded) -> None:
    for options, says in (
        ({"tls_cert": "a.pem"}, "give both or neither"),
        ({"tls_ca": 3}, "tls_ca is 3; give the path of a file"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            runs({**options, "device": guarded.daemon.address})


def test_another_identity_has_another_connection(guarded: Guarded) -> None:
    """Sessions with the same options share a connection."""
    source = sums().SerializeToString()
    bob = {**guarded.options, **guarded.certificate}
    alice = {**bob, **guarded.token}
    before = len(_connections)
    sessions = [ours.InferenceSession(source, providers=[(NNRT, options)]) for options in (alice, bob, alice)]
    assert len(_connections) - before == 2
    assert sessions[0].get_provider_options()[NNRT]["token_file"] == str(guarded.token["token_file"])
    for session in sessions:
        session.close()


def test_the_environment_counts_for_what_is_not_given(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_TLS_CA", guarded.options["tls_ca"])
    runs({"device": guarded.daemon.address, "cache": "0", **guarded.certificate})
