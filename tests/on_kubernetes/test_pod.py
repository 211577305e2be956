"""A daemon under what the manifests allow its pod: another user, no capabilities, a root that nobody writes to."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import until

from nnrt_client import Settings, load
from nnrt_device_service.cli import main
from on_kubernetes.manifests import fleet, one

pytestmark = pytest.mark.slow

# Volumes are mounts of their own, here below /tmp; the kernel maps the user, who owns what is there.
_POD = """
set -e
mount --bind /tmp /tmp
mount -o remount,bind,ro /
exec unshare --user --map-user=65532 --map-group=65532 setpriv --no-new-privs "$@"
"""
POD = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _POD, "pod")
# One address: of a name that has several gRPC is content with one, and another daemon may have the port of the other.
HOST = "127.0.0.1"


@pytest.fixture
def volumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Volumes as the settings name them, which are the daemon's environment."""
    if not all(map(shutil.which, ("unshare", "setpriv", "mount"))) or subprocess.run([*POD, "true"]).returncode:
        pytest.skip("needs the right to make namespaces")
    for name, value in one(fleet("everybody by token"), "ConfigMap")["data"].items():
        at = {"NNRT_DEVICE_HEALTH_LISTEN": "127.0.0.1:0"}.get(name, value)
        monkeypatch.setenv(name, f"{tmp_path}{at}" if at.startswith("/") else at)
    folder = tmp_path / "keys"
    require_keys("server", str(folder), "--host", HOST)
    require_keys("token", str(folder), "alice", "--role", "compile")
    (tmp_path / "var/lib/nnrt").mkdir(parents=True)
    mount(tmp_path / "etc/nnrt/access", {"access": folder / "access"}, "first")
    mount(tmp_path / "etc/nnrt/tls", certificate(folder), "first")
    return tmp_path


def require_keys(*arguments: str) -> None:
    result = CliRunner().invoke(main, ["keys", *arguments])
    assert result.exit_code == 0, result.output


def certificate(folder: Path) -> dict[str, Path]:
    return {"tls.crt": folder / f"{HOST}.pem", "tls.key": folder / f"{HOST}-key.pem"}


def mount(volume: Path, files: dict[str, Path], version: str) -> None:
    """Have a Secret in a volume, as the kubelet puts and swaps it: behind a link that is replaced."""
    content = volume / f"..{version}"
    content.mkdir(parents=True)
    for name, source in files.items():
        (content / name).write_bytes(source.read_bytes())
        (content / name).chmod(0o440)
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(Path("..data", name))
    fresh = volume / "..data_tmp"
    fresh.symlink_to(content.name)
    fresh.replace(volume / "..data")


@pytest.fixture
def daemon(volumes: Path) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(listen=f"{HOST}:0", through=POD)
    yield daemon
    daemon.kill()


@pytest.fixture
def settings(volumes: Path) -> Settings:
    return Settings(tls_ca=str(volumes / "keys/ca.pem"), token_file=str(volumes / "keys/alice.token"))


def status_of(daemon: DaemonProcess) -> dict[str, str]:
    lines = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_it_serves_with_what_the_pod_has(daemon: DaemonProcess, volumes: Path, settings: Settings) -> None:
    status = status_of(daemon)
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert Path(f"/proc/{daemon.pid}/uid_map").read_text().split() == ["65532", "0", "1"]
    with load(identity_model(), daemon.address, settings=settings) as session:
        np.testing.assert_array_equal(next(iter(session.run([np.ones(1, "f4")]).values())), [1])
    store = volumes / "var/lib/nnrt/models"
    until(lambda: list(store.glob("*.nnrtmodel")), daemon.log)  # It writes where it may.
    assert "Read-only" not in daemon.log()


def test_a_secret_that_is_swapped_counts(daemon: DaemonProcess, volumes: Path, settings: Settings) -> None:
    """A renewed certificate is shown to who connects then, and a client that was added gets in."""
    host, _, port = daemon.address.rpartition(":")
    before = ssl.get_server_certificate((host, int(port)))
    folder = volumes / "keys"
    require_keys("server", str(folder), "--host", HOST, "--replace")
    require_keys("token", str(folder), "bob", "--role", "compile")
    mount(volumes / "etc/nnrt/tls", certificate(folder), "second")
    mount(volumes / "etc/nnrt/access", {"access": folder / "access"}, "second")
    until(lambda: ssl.get_server_certificate((host, int(port))) != before)
    bob = Settings(tls_ca=settings.tls_ca, token_file=str(folder / "bob.token"))
    with load(identity_model(), daemon.address, settings=bob) as session:
        np.testing.assert_array_equal(next(iter(session.run([np.ones(1, "f4")]).values())), [1])
