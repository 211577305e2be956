"""`model.toml`: what it may say, and how mistakes are told."""

import os
from pathlib import Path
from typing import Any

import pytest

from nnrt_client import Batching, InvalidFile, InvalidPath, NnrtError, OutOfMemory
from nnrt_client.serving.repository.folder import Folder
from nnrt_client.serving.repository.model_settings import Latest, ModelSettings, Scale, Specific, WarmInput
from nnrt_client.serving.repository.policy import Canary, wanted_versions
from nnrt_client.serving.repository.scaling import Scaler
from nnrt_client.serving.repository.settings_file import read_settings
from nnrt_hdi.enums import Priority

EVERYTHING = """
file = "net.onnx"
replicas = { least = 1, most = 4 }
scale = { requests = 8, up_after_s = 1 }
devices = ["10.0.0.1:50051"]
versions = { specific = [1, 3] }
canary = { 3 = 0.1 }
most_waiting = 10
timeout_s = 2.5
labels = { y = "labels.txt" }
ways = ["program", "operators"]
shapes = { x = [1, 3] }
constants = { sr = 16000, z = [[1, 2], [3, 4]] }
batching = { max_size = 8 }
priority = "high"
pin = true
float16 = true
fallback = "cpu"

[[warm_up]]
x = { shape = [1, 3], content = "random" }
y = { content = "y.npy" }

[[warm_up]]
"""


def read(folder: Path, text: str | bytes) -> ModelSettings:
    path = folder / "model.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_settings(path, folder, ["10.0.0.1:50051"])


def test_everything(tmp_path: Path) -> None:
    settings = read(tmp_path, EVERYTHING)
    assert settings == ModelSettings(
        file="net.onnx",
        scale=Scale(1, 4, requests=8, up_after_s=1.0),
        devices=("10.0.0.1:50051",),
        versions=Specific((1, 3)),
        canary={3: 0.1},
        most_waiting=10,
        timeout_s=2.5,
        labels={"y": tmp_path / "labels.txt"},
        warm_up=[{"x": WarmInput((1, 3), "random"), "y": WarmInput(None, tmp_path / "y.npy")}, {}],
        options={
            "batching": Batching(8),
            "constants": {"sr": 16000, "z": [[1, 2], [3, 4]]},
            "fallback": "cpu",
            "float16": True,
            "pin": True,
            "priority": Priority.HIGH,
            "shapes": {"x": (1, 3)},
            "ways": ("program", "operators"),
        },
    )
    assert settings.first_replicas == 1
    assert read(tmp_path, "") == ModelSettings()
    assert read(tmp_path, 'versions = "all"\nreplicas = 3').first_replicas == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("replcas = 1", "replcas: there is no such setting; 'replicas'?"),
        ("most-waiting = 1", "'most_waiting'?"),
        ("replicas = 0", "replicas: it is 0; use a whole number, 1..1048576"),
        ("replicas = true", "replicas: it is True"),
        ("replicas = { least = 3, most = 2 }", "replicas: it is 2; use a whole number, 3.."),
        ("replicas = { leats = 3 }", "replicas: leats: there is no such setting; 'least'?"),
        ("scale = { requests = 3 }", "scale: the number of replicas is fixed"),
        ("devices = ['10.0.0.9:1']", "devices: it is '10.0.0.9:1'; use '10.0.0.1:50051'"),
        ("devices = [[1]]", "devices: it is [1]"),
        ("versions = 3", 'versions: it is 3; use "all", { latest = 1 } or { specific = [1, 3] }'),
        ("versions = { latest = 1, specific = [1] }", "versions: "),
        ("canary = { 03 = 0.1 }", "canary: 03 has 0.1"),
        ("canary = { 3 = 1.5 }", "canary: 3 has 1.5; use versions with shares above 0, of at most 1"),
        ("canary = { 3 = 0.6, 4 = 0.6 }", "canary: the shares add up to 1.2; use at most 1"),
        ("timeout_s = 0", "timeout_s: it is 0"),
        ("timeout_s = nan", "timeout_s: it is nan; use a number"),
        ("file = '../x.onnx'", "file: it is '../x.onnx'; use the name of a file"),
        ("labels = { y = '../../etc/passwd' }", "labels: it leads out of the repository"),
        ("labels = { y = '/etc/passwd' }", "labels: it leads out of the repository"),
        ("ways = ['quickly']", "ways: it is 'quickly'; use "),
        ("shapes = { x = [-1] }", "shapes: it is -1; use a whole number, 0.."),
        ("constants = { x = 'text' }", "constants: it is 'text'; use a number, true, false, or lists of them"),
        ("batching = { max_size = 1 }", "batching: max_size is 1; use an integer 2..65536"),
        ("priority = 'highest'", "priority: it is 'highest'; use 'none' or 'low' or 'medium' or 'high'"),
        ("pin = 1", "pin: it is 1; use true or false"),
        ("warm_up = ['zeros']", "warm_up: it is 'zeros'; use a table"),
        ("warm_up = [{ x = { content = 'x.pickle' } }]", "warm_up: content is 'x.pickle'"),
        ("pin = 1\nfloat16 = 2", "pin: it is 1; use true or false; float16: it is 2; use true or false"),
        ("pin = ", "model.toml: it is no TOML"),
        (b"\xff", "model.toml: it is no TOML"),
        ("x = " + "[" * 100_000, "model.toml: it is no TOML"),
    ],
    ids=lambda one: one[:30] if isinstance(one, str) else "",
)
def test_mistakes(tmp_path: Path, text: str | bytes, why: str) -> None:
    with pytest.raises(InvalidFile) as raised:
        read(tmp_path, text)
    assert why in str(raised.value)


def test_files_that_are_no_settings(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemory, match="more than 1048576 bytes"):
        read(tmp_path, "#" * (1 << 21))
    (tmp_path / "m").mkdir()
    os.mkfifo(tmp_path / "m" / "model.toml")
    with pytest.raises(InvalidFile, match="no regular file"):
        read_settings(tmp_path / "m" / "model.toml", tmp_path, [])


def test_links_stay_in_the_repository(tmp_path: Path) -> None:
    """One may lead to another place in it, as Kubernetes' volumes have them."""
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "models"
    for folder in (elsewhere / "1", root / "linked-out", root / "inside" / "..data"):
        folder.mkdir(parents=True)
    (elsewhere / "1" / "model.onnx").write_bytes(b"\x08")
    (root / "inside" / "..data" / "model.onnx").write_bytes(b"\x08")
    (root / "inside" / "1").mkdir()
    (root / "inside" / "1" / "model.onnx").symlink_to("../..data/model.onnx")
    (root / "linked-out" / "1").symlink_to(elsewhere / "1")
    (root / "whole").symlink_to(elsewhere)
    (root / "circle").symlink_to("circle")
    found = Folder(root, []).scan()
    versions: dict[str, Any] = {name: one.versions for name, one in found.items()}
    assert versions["inside"][1].file("") == root / "inside" / "1" / "model.onnx"
    assert versions["whole"] is None
    errors: list[NnrtError | None] = [versions["linked-out"][1].error, found["whole"].error]
    assert all("leads out of the repository" in str(error) for error in errors)
    with pytest.raises(InvalidPath, match="can't be read"):
        Folder(tmp_path / "missing", []).scan()


def test_wanted_versions() -> None:
    """The latest are those that can be loaded; those that can't are told of; a canary comes in addition."""
    there = (1, 2, 3, 4)
    for settings, failed, wanted in (
        (ModelSettings(), (), [4]),
        (ModelSettings(), (4,), [4, 3]),
        (ModelSettings(), there, [4, 3, 2, 1]),
        (ModelSettings(versions=Latest(2)), (3,), [4, 3, 2]),
        (ModelSettings(versions=None), (), [4, 3, 2, 1]),
        (ModelSettings(versions=Specific((1, 9))), (), [1]),
        (ModelSettings(canary={4: 0.1}), (), [4, 3]),
        (ModelSettings(versions=Latest(2), canary={3: 0.1}), (), [4, 3, 2]),
        (ModelSettings(versions=Specific((1,)), canary={3: 0.1}), (), [3, 1]),
    ):
        assert wanted_versions(settings, there, failed) == wanted


def test_shares_of_a_canary() -> None:
    canary = Canary({3: 0.1, 4: 0.25})
    chosen = [canary.next((1, 2, 3, 4)) for _ in range(1000)]
    assert abs(chosen.count(3) - 100) <= 1
    assert abs(chosen.count(4) - 250) <= 1
    assert chosen.count(2) == 1000 - chosen.count(3) - chosen.count(4)
    assert [canary.next((2,)) for _ in range(20)] == [2] * 20
    assert canary.next((3,)) == 3


def test_scaling_by_requests() -> None:
    """More come one at a time, once there has been too much for a while; fewer after a longer while."""
    scaler = Scaler(Scale(1, 3, requests=2, up_after_s=3, down_after_s=10))
    replicas = []
    for second in range(60):
        under_way = 20 if second < 20 else 3 if second < 40 else 0
        scaler.step(under_way, scaler.replicas, float(second))
        replicas.append(scaler.replicas)
    assert [replicas.index(many) for many in (1, 2, 3)] == [0, 3, 7]
    assert replicas[19] == 3
    assert replicas[20:].index(2) == 10
    assert replicas[40:].index(1) == 10
    waiting = Scaler(Scale(1, 3, requests=2, up_after_s=3, down_after_s=10))
    assert not any(waiting.step(20, 0, float(second)) for second in range(20))
