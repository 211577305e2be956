"""KServe's server or client in a process of its own, started with a Python that has KServe.

    python benchmarks/kserve_peer.py ADDRESS OPTIONS

With arguments the process is a client, with the protocol of working_client.py. Without arguments it is a server, which
prints its address and ends when its standard input is closed.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

PEER = __file__
MODEL = "identity"
ANY_LENGTH = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@contextmanager
def kserve_server(python: str) -> Iterator[str]:
    """Start KServe's server and yield its address."""
    with subprocess.Popen([python, PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


async def serve_identity() -> None:
    """Serve y = x + 0."""
    from kserve import InferOutput, InferRequest, InferResponse, Model

    class Identity(Model):  # type: ignore[misc]
        def predict(self, payload: InferRequest, *others: Any) -> InferResponse:
            y = payload.inputs[0].as_numpy() + np.float32(0)
            output = InferOutput("y", list(y.shape), "FP32")
            output.set_data_from_numpy(y)
            return InferResponse(payload.id, MODEL, [output])

    await serve([Identity(MODEL)])


async def serve(models: Iterable[Any]) -> None:
    """Serve gRPC like `kserve.ModelServer`, but only on the loopback and without HTTP, until the input is closed."""
    import grpc
    from kserve import ModelRepository, logging
    from kserve.protocol.dataplane import DataPlane
    from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc
    from kserve.protocol.grpc.interceptors import ExceptionToStatusInterceptor, LoggingInterceptor
    from kserve.protocol.grpc.servicer import InferenceServicer
    from kserve.protocol.model_repository_extension import ModelRepositoryExtension

    logging.logger.setLevel("WARNING")
    repository = ModelRepository()
    for model in models:
        model.load()
        repository.update(model)
    server = grpc.aio.server(
        ThreadPoolExecutor(4), interceptors=(LoggingInterceptor(), ExceptionToStatusInterceptor()), options=ANY_LENGTH
    )
    servicer = InferenceServicer(DataPlane(repository), ModelRepositoryExtension(repository))
    grpc_predict_v2_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


def ask(address: str, elements: int) -> None:
    """Send requests with KServe's own client."""
    from kserve import InferenceGRPCClient, InferInput, InferRequest
    from working_client import work_on_request  # It needs nnrt, which the servers do without.

    x = np.ones(elements, np.float32)
    loop = asyncio.new_event_loop()

    async def connect() -> Any:
        return InferenceGRPCClient(address, timeout=None)

    client = loop.run_until_complete(connect())

    async def work(window_s: float) -> list[float]:
        stamps = [time.perf_counter()]
        while len(stamps) == 1 or stamps[-1] < stamps[0] + window_s:
            given = InferInput("x", list(x.shape), "FP32")
            given.set_data_from_numpy(x)
            response = await client.infer(InferRequest(MODEL, [given]))
            response.outputs[0].as_numpy()
            stamps.append(time.perf_counter())
        return [end - begin for begin, end in pairwise(stamps)]

    work_on_request(lambda window_s: loop.run_until_complete(work(window_s)))
    loop.run_until_complete(client.close())


if __name__ == "__main__":
    if arguments := sys.argv[1:]:
        ask(arguments[0], **json.loads(arguments[1]))
    else:
        asyncio.run(serve_identity())
