"""A repository at a URL."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest
from waiting import until

from nnrt_client import InvalidPath, NnrtError
from nnrt_client.serving.repository.mirror import Mirror
from serving.conftest import StartServer
from serving.repositories import Client, Requests, add_version


@pytest.fixture
def url() -> Iterator[str]:
    name = f"/{uuid4()}"
    yield f"memory:/{name}"
    fsspec.filesystem("memory").rm(name, recursive=True)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a mirror, without its own."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent != folder]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def write(url: str, path: str, content: bytes) -> None:
    with fsspec.open(f"{url}/{path}", "wb") as file:
        file.write(content)


def test_a_mirror_has_what_is_there(url: str, tmp_path: Path) -> None:
    mirror = Mirror(url, tmp_path)
    with pytest.raises(InvalidPath, match="there is nothing"):
        mirror.update()
    write(url, "m/1/model.onnx", b"first")
    write(url, "m/model.toml", b"pin = true")
    write(url, "m/.hidden/model.onnx", b"hidden")
    mirror.update()
    assert contents(tmp_path) == {"m/1/model.onnx": b"first", "m/model.toml": b"pin = true"}
    kept = (tmp_path / "m" / "1" / "model.onnx").stat()
    write(url, "m/2/model.onnx", b"second")
    write(url, "m/model.toml", b"pin = half")
    Mirror(url, tmp_path).update()
    assert contents(tmp_path)["m/model.toml"] == b"pin = half"
    assert (tmp_path / "m" / "1" / "model.onnx").stat().st_ino == kept.st_ino, "it was fetched again"
    fsspec.filesystem("memory").rm(url.removeprefix("memory:/") + "/m/1", recursive=True)
    mirror.update()
    assert set(contents(tmp_path)) == {"m/model.toml", "m/2/model.onnx"}
    assert not (tmp_path / "m" / "1").exists()


@pytest.mark.parametrize("url", ["nothing://models", "memory+x://"])
def test_urls_that_can_not_be_used(tmp_path: Path, url: str) -> None:
    with pytest.raises(NnrtError, match=f"repository '{url[:6]}"):
        Mirror(url, tmp_path)


def test_a_url_is_served(start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes there is noticed by looking; what was served goes on while it can't be reached."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    models = tmp_path / "models"
    add_version(models, "m", 1)
    server = start_server(f"file://{models}", "--quiet-s", "0.1", "--look-s", "0.2")
    with Client(server) as client, Requests(server, "m") as requests:
        add_version(models, "m", 2)
        requests.wait_for("2")
        shutil.move(models, tmp_path / "away")
        until(lambda: "what is served stays as it is" in server.log())
        assert client.ask("m") == "2"
        shutil.move(tmp_path / "away", models)
        add_version(models, "m", 3)
        requests.wait_for("3")
    assert not requests.errors
