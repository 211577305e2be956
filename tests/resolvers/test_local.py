"""Daemons that a supervisor of this host looks after."""

import json
from pathlib import Path

import pytest

from nnrt_client import InvalidParameter, Settings
from nnrt_client.resolvers.names import resolver_for
from nnrt_hdi.files.fleet_directory import RECORDS, fleet_directories
from resolvers.watching import watched


def write(directory: Path, name: str, **entries: object) -> None:
    """As a supervisor does."""
    path = directory / RECORDS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(json.dumps({"spec": {"name": name}, **entries}))
    path.with_suffix(".new").replace(path)


def test_those_that_are_ready(tmp_path: Path) -> None:
    directory = tmp_path / "fleet"
    with watched(f"local://{directory}?every=0.01") as told:
        told.wait_for()  # Nobody has it yet.
        write(directory, "b", state="ready", addresses=["127.0.0.1:2", "unix:/run/b"])
        told.wait_for("127.0.0.1:2", "unix:/run/b")
        write(directory, "a", state="starting", addresses=[])
        write(directory, "a", state="ready", addresses=["127.0.0.1:1"])
        told.wait_for("127.0.0.1:1", "127.0.0.1:2", "unix:/run/b")
        write(directory, "b", state="draining", addresses=["127.0.0.1:2", "unix:/run/b"])
        told.wait_for("127.0.0.1:1")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[" * 100_000, '{"state": "ready"}', '{"state": "ready", "addresses": [1, null]}', "\xff"]
)
def test_other_files_are_passed_over(tmp_path: Path, text: str) -> None:
    write(tmp_path, "z", state="ready", addresses=["127.0.0.1:1"])
    (tmp_path / RECORDS / "a.json").write_text(text, "latin-1")
    with watched(f"local://{tmp_path}") as told:
        told.wait_for("127.0.0.1:1")


def test_where_supervisors_are_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert fleet_directories() == [tmp_path / "nnrt", Path("/run/nnrt")]
    write(tmp_path / "nnrt", "a", state="ready", addresses=["127.0.0.1:1"])
    with watched("local:///") as told:
        told.wait_until_listed("127.0.0.1:1")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert fleet_directories() == [Path("/run/nnrt")]


def test_it_names_no_other_host() -> None:
    with pytest.raises(InvalidParameter, match="it names no directory of this host"):
        resolver_for("local://host/run/nnrt", Settings())
