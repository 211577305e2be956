"""A server or a client of `peers.py`, in a process of its own, by the interpreter that has what it needs.

    python benchmarks/peer_process.py serve-kserve
    python benchmarks/peer_process.py (kserve | nnrt-grpc | nnrt-local) ADDRESS

A server says where it is reached, and ends with its standard input. A client says that it is ready. Then it is told
seconds and a number of elements, a line for each round: it sends one request after another for so long, and says what
their median took in µs and how many there are in a second.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
MODEL = "identity"
ANY_LENGTH = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
WARM_UP = 1


async def serve_kserve() -> None:
    """KServe's server as `kserve.ModelServer` makes it for gRPC, but on the loopback alone and with no HTTP beside."""
    import grpc
    from kserve import InferOutput, InferRequest, InferResponse, Model, ModelRepository, logging
    from kserve.protocol.dataplane import DataPlane
    from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc
    from kserve.protocol.grpc.interceptors import ExceptionToStatusInterceptor, LoggingInterceptor
    from kserve.protocol.grpc.servicer import InferenceServicer
    from kserve.protocol.model_repository_extension import ModelRepositoryExtension

    class Identity(Model):  # type: ignore[misc]
        def predict(self, payload: InferRequest, *others: Any) -> InferResponse:
            y = payload.inputs[0].as_numpy() + np.float32(0)
            output = InferOutput("y", list(y.shape), "FP32")
            output.set_data_from_numpy(y)
            return InferResponse(payload.id, MODEL, [output])

    logging.logger.setLevel("WARNING")
    models, model = ModelRepository(), Identity(MODEL)
    model.load()
    models.update(model)
    server = grpc.aio.server(
        ThreadPoolExecutor(4), interceptors=(LoggingInterceptor(), ExceptionToStatusInterceptor()), options=ANY_LENGTH
    )
    servicer = InferenceServicer(DataPlane(models), ModelRepositoryExtension(models))
    grpc_predict_v2_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


async def kserve_client(address: str) -> None:
    """KServe's own client."""
    from kserve import InferenceGRPCClient, InferInput, InferRequest

    async with InferenceGRPCClient(address, timeout=None) as client:

        async def infer(x: AnyArray) -> AnyArray:
            given = InferInput("x", list(x.shape), "FP32")
            given.set_data_from_numpy(x)
            response = await client.infer(InferRequest(MODEL, [given]))
            y: AnyArray = response.outputs[0].as_numpy()
            return y

        await _told(infer)


async def nnrt_client(address: str, share_memory: bool) -> None:
    from small_run import identity_model

    from nnrt_client import Compilation, Executor, Runtime, Settings

    with Runtime([address], Settings(share_memory=share_memory)) as runtime:
        executors: dict[int, Executor] = {}

        async def infer(x: AnyArray) -> AnyArray:
            if x.size not in executors:
                compilation = Compilation(identity_model(x.size), runtime.device())
                compilation.build()
                executors[x.size] = Executor(compilation)
            (y,) = executors[x.size].run_sync([x])
            return y

        await _told(infer)


async def _told(infer: Callable[[AnyArray], Awaitable[AnyArray]]) -> None:
    """Do what standard input says."""
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        seconds, elements = line.split()
        x = np.ones(int(elements), np.float32)
        for _ in range(WARM_UP):
            assert np.array_equal(await infer(x), x)
        stamps = [time.perf_counter()]
        while len(stamps) == 1 or stamps[-1] < stamps[0] + float(seconds):
            await infer(x)
            stamps.append(time.perf_counter())
        times = [end - begin for begin, end in pairwise(stamps)]
        print(json.dumps([statistics.median(times) * 1e6, 1 / statistics.mean(times)]), flush=True)


def main() -> None:
    kind, *arguments = sys.argv[1:]
    if kind == "serve-kserve":
        asyncio.run(serve_kserve())
    elif kind == "kserve":
        asyncio.run(kserve_client(arguments[0]))
    else:
        asyncio.run(nnrt_client(arguments[0], share_memory=kind == "nnrt-local"))


if __name__ == "__main__":
    main()
