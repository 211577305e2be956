"""The face for gRPC, by Triton's client."""

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton

from serving.served import ServerProcess


@pytest.fixture
def client(shared_server: ServerProcess) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(shared_server.grpc) as client:
        yield client


def test_infer(client: triton.InferenceServerClient) -> None:
    x = triton.InferInput("x", [3], "FP32")
    x.set_data_from_numpy(np.arange(3, dtype=np.float32))
    assert client.infer("next", [x]).as_numpy("y").tolist() == [1, 2, 3]
