"""The units that `nnrt-device systemd install` writes."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest
from source_files import ROOT

pytestmark = pytest.mark.slow

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")


# One that lies where it stays, wherever this environment does.
INTERPRETER = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")


def install(*arguments: str | Path, interpreter: Path = INTERPRETER) -> subprocess.CompletedProcess[str]:
    """The outcome of `nnrt-device systemd install`, of an interpreter with this one's packages."""
    command = [interpreter, "-m", "nnrt_device_service", "systemd", "install", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "units"
    done = install("--folder", folder, "--file", tmp_path / "fleet 1.toml")
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
    assert f"ExecStart={INTERPRETER} -m nnrt_device_service up --state-dir %t/nnrt '{tmp_path}/fleet 1.toml'" in fleet
    device = (folder / "nnrt-device@.service").read_text()
    assert f"ExecStart={INTERPRETER} -m nnrt_device_service serve --name=%i" in device
    assert "Type=notify" in device
    assert "{" not in fleet + device


def test_units_of_a_user() -> None:
    """They ask for nothing that only the host's systemd can give."""
    done = install("--user", "--print")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("WantedBy=default.target") == 2
    assert "DynamicUser" not in done.stdout


def test_interpreter_in_a_folder_for_temporary_files_is_refused(tmp_path: Path) -> None:
    """A unit has such folders of its own, and a host empties them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        venv.create(folder, symlinks=True)
        interpreter = Path(folder, "bin", "python")
        done = install("--folder", tmp_path / "units", interpreter=interpreter)
    assert done.returncode == 1
    assert f"the interpreter {str(interpreter)!r}: it lies in '/tmp'" in done.stderr
    assert not (tmp_path / "units").exists()


def test_interpreter_below_a_users_own_tmpdir_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which no unit hides: it may be a home."""
    monkeypatch.setenv("TMPDIR", sys.base_prefix)
    done = install("--print")
    assert done.returncode == 0, done.stderr
