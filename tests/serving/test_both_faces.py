"""What both faces do alike, by Triton's clients."""

import os
import uuid
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from metrics.scraping import LISTEN, scraped, value
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm
from waiting import until

from serving.conftest import StartServer
from serving.faces import FACES, Face, face_of
from serving.served import ServerProcess, add_model

X = np.arange(3, dtype=np.float32)


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest, shared_server: ServerProcess) -> Iterator[Face]:
    with face_of(request.param, shared_server) as face:
        yield face
        face.client.unregister_system_shared_memory()


@pytest.fixture(scope="session")
def tracker() -> None:
    """Process that Python starts with the first shared memory, and that lasts as long as this process."""
    resource_tracker.ensure_running()


@pytest.fixture
def memory(tracker: None) -> Iterator[Any]:
    """Shared memory with 64 bytes, and its key."""
    key = f"/nnrt-{uuid.uuid4().hex}"
    region = shm.create_shared_memory_region("mine", key, 64)
    yield region, key
    shm.destroy_shared_memory_region(region)


@pytest.mark.parametrize("model", ["next", "half"])
def test_infer(face: Face, model: str) -> None:
    x = X.astype(np.float16 if model == "half" else np.float32)
    result = face.client.infer(model, [face.input("x", x)], request_id="a")
    assert result.as_numpy("y").tolist() == (x + (x if model == "half" else 1)).tolist()


def test_shared_memory(face: Face, memory: Any) -> None:
    region, key = memory
    shm.set_shared_memory_region(region, [X], offset=4)
    face.client.register_system_shared_memory("mine", key, 64)
    face.client.register_system_shared_memory("mine", key, 64)
    given, wanted = face.shared_input("x", [3], "FP32", "mine", 12, 4), face.shared_output("y", "mine", 24, 16)
    result = face.client.infer("next", [given], outputs=[wanted])
    told = {"shared_memory_region": "mine", "shared_memory_offset": 16, "shared_memory_byte_size": 12}
    assert face.parameters(result.get_output("y")) == told
    assert shm.get_contents_as_numpy(region, np.float32, [3], 16).tolist() == [1, 2, 3]
    # Mixed with tensors that travel, too.
    result = face.client.infer("sum", [face.shared_input("a", [1, 3], "FP32", "mine", 12, 4), face.input("b", X[None])])
    assert result.as_numpy("y").tolist() == [[0, 2, 4]]


def test_registered_regions(face: Face, memory: Any) -> None:
    _, key = memory
    client = face.client
    client.register_system_shared_memory("mine", key, 32, 8)
    status = client.get_system_shared_memory_status()
    (told,) = status if face.name == "http" else [face.told(one) for one in status.regions.values()]
    assert told == {"name": "mine", "key": key, "offset": 8, "byte_size": 32}
    with pytest.raises(InferenceServerException, match="unregister it first"):
        client.register_system_shared_memory("mine", key, 16)
    client.unregister_system_shared_memory("mine")
    with pytest.raises(InferenceServerException, match="no shared memory is registered as 'mine'"):
        client.get_system_shared_memory_status("mine")


@pytest.mark.parametrize(
    ("key", "size", "offset", "said"),
    [
        ("/nothing-there", 8, 0, "can't be opened"),
        ("/../../etc/passwd", 8, 0, "use the name of a region"),
        ("", 8, 0, "use the name of a region"),
        ("its own", 65, 0, "the region ends at 65"),
        ("its own", 8, 60, "the region ends at 68"),
        ("its own", 0, 0, "the size 0"),
    ],
)
def test_wrong_regions(face: Face, memory: Any, key: str, size: int, offset: int, said: str) -> None:
    with pytest.raises(InferenceServerException, match=said):
        face.client.register_system_shared_memory("mine", memory[1] if key == "its own" else key, size, offset)


@pytest.mark.parametrize(
    ("name", "size", "at", "said"),
    [
        ("other", 12, 0, "no shared memory is registered as 'other'"),
        ("mine", 12, 56, "it lies at 56 to 68 of shared memory 'mine', which has 64 bytes"),
        ("mine", 16, 0, "takes 12"),
    ],
)
def test_wrong_parts_of_regions(face: Face, memory: Any, name: str, size: int, at: int, said: str) -> None:
    face.client.register_system_shared_memory("mine", memory[1], 64)
    with pytest.raises(InferenceServerException, match=said):
        face.client.infer("next", [face.shared_input("x", [3], "FP32", name, size, at)])


def test_a_part_that_is_too_small_for_its_output(face: Face, memory: Any) -> None:
    face.client.register_system_shared_memory("mine", memory[1], 64)
    with pytest.raises(InferenceServerException, match="it has 12 bytes; its part of shared memory 'mine' has 8"):
        face.client.infer("next", [face.input("x", X)], outputs=[face.shared_output("y", "mine", 8)])


def test_memory_that_is_truncated(face: Face, memory: Any) -> None:
    """Neither reading nor writing it harms the server."""
    face.client.register_system_shared_memory("mine", memory[1], 64)
    os.truncate(f"/dev/shm{memory[1]}", 4)  # noqa: S108
    with pytest.raises(InferenceServerException, match="its memory has been truncated"):
        face.client.infer("next", [face.shared_input("x", [3], "FP32", "mine", 12)])
    face.client.infer("next", [face.input("x", X)], outputs=[face.shared_output("y", "mine", 12)])
    assert face.client.infer("next", [face.input("x", X)]).as_numpy("y").tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", FACES)
def test_a_server_without_shared_memory(start_server: StartServer, tmp_path: Path, memory: Any, name: str) -> None:
    add_model(tmp_path, "next")
    with face_of(name, start_server(tmp_path)) as face:
        assert "system_shared_memory" not in face.told(face.client.get_server_metadata())["extensions"]
        with pytest.raises(InferenceServerException, match="start it with --shared-memory"):
            face.client.register_system_shared_memory("mine", memory[1], 64)


@pytest.mark.parametrize("name", FACES)
def test_classes_with_labels(start_server: StartServer, tmp_path: Path, name: str) -> None:
    add_model(tmp_path, "scores")
    (tmp_path / "scores" / "labels.txt").write_text("\n".join(f"class {number}" for number in range(9)))
    (tmp_path / "scores" / "model.toml").write_text('[labels]\ny = "labels.txt"\n')
    x = np.array([[0, 3, 1, 0, 0, 0, 0, 0, 0, 2], [9, 0, 0, 0, 0, 0, 0, 0, 0, 8]], np.float32)
    with face_of(name, start_server(tmp_path)) as face:
        result = face.client.infer("scores", [face.input("x", x)], outputs=[face.output("y", classes=2)])
        found = result.as_numpy("y")
        assert [[text.decode().partition(":")[2] for text in row] for row in found] == [
            ["1:class 1", "9"],
            ["0:class 0", "9"],
        ]
        assert float(found[0, 0].partition(b":")[0]) == pytest.approx(np.exp(3) / np.exp(x[0]).sum(), rel=1e-4)
        result = face.client.infer("scores", [face.input("x", x)], outputs=[face.output("y", classes=100)])
        assert result.as_numpy("y").shape == (2, 10)
        (told,) = face.told(face.client.get_model_repository_index(), "models")
        assert (told["name"], told["version"], told["state"]) == ("scores", "1", "READY")


def test_classes_of_what_has_no_order(face: Face) -> None:
    with pytest.raises(InferenceServerException, match="of numbers"):
        face.client.infer("not", [face.input("x", X > 1)], outputs=[face.output("y", classes=1)])


def test_asynchronous_requests(face: Face) -> None:
    """Each gets its own response."""
    found: dict[str, Any] = {}
    if face.name == "http":
        asked = [face.client.async_infer("next", [face.input("x", X + at)], request_id=str(at)) for at in range(8)]
        results = [one.get_result() for one in asked]
        found = {result.get_response()["id"]: result for result in results}
    else:
        for at in range(8):
            face.client.async_infer(
                "next",
                [face.input("x", X + at)],
                lambda result, error, at=at: found.update({str(at): error or result}),
                request_id=str(at),
            )
        until(lambda: len(found) == 8)
    assert {name: one.as_numpy("y").tolist() for name, one in found.items()} == {
        str(at): (X + at + 1).tolist() for at in range(8)
    }


def test_a_stream(shared_server: ServerProcess) -> None:
    """Responses come in the order of the requests; one that fails ends nothing."""
    with face_of("grpc", shared_server) as face:
        found: list[Any] = []
        face.client.start_stream(lambda result, error: found.append(error or result.as_numpy("y").tolist()))
        for at in range(20):
            face.client.async_stream_infer("next" if at != 7 else "nothing", [face.input("x", X + at)])
        until(lambda: len(found) == 20)
        face.client.stop_stream()
        assert "there is no model 'nothing'" in str(found.pop(7))
        assert found == [(X + at + 1).tolist() for at in range(20) if at != 7]


@pytest.mark.parametrize("name", FACES)
def test_statistics(start_server: StartServer, tmp_path: Path, name: str) -> None:
    add_model(tmp_path, "next")
    add_model(tmp_path, "sum")
    with face_of(name, start_server(tmp_path)) as face:
        for rows in (2, 3):
            face.client.infer("next", [face.input("x", X[:rows])])
        with pytest.raises(InferenceServerException):
            face.client.infer("next", [face.input("z", X)])
        answer = face.client.get_inference_statistics("next")
        (told,) = answer["model_stats"] if name == "http" else [face.told(one) for one in answer.model_stats]
        parts = told["inference_stats"]
        counts = {
            part: parts[part]["count"] if name == "http" else getattr(parts, part).count
            for part in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
        }
        assert counts["success"] == 2
        assert counts["fail"] == 1
        assert told["execution_count"] == 2
        assert told["last_inference"] > 0


def test_a_cancelled_call_cancels_its_run(start_daemon: StartDaemon, start_server: StartServer, models: Path) -> None:
    """Of HTTP, `test_hostile_http` shows that."""
    daemon = start_daemon(*LISTEN, "--backend", "slow")
    with face_of("grpc", start_server(models, device=daemon.address)) as face:
        ended: list[Any] = []
        call = face.client.async_infer("next", [face.input("x", X)], lambda result, error: ended.append(error))
        until(lambda: "run started" in daemon.log())
        call.cancel()
        until(lambda: value(scraped(daemon), "nnrt_device_runs_total", result="cancelled") == 1)
        until(lambda: ended)
        with pytest.raises(InferenceServerException, match="DEADLINE_EXCEEDED"):
            face.client.infer("next", [face.input("x", X)], client_timeout=0.1)
        until(lambda: value(scraped(daemon), "nnrt_device_runs_total", result="cancelled") >= 1)
