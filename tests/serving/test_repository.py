"""A repository that changes while it is served."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import tritonclient.grpc as triton
from waiting import until

from serving.conftest import StartServer
from serving.repositories import SOON, Client, Requests, add_version, ask


def test_upgrades_under_load_fail_no_request(start_server: StartServer, tmp_path: Path) -> None:
    """A new version takes over, and the former one is freed when its requests have ended."""
    add_version(tmp_path, "m", 1)
    server = start_server(tmp_path, *SOON)
    with Client(server) as client, Requests(server, "m") as requests:
        for version in ("2", "3", "4"):
            requests.wait_for_more()
            add_version(tmp_path, "m", int(version))
            requests.wait_for(version)
            until(lambda version=version: client.states("m") == {version: "READY"}, client.index)  # type: ignore[misc]
        add_version(tmp_path, "m", 5)
        shutil.rmtree(tmp_path / "m" / "4")
        requests.wait_for("5")
        assert client.triton.is_server_ready()
    assert not requests.errors
    first = [requests.versions.index(version) for version in "12345"]
    assert first == sorted(first)


def test_files_that_are_replaced_are_loaded_again(start_server: StartServer, tmp_path: Path) -> None:
    path = add_version(tmp_path, "m", 1)
    other = add_version(tmp_path / ".other", "m", 2)
    server = start_server(tmp_path, *SOON)
    with Client(server) as client:
        assert ask(client.triton, "m") == ("1", 1)
        other.replace(path)
        until(lambda: ask(client.triton, "m") == ("1", 2))
        shutil.rmtree(path.parent)
        until(lambda: client.index().get(("m", "")) == ("UNAVAILABLE", "it has no version yet"))
        shutil.rmtree(tmp_path / "m")
        until(lambda: not client.index())


def test_a_broken_version_leaves_the_former_one(start_server: StartServer, tmp_path: Path) -> None:
    """The index says why, and it is tried again when its files change."""
    add_version(tmp_path, "m", 1)
    server = start_server(tmp_path, *SOON)
    good = add_version(tmp_path, "spare", 2).read_bytes()
    with Client(server) as client, Requests(server, "m") as requests:
        broken = tmp_path / "m" / "2" / "model.onnx"
        broken.parent.mkdir()
        broken.write_bytes(b"\x08nothing")
        until(lambda: client.states("m").get("2") == "UNAVAILABLE", client.index)
        assert "model.onnx" in client.index()["m", "2"][1]
        assert client.ask("m") == "1"
        assert client.triton.is_model_ready("m")
        assert client.triton.is_server_ready()
        with pytest.raises(triton.InferenceServerException, match="version 2: it is unavailable: "):
            client.ask("m", "2")
        broken.write_bytes(good)
        requests.wait_for("2")
        until(lambda: client.states("m") == {"2": "READY"}, client.index)
    assert not requests.errors
    assert server.log().count("model 'm' version 2 can't be loaded") == 1


def test_a_version_that_is_still_written_waits(start_server: StartServer, tmp_path: Path) -> None:
    add_version(tmp_path, "m", 1)
    whole = add_version(tmp_path, "spare", 2).read_bytes()
    server = start_server(tmp_path, "--quiet-s", "1.5")
    with Client(server) as client:
        path = tmp_path / "m" / "2" / "model.onnx"
        path.parent.mkdir()
        with path.open("wb") as file:
            for half in (whole[:20], whole[20:]):
                file.write(half)
                file.flush()
                until(lambda: client.states("m").get("2") == "LOADING", client.index)
        until(lambda: client.states("m") == {"2": "READY"}, client.index)
    assert "can't be loaded" not in server.log()


def test_what_can_not_be_loaded_at_first(start_server: StartServer, tmp_path: Path) -> None:
    """An older version serves in place of a broken one; a model without any keeps the server from being ready."""
    add_version(tmp_path, "m", 1)
    add_version(tmp_path, "m", 2).write_bytes(b"nothing")
    add_version(tmp_path, "two", 1).with_name("other.onnx").write_bytes(b"")
    (tmp_path / "two" / "1" / "model.onnx").rename(tmp_path / "two" / "1" / "model2.onnx")
    (tmp_path / "empty").mkdir()
    (tmp_path / "no name").mkdir()
    add_version(tmp_path, "linked", 1).unlink()
    (tmp_path / "linked" / "1" / "model.onnx").symlink_to("/etc/passwd")
    server = start_server(tmp_path, *SOON)
    with Client(server) as client:
        assert client.ask("m") == "1"
        assert client.states("m") == {"1": "READY", "2": "UNAVAILABLE"}
        assert not client.triton.is_server_ready()
        assert "there are several models" in client.index()["two", "1"][1]
        assert "leads out of the repository" in client.index()["linked", "1"][1]
        assert client.index()["empty", ""] == ("UNAVAILABLE", "it has no version yet")
        with pytest.raises(triton.InferenceServerException, match="'empty': it has no version yet"):
            client.ask("empty")
        with pytest.raises(triton.InferenceServerException, match="there is no model 'no'"):
            client.ask("no")
        for name in ("two", "linked", "empty"):
            shutil.rmtree(tmp_path / name)
        until(client.triton.is_server_ready, client.index)
        assert client.states() == {"m": "UNAVAILABLE"}
    assert "folder 'no name' is left alone" in server.log()


def test_policies(start_server: StartServer, tmp_path: Path) -> None:
    """Of all versions, the latest ones or some are served; settings that change load only what they concern."""
    for version in (1, 2, 10):
        add_version(tmp_path, "m", version)
    settings = tmp_path / "m" / "model.toml"
    settings.write_text('versions = "all"')
    server = start_server(tmp_path, *SOON)
    with Client(server) as client:
        assert list(client.states("m")) == ["1", "2", "10"]
        assert client.ask("m") == "10"
        assert client.ask("m", "2") == "2"
        settings.write_text("versions = { latest = 2 }")
        until(lambda: list(client.states("m")) == ["2", "10"], client.index)
        with pytest.raises(triton.InferenceServerException, match=r"there is no version '1'; those served are"):
            client.ask("m", "1")
        settings.write_text("versions = { specific = [2, 7] }")
        until(lambda: list(client.states("m")) == ["2"], client.index)
        assert client.ask("m") == "2"
        settings.write_text("versons = 3")
        until(lambda: ("m", "") in client.index())
        assert "'versions'?" in client.index()["m", ""][1]
        assert client.ask("m") == "2"
        settings.unlink()
        until(lambda: list(client.states("m")) == ["10"], client.index)
    assert server.log().count("version 2 is ready") == 1


def test_the_file_of_a_version(start_server: StartServer, tmp_path: Path) -> None:
    """A mistake in the settings leaves the file that they named before."""
    path = add_version(tmp_path, "m", 1)
    add_version(tmp_path / ".other", "m", 2).rename(path.with_name("second.onnx"))
    settings = tmp_path / "m" / "model.toml"
    settings.write_text("file = 'second.onnx'")
    server = start_server(tmp_path, *SOON)
    with Client(server) as client:
        assert ask(client.triton, "m") == ("1", 2)
        settings.write_text("file = 3")
        until(lambda: ("m", "") in client.index())
        assert ask(client.triton, "m") == ("1", 2)
        settings.write_text("file = 'third.onnx'")
        until(lambda: "there is no file 'third.onnx'" in client.index()["m", "1"][1], client.index)
        settings.write_text("file = 'second.onnx'")
        until(lambda: client.index()["m", "1"] == ("READY", ""), client.index)
        assert ask(client.triton, "m") == ("1", 2)
        settings.unlink()
        until(lambda: ask(client.triton, "m") == ("1", 1))
    assert server.log().count("is ready on") == 2


def test_a_canary_gets_its_share(start_server: StartServer, tmp_path: Path) -> None:
    """With it removed from the settings, it is the newest version."""
    add_version(tmp_path, "m", 1)
    add_version(tmp_path, "m", 2)
    (tmp_path / "m" / "model.toml").write_text("canary = { 2 = 0.25 }")
    server = start_server(tmp_path, *SOON)
    with Client(server) as client:
        assert Counter(client.ask("m") for _ in range(40)) == {"1": 30, "2": 10}
        assert client.ask("m", "2") == "2"
        with Requests(server, "m") as requests:
            (tmp_path / "m" / "model.toml").unlink()
            until(lambda: client.states("m") == {"2": "READY"}, client.index)
            requests.wait_for_more()
        assert not requests.errors
    assert server.log().count("is ready on") == 2


def test_control_by_calls(start_server: StartServer, tmp_path: Path) -> None:
    add_version(tmp_path, "m", 1)
    add_version(tmp_path, "broken", 1).write_bytes(b"nothing")
    server = start_server(tmp_path, *SOON, "--control", "explicit")
    with Client(server) as client:
        assert client.index()["m", ""] == ("UNAVAILABLE", "it is not loaded")
        assert client.triton.is_server_ready()
        assert not client.triton.is_model_ready("m")
        client.triton.load_model("m")
        assert client.ask("m") == "1"
        add_version(tmp_path, "m", 2)
        client.triton.load_model("m")
        assert client.ask("m") == "2"
        client.triton.unload_model("m")
        with pytest.raises(triton.InferenceServerException, match="it is not loaded"):
            client.ask("m")
        with pytest.raises(triton.InferenceServerException, match="model 'broken' version 1"):
            client.triton.load_model("broken")
        with pytest.raises(triton.InferenceServerException, match="there is no model 'none'"):
            client.triton.load_model("none")


def test_an_unloaded_model_stays_away_until_it_is_loaded(start_server: StartServer, tmp_path: Path) -> None:
    add_version(tmp_path, "m", 1)
    add_version(tmp_path, "other", 1)
    server = start_server(tmp_path, *SOON)
    with Client(server) as client:
        client.triton.unload_model("m")
        add_version(tmp_path, "m", 2)
        add_version(tmp_path, "other", 2)
        until(lambda: client.states("other") == {"2": "READY"}, client.index)
        assert client.index()["m", ""] == ("UNAVAILABLE", "it is not loaded")
        assert client.triton.is_server_ready()
        client.triton.load_model("m")
        assert client.ask("m") == "2"


def test_warm_up_keeps_a_version_that_can_not_run_away(start_server: StartServer, tmp_path: Path) -> None:
    """Runs of the warm-up don't count as requests."""
    add_version(tmp_path, "m", 1)
    settings = tmp_path / "m" / "model.toml"
    settings.write_text('[[warm_up]]\nx = { shape = [4, 1], content = "random" }\n[[warm_up]]\n')
    server = start_server(tmp_path, *SOON)
    with Client(server) as client:
        assert client.ask("m") == "1"
        (statistics,) = client.triton.get_inference_statistics("m").model_stats
        assert statistics.inference_count == 1
        settings.write_text("[[warm_up]]\nx = { shape = [4, 2] }")
        add_version(tmp_path, "m", 2)
        until(lambda: client.states("m") == {"1": "READY", "2": "UNAVAILABLE"}, client.index)
        assert client.ask("m") == "1"


def test_a_folder_that_can_not_be_read_keeps_what_is_served(start_server: StartServer, tmp_path: Path) -> None:
    """It harms no other model either."""
    add_version(tmp_path / ".store", "m", 1)
    add_version(tmp_path, "other", 1)
    _link(tmp_path / "m", ".store/m")
    _link(tmp_path / "long", "a" * 300)
    server = start_server(tmp_path, *SOON)
    with Client(server) as client:
        assert "can't be read: File name too long" in client.index()["long", ""][1]
        _link(tmp_path / "m", "/")
        until(lambda: "leads out of the repository" in client.index().get(("m", ""), ("", ""))[1], client.index)
        add_version(tmp_path, "other", 2)
        until(lambda: client.states("other") == {"2": "READY"}, client.index)
        assert client.ask("m") == "1"
        _link(tmp_path / "m", ".store/m")
        until(lambda: client.states("m") == {"1": "READY"}, client.index)
        add_version(tmp_path / ".store", "m", 2)
        until(lambda: client.states("m") == {"2": "READY"}, client.index)


def _link(path: Path, target: str) -> None:
    """Make a link, in place of another in one step."""
    made = path.with_name(".link")
    made.symlink_to(target)
    made.replace(path)


def test_a_folder_that_is_away_keeps_what_is_served(start_server: StartServer, tmp_path: Path) -> None:
    """The log tells it once, and changes are found when it is back."""
    root = tmp_path / "models"
    add_version(root, "m", 1)
    server = start_server(root, "--quiet-s", "0.1", "--look-s", "0.1")
    with Client(server) as client:
        root.rename(tmp_path / "away")
        until(lambda: "what is served stays as it is" in server.log())
        assert {client.ask("m") for _ in range(300)} == {"1"}
        add_version(tmp_path / "away", "m", 2)
        (tmp_path / "away").rename(root)
        until(lambda: client.states("m") == {"2": "READY"}, client.index)
    assert server.log().count("what is served stays as it is") == 1
