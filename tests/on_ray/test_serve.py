"""The example for Ray Serve, in a cluster, over HTTP."""

import importlib.util
import json
import socket
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from on_ray.test_predictor import REFERENCE, affine_model

pytest.importorskip("ray.serve", reason="needs Ray Serve: `make engines` has it")

from ray import serve

from nnrt_client.ray import start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]  # Ray's own.

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_serve.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("ray_serve", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(port: int, inputs: object) -> tuple[int, Any]:
    data = json.dumps(inputs).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", data, timeout=60) as reply:
            return reply.status, json.load(reply)
    except HTTPError as error:
        return error.code, json.load(error)


def test_it_serves_over_http(cluster: Any, tmp_path: Path) -> None:
    affine_model(-1).save(tmp_path / "affine.nnrt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with start("served", serve=REFERENCE) as fleet:
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        try:
            serve.run(example().application({"model": str(tmp_path / "affine.nnrt"), "device": fleet.target}))
            status, outputs = answer(port, {"x": [[0, 1, -1]]})
            assert (status, *outputs.values()) == (200, [[1, 3, -1]])
            status, told = answer(port, {"y": [[0, 1, -1]]})
            assert (status, "['y']" in told["error"]) == (400, True)
        finally:
            serve.shutdown()
