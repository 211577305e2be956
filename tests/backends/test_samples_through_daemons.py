"""Every sample of the operator suite through two real daemons, which agree: on ONNX Runtime and on the reference."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from daemon_process import DaemonProcess
from operators.samples import SAMPLES, Sample
from operators.single_node import AnyArray, graph_of, pairs
from operators.tolerances import TOLERANCES, relative_error
from test_onnxruntime_samples import inputs_of, may_lack_kernel

from nnrt_client import Device, NnrtError, Runtime
from nnrt_client.build.build_task import BuildTask
from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.build.upload import compile_graph
from nnrt_client.session.support import ask_supported
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.enums import DataType, NodeType, Priority
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import QuantParam, TensorSpec, data_type_of
from nnrt_hdi.v2 import prepared_model_pb2

# One waits for a daemon while the other compares.
THREADS = 2
RUN_S = 60.0


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Device, Device]]:
    """ONNX Runtime's and the reference one."""
    daemons = [
        DaemonProcess("--backend", "onnxruntime", "--option", "threads=1", "--concurrent-runs", "2"),
        DaemonProcess("--concurrent-runs", "2"),
    ]
    try:
        with Runtime([daemon.address for daemon in daemons]) as runtime:
            fast, reference = runtime.devices()
            yield fast, reference
    finally:
        for daemon in daemons:
            daemon.kill()


def run(device: Device, graph: Graph, inputs: list[AnyArray]) -> list[AnyArray]:
    """Prepare, run once, and release. Nodes go as they are: not each is the operation of an application."""
    build = BuildTask()
    build.connect(session := device._session())
    prepared = PreparedHandle(session, compile_graph(build, graph, ModelConfig()), Priority.NONE)
    try:
        tensors = [wire.io_tensor_message(TensorSpec(data_type_of(x.dtype), x.shape), x) for x in inputs]
        request = prepared_model_pb2.RunRequest(model_id=prepared.model_id, inputs=tensors)
        reply = session.call("PreparedModel.Run", request, RUN_S)
        return [wire.io_array(output) for output in reply.outputs]
    finally:
        prepared.release()


def disagreement(sample: Sample, fast: Device, reference: Device) -> str:
    """The difference between the daemon's answer and the reference's; empty if there is none."""
    graph = graph_of(sample.node_type, pairs(sample, sample.arrays()), sample.attrs)
    inputs = inputs_of(sample)
    try:
        wanted = run(reference, graph, inputs)
        try:
            given = run(fast, graph, inputs)
        except Unsupported as error:
            (support,) = ask_supported(fast._session(), graph)
            return "" if may_lack_kernel(sample) and not support.supported else f"{sample.name}: {error}"
    except NnrtError as error:
        return f"{sample.name}: {error!r}"
    for y, expected in zip(given, wanted, strict=True):
        if (y.dtype, y.shape) != (expected.dtype, expected.shape):
            return f"{sample.name}: {y.dtype}{y.shape} instead of {expected.dtype}{expected.shape}"
        if (distance := relative_error(y, expected)) > TOLERANCES.get(y.dtype.name, 0.0):
            return f"{sample.name}: relative error {distance:.2e}"
    return ""


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_every_sample_gives_the_same_on_both(devices: tuple[Device, Device]) -> None:
    """They are many more than a client may have at a time: what is released makes room."""
    with ThreadPoolExecutor(THREADS) as threads:
        found = threads.map(lambda sample: disagreement(sample, *devices), SAMPLES)
        assert [said for said in found if said] == []


@pytest.mark.slow
@pytest.mark.parametrize("node_type", [NodeType.QUANT_DTYPE_CAST, NodeType.QUANT_DTYPE_CAST_V2])
def test_conversions(devices: tuple[Device, Device], node_type: NodeType) -> None:
    """The two that have no samples: in steps of 0.1 from 3 on."""
    x = np.array([-1, 0.04, 2.26], np.float32)
    real = TensorSpec(DataType.FLOAT32, x.shape)
    steps = TensorSpec(DataType.INT8, x.shape, quant=(QuantParam(0.1, 3),))
    attrs = {"src_t": int(real.data_type), "dst_t": int(steps.data_type)}
    if node_type is NodeType.QUANT_DTYPE_CAST_V2:
        attrs["axis"] = 0
    for device in devices:
        (y,) = run(device, graph_of(node_type, [(real, None)], attrs, steps), [x])
        assert (y.dtype.name, y.tolist()) == ("int8", [-7, 3, 26])
