"""Other servers of the Open Inference Protocol, which compute with ONNX Runtime in their own process.

    python benchmarks/serving_peer.py kserve|mlserver FOLDER

The Python must have the server. FOLDER has NAME/1/model.onnx. The process prints its address and ends when its standard
input is closed.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import socket
from typing import Any

import onnxruntime

# KServe's names of element types, which are the protocol's.
NAMES = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}


def sessions(folder: Path) -> dict[str, onnxruntime.InferenceSession]:
    """Return a session of ONNX Runtime for each model."""
    return {path.parents[1].name: onnxruntime.InferenceSession(path) for path in folder.glob("*/1/model.onnx")}


async def until_closed() -> None:
    """Wait until the standard input is closed."""
    await asyncio.to_thread(sys.stdin.read)


async def serve_kserve(folder: Path) -> None:
    """Serve gRPC like `kserve.ModelServer`, but only on the loopback and without HTTP."""
    import grpc
    from kserve import InferOutput, InferRequest, InferResponse, Model, ModelRepository, logging
    from kserve.protocol.dataplane import DataPlane
    from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc
    from kserve.protocol.grpc.interceptors import ExceptionToStatusInterceptor, LoggingInterceptor
    from kserve.protocol.grpc.servicer import InferenceServicer
    from kserve.protocol.model_repository_extension import ModelRepositoryExtension

    class OnnxModel(Model):  # type: ignore[misc]
        def __init__(self, name: str, session: Any) -> None:
            super().__init__(name)
            self.session = session
            self.load()

        def predict(self, payload: InferRequest, *others: Any) -> InferResponse:
            outputs = self.session.run(None, {one.name: one.as_numpy() for one in payload.inputs})
            made = []
            for told, array in zip(self.session.get_outputs(), outputs, strict=True):
                made.append(InferOutput(told.name, list(array.shape), NAMES[array.dtype.name]))
                made[-1].set_data_from_numpy(array)
            return InferResponse(payload.id, self.name, made)

    logging.logger.setLevel("WARNING")
    models = ModelRepository()
    for name, session in sessions(folder).items():
        models.update(OnnxModel(name, session))
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    server = grpc.aio.server(
        ThreadPoolExecutor(4), interceptors=(LoggingInterceptor(), ExceptionToStatusInterceptor()), options=options
    )
    servicer = InferenceServicer(DataPlane(models), ModelRepositoryExtension(models))
    grpc_predict_v2_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await until_closed()
    await server.stop(0)


async def serve_mlserver(folder: Path) -> None:
    """Serve with MLServer, in one process."""
    from mlserver import MLModel, MLServer, ModelSettings, Settings
    from mlserver.codecs import NumpyCodec
    from mlserver.types import InferenceRequest, InferenceResponse

    known = sessions(folder)

    class OnnxModel(MLModel):  # type: ignore[misc]
        async def load(self) -> bool:
            return True

        async def predict(self, payload: InferenceRequest) -> InferenceResponse:
            session = known[self.name]
            outputs = session.run(None, {one.name: NumpyCodec.decode_input(one) for one in payload.inputs})
            made = [
                NumpyCodec.encode_output(told.name, array)
                for told, array in zip(session.get_outputs(), outputs, strict=True)
            ]
            return InferenceResponse(id=payload.id, model_name=self.name, outputs=made)

    http, grpc, metrics = (_free_port() for _ in range(3))
    server = MLServer(
        Settings(
            host="127.0.0.1",
            http_port=http,
            grpc_port=grpc,
            metrics_port=metrics,
            parallel_workers=0,
            debug=False,
            grpc_max_message_length=-1,
        )
    )
    serving = asyncio.create_task(server.start([ModelSettings(name=name, implementation=OnnxModel) for name in known]))
    for name in known:
        while not await _is_ready(server, name):
            await asyncio.sleep(0.05)
    print(f"127.0.0.1:{grpc}", flush=True)
    await until_closed()
    serving.cancel()


async def _is_ready(server: Any, name: str) -> bool:
    try:
        return bool(await server._data_plane.model_ready(name))
    except Exception:
        return False


def _free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


if __name__ == "__main__":
    asyncio.run({"kserve": serve_kserve, "mlserver": serve_mlserver}[sys.argv[1]](Path(sys.argv[2])))
