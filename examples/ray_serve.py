"""Serve a model over HTTP with Ray Serve, on all devices of a Ray cluster.

ray start --head --resources '{"nnrt_device": 2}'
python -c 'from nnrt_client.ray import start; start("cameras", serve=["--backend", "onnxruntime"], detached=True)'
serve run --app-dir examples ray_serve:application model=$PWD/model.onnx device=ray:///cameras
curl -d '{"image": [[[[0.5]], [[0.5]], [[0.5]]]]}' http://127.0.0.1:8000
"""

from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

import nnrt_client
from nnrt_hdi.errors import InvalidParameter


class ServedModel:
    """Replica with a session on a pool of devices."""

    def __init__(self, model: str, device: str) -> None:
        self._session = nnrt_client.load(model, device)

    async def __call__(self, request: Request) -> JSONResponse:
        """Run the inputs of a request, JSON lists by name, and return the outputs likewise."""
        try:
            outputs = await self._session.run_async(await request.json())
        except (InvalidParameter, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({name: array.tolist() for name, array in outputs.items()})

    def check_health(self) -> None:
        """Raise RuntimeError if no device has the model; Ray Serve then replaces the replica."""
        if not self._session.devices:
            raise RuntimeError("no device has the model")


def application(arguments: dict[str, str]) -> Any:
    """Return the application of `serve run`, with the arguments `model` and `device`."""
    # A replica needs no processor of its own: it hands requests to the devices, and waits for none in a thread.
    options = {"num_replicas": 2, "max_ongoing_requests": 256, "ray_actor_options": {"num_cpus": 0}}
    return serve.deployment(ServedModel, **options).bind(**arguments)
