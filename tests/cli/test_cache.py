"""`nnrt cache`: management of the compiled models that other commands keep."""

from pathlib import Path

import pytest
from daemon_process import DaemonProcess
from networks import weighted_model

from cli.command import json_output, nnrt, refused
from nnrt_client import Origin, load, wait_until_cached
from nnrt_hdi.files.store_directory import PART_SUFFIX, SUFFIX

ELEMENTS = 500_000


@pytest.fixture
def directory(tmp_path: Path, restoring_daemon: DaemonProcess) -> Path:
    """Cache directory with two models, the first of which was used last."""
    for seed in (0, 1, 0):
        with load(weighted_model(ELEMENTS, seed), restoring_daemon.address):
            wait_until_cached()
    return tmp_path / "cache" / "nnrt" / "models"


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def damaged_part(directory: Path) -> Path:
    path = files(directory, PART_SUFFIX)[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return path


def test_ls(directory: Path) -> None:
    listed = json_output("cache", "ls")
    assert [row["device"] for row in listed] == ["restoring_test_v2_1"] * 2
    assert listed[0]["last_use"] > listed[1]["last_use"]
    assert {row["key"] for row in listed} == {path.name.removesuffix(SUFFIX) for path in files(directory, SUFFIX)}
    assert sum(row["size_bytes"] for row in listed) == sum(
        path.stat().st_size for suffix in (SUFFIX, PART_SUFFIX) for path in files(directory, suffix)
    )
    output = nnrt("cache", "ls").output
    for text in (
        listed[0]["key"][:12],
        "restoring_test_v2_1",
        "x: FLOAT32[1]",
        "1.9 MiB",
        f"{directory}: models: 2, 3.8 MiB",
    ):
        assert text in output


def test_verify_and_clear(directory: Path, restoring_daemon: DaemonProcess) -> None:
    assert json_output("cache", "verify") == {"models": 2, "damaged": []}
    part = damaged_part(directory)
    (row,) = json_output("cache", "verify", exit_code=1)["damaged"]
    assert "is not what was written" in row["damage"]
    assert part.exists()
    assert nnrt("cache", "clear", "--damaged").output == "models removed: 1, 1.9 MiB\n"
    assert not part.exists()
    assert not Path(row["file"]).exists()
    assert nnrt("cache", "verify").output == "models: 1, damaged: 0\n"
    assert json_output("cache", "clear")["removed"] == 1
    assert files(directory, SUFFIX) == files(directory, PART_SUFFIX) == []
    with load(weighted_model(ELEMENTS), restoring_daemon.address) as session:
        assert session.report.origin is Origin.COMPILED


def test_parts_that_are_gone(directory: Path) -> None:
    """Models with missing parts count as damaged, and `clear --damaged` removes them."""
    for part in files(directory, PART_SUFFIX):
        part.unlink()
    assert len(json_output("cache", "verify", exit_code=1)["damaged"]) == 2
    assert json_output("cache", "clear", "--damaged")["removed"] == 2
    assert files(directory, SUFFIX) == []


def test_another_directory(tmp_path: Path, restoring_daemon: DaemonProcess) -> None:
    """The command accepts a directory that `load` used, and refuses one that is no model store."""
    with load(weighted_model(ELEMENTS), restoring_daemon.address, cache=tmp_path / "own"):
        wait_until_cached()
    assert json_output("cache", "ls") == []
    assert len(json_output("cache", "ls", "--directory", tmp_path / "own")) == 1
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / ("0" * 64 + SUFFIX)).touch()
    for command in ("ls", "verify", "clear"):
        assert "it is no model store" in refused(1, "cache", command, "--directory", foreign)
        assert "No such file" in refused(1, "cache", command, "--directory", tmp_path / "missing")
    assert len(list(foreign.iterdir())) == 1


def test_nothing_kept_so_far() -> None:
    assert json_output("cache", "ls") == []
    assert json_output("cache", "verify") == {"models": 0, "damaged": []}
    assert json_output("cache", "clear") == {"removed": 0, "size_bytes": 0}
