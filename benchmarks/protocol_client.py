"""Client process of a benchmark that speaks the Open Inference Protocol over gRPC to any server.

    python benchmarks/protocol_client.py ADDRESS OPTIONS

OPTIONS is a JSON object: `model`, `input`, `shape` of a FLOAT32 input, and `clients`, which send one request at a time
each. It follows the protocol of working_client.py. Requests are made once and replies aren't read, so that the client
takes little of the processor.
"""

import asyncio
import json
import sys
import time
from typing import Any

import grpc.aio
import numpy as np
from working_client import work_on_request

from nnrt_client.serving.wire import open_inference_pb2 as pb

METHOD = "/inference.GRPCInferenceService/ModelInfer"
# Connections, among which the clients are divided.
MOST_CHANNELS = 8
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


def main(address: str, model: str, input: str, shape: list[int], clients: int) -> None:
    """Send requests on request."""
    request = pb.ModelInferRequest(model_name=model, raw_input_contents=[np.ones(shape, np.float32).tobytes()])
    request.inputs.add(name=input, datatype="FP32", shape=shape)
    data = request.SerializeToString()
    loop = asyncio.new_event_loop()

    async def connect() -> list[Any]:
        channels = [grpc.aio.insecure_channel(address, OPTIONS) for _ in range(min(clients, MOST_CHANNELS))]
        return [channels[at % len(channels)].unary_unary(METHOD) for at in range(clients)]

    calls = loop.run_until_complete(connect())

    async def ask(call: Any, until: float, times: list[float]) -> None:
        began = 0.0
        while began < until:
            began = time.perf_counter()
            await call(data)
            times.append(time.perf_counter() - began)

    async def work(window_s: float) -> list[float]:
        times: list[float] = []
        until = time.perf_counter() + window_s
        await asyncio.gather(*(ask(call, until, times) for call in calls))
        return times

    work_on_request(lambda window_s: loop.run_until_complete(work(window_s)))


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
