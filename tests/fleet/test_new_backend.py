"""The package that `nnrt-device new-backend` writes: what a vendor begins with."""

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from fleet.fleet_process import nnrt_device
from nnrt_hdi.backend import INTERFACE_VERSION

pytestmark = pytest.mark.slow

_DEADLINE_S = 240.0


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a directory in which packages are found, and nothing of this tree's tests."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        env={**os.environ, "PYTHONPATH": str(directory)},
    )


@pytest.mark.timeout(300)
def test_its_own_tests_pass(tmp_path: Path) -> None:
    """Its metadata are those that its pyproject.toml makes, by which its daemon finds it."""
    package = tmp_path / "package"
    written = nnrt_device("new-backend", "my_npu2", "--directory", package)
    assert written.returncode == 0, written.stderr
    for path in filter(Path.is_file, package.rglob("*")):
        assert str(path) in written.stdout.splitlines()
        assert "acme" not in (str(path.relative_to(package)) + path.read_text()).lower()
    made = run(package, "-c", "import setuptools; setuptools.setup()", "-q", "egg_info")
    assert made.returncode == 0, made.stderr
    listed = run(package, "-m", "nnrt_device_service", "backends")
    assert [line.split()[:2] for line in listed.stdout.splitlines() if "my_npu2" in line] == [["my_npu2", "available"]]
    tried = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_a_name_that_has_that_of_the_skeleton_in_it(tmp_path: Path) -> None:
    assert nnrt_device("new-backend", "acme_acme2", "--directory", tmp_path / "package").returncode == 0
    project = (tmp_path / "package" / "pyproject.toml").read_text()
    assert 'name = "nnrt-backend-acme-acme2"' in project
    assert 'acme_acme2 = "nnrt_backend_acme_acme2:create"' in project
    assert "class AcmeAcme2Backend" in (tmp_path / "package/nnrt_backend_acme_acme2/backend.py").read_text()


def test_it_states_this_interface() -> None:
    skeleton = files("nnrt_device_service.cli") / "skeleton"
    assert f"nnrt.backends.{INTERFACE_VERSION}" in (skeleton / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((name, "is no name for a backend") for name in ("", "Acme", "2d", "a-b", "a__b", "_a", "a/b", "a" * 41)),
        ("reference", "there is a backend 'reference' already"),
    ],
)
def test_names_that_can_not_be(name: str, why: str, tmp_path: Path) -> None:
    refused = nnrt_device("new-backend", name, "--directory", tmp_path / "package")
    assert refused.returncode == 2
    assert why in refused.stderr
    assert not (tmp_path / "package").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("work of weeks")
    refused = nnrt_device("new-backend", "mine", "--directory", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == f"Error: {tmp_path} is there already; name another --directory\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
