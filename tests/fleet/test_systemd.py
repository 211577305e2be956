"""The units that `nnrt-device systemd install` writes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.fleet_process import nnrt_device

pytestmark = pytest.mark.slow

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "units"
    done = nnrt_device("systemd", "install", "--folder", folder, "--file", tmp_path / "fleet 1.toml")
    assert done.returncode == 0, done.stderr
    # systemd-analyze wants an instance.
    shutil.copy(folder / "nnrt-device@.service", folder / "nnrt-device@gpu0.service")
    return folder


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *arguments], capture_output=True, text=True, timeout=60)


@needs_systemd
@pytest.mark.parametrize("name", ["nnrt-device@gpu0.service", "nnrt-fleet.service"])
def test_systemd_takes_the_units(folder: Path, name: str) -> None:
    done = analyze("verify", folder / name)
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", ["nnrt-device@gpu0.service", "nnrt-fleet.service"])
def test_units_are_hardened(folder: Path, name: str) -> None:
    """systemd's own figure: 10 has nothing, and it calls more than 5 exposed."""
    done = analyze("security", "--offline=yes", "--threshold=25", folder / name)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze looks at units that run only")
    assert done.returncode == 0, done.stdout


def test_units_start_this_interpreter(folder: Path, tmp_path: Path) -> None:
    fleet = (folder / "nnrt-fleet.service").read_text()
    assert (
        f"ExecStart={sys.executable} -m nnrt_device_service up --state-dir %t/nnrt '{tmp_path}/fleet 1.toml'" in fleet
    )
    device = (folder / "nnrt-device@.service").read_text()
    assert f"ExecStart={sys.executable} -m nnrt_device_service serve --name=%i" in device
    assert "Type=notify" in device
    assert "{" not in fleet + device


def test_units_of_a_user() -> None:
    """They ask for nothing that only the host's systemd can give."""
    done = nnrt_device("systemd", "install", "--user", "--print")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("WantedBy=default.target") == 2
    assert "DynamicUser" not in done.stdout
