"""The distribution: what a wheel holds, and that it works where it is installed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from source_files import ROOT, source_files

ROOMS = (
    "nnrt_hdi",
    "nnrt_client",
    "nnrt_device_service",
    "nnrt_onnx_lowering",
    "nnrt_backend_onnxruntime",
    "nnrt_backend_reference",
    "nnrt_backend_torch",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, so that the build leaves nothing in them."""
    source = tmp_path_factory.mktemp("source")
    for path in source_files():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    built = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", built, source],
        check=True,
        capture_output=True,
    )
    (path,) = built.iterdir()
    return path


@pytest.mark.slow
def test_wheel_holds_every_room_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(ROOMS)
    for room in ROOMS:
        assert f"{room}/py.typed" in names
    assert "nnrt_hdi/v2/node_pb2.pyi" in names
    assert "nnrt_device_service/fleet/systemd/nnrt-fleet.service" in names
    assert "nnrt_client/c/include/neural_network_runtime/neural_network_runtime.h" in names
    assert "nnrt_client/c/lib/pkgconfig/neural_network_runtime.pc" in names
    has_library = "nnrt_client/c/lib/libneural_network_runtime.so" in names
    assert has_library == bool(shutil.which("cc"))
    assert wheel.name.endswith("-py3-none-any.whl") != has_library
    skeleton = "nnrt_device_service/cli/skeleton"
    assert {name for name in names if name.startswith(skeleton)} == {
        path.relative_to(ROOT).as_posix() for path in source_files() if path.is_relative_to(ROOT / skeleton)
    }


@pytest.mark.slow
def test_an_installed_wheel_serves_and_is_found(wheel: Path, tmp_path: Path) -> None:
    """Daemon and client of the wheel talk to each other from a folder that isn't the sources."""
    place = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--target", place, wheel],
        check=True,
        capture_output=True,
    )
    environment = {**os.environ, "PYTHONPATH": str(place)}

    def run(*command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)

    where = run(sys.executable, "-c", f"import {', '.join(ROOMS)}; print({'.__file__, '.join(ROOMS)}.__file__)")
    assert all(path.startswith(str(place)) for path in where.stdout.split())
    assert "reference" in run(str(place / "bin/nnrt-device"), "backends").stdout
    with subprocess.Popen(
        [place / "bin/nnrt-device", "serve"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as daemon:
        try:
            assert daemon.stdout is not None
            address = daemon.stdout.readline().split()[2]
            assert "reference_nnrt_v2_1" in run(str(place / "bin/nnrt"), "devices", address, "--json").stdout
        finally:
            daemon.kill()
