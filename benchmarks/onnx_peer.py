"""Models of a folder on other servers of the Open Inference Protocol, computed by ONNX Runtime in the same process.

    python benchmarks/onnx_peer.py kserve|mlserver FOLDER

The Python must have the server. FOLDER has NAME/1/model.onnx. The process prints its address and ends when its standard
input is closed.
"""

import asyncio
import logging
import os
import sys
from pathlib import Path
from socket import socket
from typing import Any

import onnxruntime
from kserve_peer import serve

try:
    from mlserver import MLModel
except ImportError:
    MLModel = object

# Names of element types.
NAMES = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}


def session_of(path: str | Path) -> Any:
    """Return a session of a file. Its threads don't spin while they wait, as those of the daemon."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options)


def models_of(folder: Path) -> dict[str, Path]:
    """Return the files of the models by name."""
    return {path.parents[1].name: path for path in sorted(folder.glob("*/1/model.onnx"))}


async def serve_kserve(folder: Path) -> None:
    """Serve with KServe."""
    from kserve import InferOutput, InferRequest, InferResponse, Model

    class OnnxModel(Model):  # type: ignore[misc]
        def __init__(self, name: str, path: Path) -> None:
            super().__init__(name)
            self.session = session_of(path)

        def predict(self, payload: InferRequest, *others: Any) -> InferResponse:
            outputs = self.session.run(None, {one.name: one.as_numpy() for one in payload.inputs})
            made = []
            for told, array in zip(self.session.get_outputs(), outputs, strict=True):
                made.append(InferOutput(told.name, list(array.shape), NAMES[array.dtype.name]))
                made[-1].set_data_from_numpy(array)
            return InferResponse(payload.id, self.name, made)

    await serve([OnnxModel(name, path) for name, path in models_of(folder).items()])


class OnnxOnMlserver(MLModel):  # type: ignore[misc]
    """Model of MLServer, which imports the class by its name."""

    async def load(self) -> bool:
        self.session = session_of(self.settings.parameters.uri)
        return True

    async def predict(self, payload: Any) -> Any:
        from mlserver.codecs import NumpyCodec
        from mlserver.types import InferenceResponse

        outputs = self.session.run(None, {one.name: NumpyCodec.decode_input(one) for one in payload.inputs})
        known = self.session.get_outputs()
        made = [NumpyCodec.encode_output(told.name, array) for told, array in zip(known, outputs, strict=True)]
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=made)


async def serve_mlserver(folder: Path) -> None:
    """Serve with MLServer, in one process."""
    from mlserver import MLServer, ModelSettings, Settings
    from mlserver.settings import ModelParameters

    with socket() as http, socket() as grpc, socket() as metrics:
        ports = []
        for one in (http, grpc, metrics):
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
    settings = Settings(
        host="127.0.0.1",
        http_port=ports[0],
        grpc_port=ports[1],
        metrics_port=ports[2],
        parallel_workers=0,
        grpc_max_message_length=-1,
    )
    models = [
        ModelSettings(name=name, implementation="onnx_peer.OnnxOnMlserver", parameters=ModelParameters(uri=str(path)))
        for name, path in models_of(folder).items()
    ]
    server = MLServer(settings)
    logging.getLogger("mlserver").setLevel("WARNING")
    serving = asyncio.create_task(server.start(models))
    serving.add_done_callback(lambda ended: ended.result())
    while not await server._data_plane.ready():
        await asyncio.sleep(0.05)
    print(f"127.0.0.1:{ports[1]}", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # It logs there, and nobody reads it.
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # Its servers take longer to end than anybody waits for.


if __name__ == "__main__":
    asyncio.run({"kserve": serve_kserve, "mlserver": serve_mlserver}[sys.argv[1]](Path(sys.argv[2])))
