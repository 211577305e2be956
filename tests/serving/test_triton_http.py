"""The face for HTTP, by Triton's client."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from serving.served import MODELS, ServerProcess


@pytest.fixture
def client(shared_server: ServerProcess) -> Iterator[Any]:
    with triton.InferenceServerClient(shared_server.http, concurrency=8) as client:
        yield client


def tensor(name: str, array: "np.ndarray[Any, Any]", datatype: str, *, is_binary: bool = True) -> Any:
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=is_binary)
    return given


X = np.arange(3, dtype=np.float32)


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("next")
    assert client.is_model_ready("next", "1")
    assert not client.is_model_ready("next", "2")
    assert not client.is_model_ready("previous")
    told = client.get_server_metadata()
    assert told["name"] == "nnrt"
    assert "binary_tensor_data" in told["extensions"]
    assert client.get_model_metadata("next") == {
        "name": "next",
        "versions": ["1"],
        "platform": "nnrt",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    }
    assert client.get_model_config("half", "1")["input"] == [{"name": "x", "data_type": "TYPE_FP16", "dims": [-1]}]
    assert {one["name"] for one in client.get_model_repository_index()} == set(MODELS)


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize(
    ("model", "array", "datatype", "expected"),
    [
        ("next", X, "FP32", [1, 2, 3]),
        ("int64", np.array([1 << 40, -3]), "INT64", [1 << 41, -6]),
        ("not", np.array([True, False]), "BOOL", [False, True]),
        ("next", np.zeros(0, np.float32), "FP32", []),
    ],
)
def test_infer(client: Any, is_binary: bool, model: str, array: Any, datatype: str, expected: list[Any]) -> None:
    """Both ways as bytes or as JSON."""
    wanted = [triton.InferRequestedOutput("y", binary_data=is_binary)]
    result = client.infer(model, [tensor("x", array, datatype, is_binary=is_binary)], outputs=wanted, request_id="7")
    assert result.as_numpy("y").tolist() == expected
    assert result.as_numpy("y").dtype == array.dtype
    assert result.get_response()["id"] == "7"
    assert ("data" in result.get_output("y")) is not is_binary


def test_half_floats_travel_as_bytes_only(client: Any) -> None:
    x = np.array([1.5], np.float16)
    assert client.infer("half", [tensor("x", x, "FP16")]).as_numpy("y").tolist() == [3]
    for given, wanted in (
        (tensor("x", x, "FP16", is_binary=False), None),
        (tensor("x", x, "FP16"), [triton.InferRequestedOutput("y", binary_data=False)]),
    ):
        with pytest.raises(InferenceServerException, match="FP16 travels as binary data only") as refusal:
            client.infer("half", [given], outputs=wanted)
        assert refusal.value.status() == "400"


def test_several_inputs_and_outputs_in_any_order(client: Any) -> None:
    a, b = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    given = [tensor("b", b, "FP32"), tensor("a", a, "FP32", is_binary=False)]
    result = client.infer("sum", given)
    assert result.as_numpy("y").tolist() == [[3] * 3] * 2
    assert result.as_numpy("z").tolist() == [[-1] * 3] * 2
    wanted = [triton.InferRequestedOutput("z", binary_data=True), triton.InferRequestedOutput("y", binary_data=False)]
    result = client.infer("sum", given, outputs=wanted)
    assert [one["name"] for one in result.get_response()["outputs"]] == ["z", "y"]
    assert result.as_numpy("z").tolist() == [[-1] * 3] * 2
    assert "data" in result.get_output("y")


def test_concurrent_requests(client: Any) -> None:
    asked = [client.async_infer("next", [tensor("x", X + at, "FP32")]) for at in range(20)]
    for at, one in enumerate(asked):
        assert one.get_result().as_numpy("y").tolist() == (X + at + 1).tolist()


@pytest.mark.parametrize("request_way", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_way", [None, "gzip", "deflate"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_compression(client: Any, request_way: str | None, response_way: str | None, is_binary: bool) -> None:
    x = np.arange(4000, dtype=np.float32)
    result = client.infer(
        "next",
        [tensor("x", x, "FP32", is_binary=is_binary)],
        outputs=[triton.InferRequestedOutput("y", binary_data=is_binary)],
        request_compression_algorithm=request_way,
        response_compression_algorithm=response_way,
    )
    assert np.array_equal(result.as_numpy("y"), x + 1)


def test_large_tensors(client: Any) -> None:
    x = np.arange(3 << 20, dtype=np.float32)
    assert np.array_equal(client.infer("next", [tensor("x", x, "FP32")]).as_numpy("y"), x + 1)
    result = client.infer("next", [tensor("x", x, "FP32")], response_compression_algorithm="gzip")
    assert np.array_equal(result.as_numpy("y"), x + 1)


def test_classification(client: Any) -> None:
    x = np.array([[0, 3, 1, 0, 0, 0, 0, 0, 0, 2]] * 2, np.float32)
    for is_binary in (True, False):
        wanted = [triton.InferRequestedOutput("y", binary_data=is_binary, class_count=2)]
        found = client.infer("scores", [tensor("x", x, "FP32")], outputs=wanted).as_numpy("y")
        assert found.shape == (2, 2)
        texts = [one.decode() if isinstance(one, bytes) else one for one in found[1]]
        assert [text.split(":")[1] for text in texts] == ["1", "9"]


def test_parameters_come_back(client: Any) -> None:
    result = client.infer("next", [tensor("x", X, "FP32")], parameters={"colour": "red", "depth": 3, "deep": True})
    assert result.get_response()["parameters"] == {"colour": "red", "depth": 3, "deep": True}


def test_statistics(client: Any) -> None:
    before = client.get_inference_statistics("sum")["model_stats"][0]["inference_stats"]["success"]["count"]
    a = np.ones((4, 3), np.float32)
    client.infer("sum", [tensor("a", a, "FP32"), tensor("b", a, "FP32")])
    (told,) = client.get_inference_statistics("sum", "1")["model_stats"]
    assert told["inference_stats"]["success"]["count"] == before + 1
    assert told["inference_stats"]["success"]["ns"] > 0
    assert {one["name"] for one in client.get_inference_statistics()["model_stats"]} == set(MODELS)


@pytest.mark.parametrize(
    ("model", "version", "given", "status", "said"),
    [
        ("nothing", "", tensor("x", X, "FP32"), "404", "there is no model 'nothing'"),
        ("next", "9", tensor("x", X, "FP32"), "404", "there is no version '9'"),
        ("next", "", tensor("z", X, "FP32"), "400", "there is no input 'z'"),
        ("next", "", tensor("x", X.astype(np.int32), "INT32"), "400", "the model takes FP32"),
        ("next", "", tensor("x", X.reshape(1, 3), "FP32"), "400", "the model takes FP32"),
    ],
)
def test_refusals(client: Any, model: str, version: str, given: Any, status: str, said: str) -> None:
    with pytest.raises(InferenceServerException, match=said) as refusal:
        client.infer(model, [given], model_version=version)
    assert refusal.value.status() == status


def test_loading_with_parameters_is_refused(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="a model's settings are in its folder") as refusal:
        client.load_model("next", config="{}")
    assert refusal.value.status() == "501"
