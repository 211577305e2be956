"""`nnrt-device cache`, as an operator types it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from storing_device import device_on, files, graph, origin

from nnrt_device_service.cli import main
from nnrt_hdi.backend import Origin


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["cache", *arguments])


def asked(directory: Path, *arguments: str) -> Any:
    return json.loads(run(*arguments, "--json", "--store-dir", str(directory)).stdout)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of three models, of which the first was used last."""
    directory = tmp_path / "store"
    device = device_on(directory, name="rack7-slot2", option=("chip=2",))
    for seed in (0, 1, 2, 0):
        origin(device, graph(seed))
    monkeypatch.setenv("NNRT_DEVICE_STORE_DIR", str(directory))
    return directory


def damage(directory: Path) -> Path:
    path = files(directory)[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return path


def test_ls(directory: Path) -> None:
    (directory / "foreign").touch()
    rows = run("ls").output.split("\n")
    assert [title in rows[1] for title in ("model", "backend", "device", "inputs", "outputs", "size", "last use")]
    shown = [row for row in rows if "storing 1" in row]
    assert len(shown) == 3
    for row in shown:
        for text in ("storing chip=2", "x: FLOAT32[1]", "FLOAT32[1000]", "5.2 KiB"):
            assert text in row
    listed = asked(directory, "ls")
    assert [row[:14].strip() for row in shown] == [row["key"][:12] for row in listed]
    assert [row["last_use"] for row in listed] == sorted((row["last_use"] for row in listed), reverse=True)
    assert {f"{row['key']}.nnrtmodel": row["size_bytes"] for row in listed} == {
        path.name: path.stat().st_size for path in files(directory)
    }
    assert origin(device_on(directory, option=("chip=2",)), graph(1)) is Origin.STORED
    assert [row["key"] for row in asked(directory, "ls")] == [listed[index]["key"] for index in (2, 0, 1)]


def test_ls_of_what_is_damaged(directory: Path) -> None:
    """One entry can't be read; the others can."""
    first, second, _ = files(directory)
    first.write_bytes(first.read_bytes()[:60])
    second.write_bytes(bytes(100))
    with files(directory)[2].open("r+b") as third:
        third.truncate(1 << 40)  # Sparse: nobody has to read all of it.
    output = run("ls").output
    assert "damaged: it ends within its manifest" in output
    assert "damaged: it does not begin with" in output
    assert "1.0 TiB" in output
    assert run("verify").output.endswith("models: 3, damaged: 3\n")


def test_verify(directory: Path) -> None:
    assert run("verify").output == "models: 3, damaged: 0\n"
    assert asked(directory, "verify") == {"models": 3, "damaged": []}
    path = damage(directory)
    result = run("verify")
    assert result.exit_code == 1
    assert result.stdout == f"{path}: part 0 is not what was written; the file is damaged\nmodels: 3, damaged: 1\n"
    assert [row["file"] for row in asked(directory, "verify")["damaged"]] == [str(path)]
    assert len(files(directory)) == 3


def test_clear(directory: Path) -> None:
    path = damage(directory)
    (directory / "foreign").touch()
    assert run("clear", "--damaged").output == "models removed: 1, 5.2 KiB\n"
    assert not path.exists()
    sizes = [path.stat().st_size for path in files(directory)]
    assert asked(directory, "clear") == {"removed": 2, "size_bytes": sum(sizes)}
    assert files(directory) == []
    assert (directory / "foreign").exists()
    assert run("clear").output == "models removed: 0, 0 bytes\n"


def test_clear_while_a_daemon_uses_it(directory: Path) -> None:
    device = device_on(directory, option=("chip=2",))
    assert origin(device, graph(0)) is Origin.STORED
    run("clear")
    assert [origin(device, graph(0)) for _ in range(2)] == [Origin.COMPILED, Origin.STORED]


@pytest.mark.parametrize("command", ["ls", "verify", "clear"])
def test_a_directory_that_is_no_store(command: str, tmp_path: Path) -> None:
    """Nothing is made there, and nothing removed, whatever its name."""
    foreign = {".nnrt-file-0123.tmp", ".nnrt-store-0123.tmp", "0" * 64 + ".nnrtmodel"}
    for name in foreign:
        (tmp_path / name).touch()
    result = run(command, "--store-dir", str(tmp_path))
    assert result.exit_code == 1
    assert result.output == (
        f"Error: --store-dir '{tmp_path}': it is no model store, for it has no file .nnrt-store;"
        " name one that was made as such\n"
    )
    assert {path.name for path in tmp_path.iterdir()} == foreign


def test_files_of_others_stay(directory: Path) -> None:
    """Only what a daemon that died has left of a model goes."""
    mine, theirs = directory / ".nnrt-store-0123.tmp", directory / ".nnrt-file-0123.tmp"
    for path in (mine, theirs):
        path.touch()
    assert run("clear").exit_code == 0
    assert [path.exists() for path in (mine, theirs)] == [False, True]


@pytest.mark.parametrize("command", ["ls", "verify", "clear"])
def test_wrong_use(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNRT_DEVICE_STORE_DIR", raising=False)
    result = run(command)
    assert result.exit_code == 2
    assert "give --store-dir, or set NNRT_DEVICE_STORE_DIR" in result.output
    result = run(command, "--store-dir", str(tmp_path / "missing"))
    assert result.exit_code == 1
    assert result.output == f"Error: [Errno 2] No such file or directory: '{tmp_path}/missing'\n"
    assert not (tmp_path / "missing").exists()
