"""`nnrt serve`, compared with other servers of the Open Inference Protocol and with a session in process."""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from harness import (
    ROOT,
    Report,
    alternate,
    clients,
    device_daemon,
    environment,
    in_rounds,
    pair_cells,
    per_second,
    work,
)
from onnx_models import Graph
from onnx_networks import encoder, onnx_network

from nnrt_client import load

ROUNDS, WINDOW_S = 5, 1.0
COUNTS = (1, 8, 64)
# Runs for the median of a latency, and elements of 600 KB.
RUNS, ELEMENTS = 100, 3 * 224 * 224
# Each beside the environment that this is run in.
PEERS = {name: ROOT / f".nox/{session}/bin/python" for name, session in (("kserve", "peers"), ("mlserver", "mlserver"))}
OURS = "nnrt serve"
CLIENT = (sys.executable, str(ROOT / "benchmarks" / "protocol_client.py"))


def measure() -> Iterator[Report]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, model in (("plus", plus()), ("resnet", onnx_network("resnet50")), ("encoder", encoder())):
            path = folder / "models" / name / "1" / "model.onnx"
            path.parent.mkdir(parents=True)
            onnx.save(model, path)
        device, _ = stack.enter_context(device_daemon(f"unix:{folder}/device", "--backend", "onnxruntime"))
        address = stack.enter_context(server(folder / "models", device))
        yield _compare_servers(folder / "models", address)
        yield _overhead(folder / "models", address, device)


def plus() -> onnx.ModelProto:
    """Return y = x + 1, the model with the least work."""
    g = Graph()
    x = g.input("x", ["n"])
    return g.model(g.op("Add", x, g.constant(np.ones(1, "f4"))))


@contextmanager
def server(models: Path, *devices: str) -> Iterator[str]:
    """Start `nnrt serve` for a folder of models, and yield its gRPC address."""
    command = [
        sys.executable,
        "-m",
        "nnrt_client",
        "serve",
        str(models),
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
    ]
    command += [word for device in devices for word in ("--device", device)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1].removeprefix("grpc://")
        finally:
            process.terminate()


@contextmanager
def peer(name: str, models: Path) -> Iterator[str]:
    """Start another server for a folder of models, and yield its gRPC address."""
    command = [str(PEERS[name]), str(ROOT / "benchmarks" / "onnx_peer.py"), name, str(models)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        while ":" not in (line := process.stdout.readline().strip()) or not line.startswith("127.0.0.1:"):
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended without an address")
        yield line
        process.communicate()


def _compare_servers(models: Path, ours: str) -> Report:
    report = Report(
        "Servers of the Open Inference Protocol",
        "Requests over gRPC to KServe's and MLServer's Python servers, which compute with ONNX Runtime in their own"
        " process, and to `nnrt serve` with a daemon of the onnxruntime backend, all on one host. One process has all"
        f" clients, which send one request at a time each. Latency (p50) and requests per second of all, in {ROUNDS}"
        f" alternating rounds of {WINDOW_S:g} s. ratio: requests per second of `nnrt serve` divided by the other's,"
        " median over the rounds, with quartiles.",
        ("model", "clients", "server", "p50 ms", "requests/s", "ratio", "quartiles"),
    )
    with ExitStack() as stack:
        addresses = {name: stack.enter_context(peer(name, models)) for name, python in PEERS.items() if python.exists()}
        addresses[OURS] = ours
        for path in sorted(models.glob("*/1/model.onnx")):
            given = onnx.load(path, load_external_data=False).graph.input[0]
            shape = [one.dim_value or 1 for one in given.type.tensor_type.shape.dim]
            for count in COUNTS:
                model = path.parents[1].name
                options = {"model": model, "input": given.name, "shape": shape, "clients": count}
                with ExitStack() as crowds:
                    ways = {
                        name: partial(work, crowds.enter_context(clients(1, address, options, CLIENT)), WINDOW_S)
                        for name, address in addresses.items()
                    }
                    rounds = in_rounds(ways, ROUNDS)
                rates = {name: list(map(per_second, works)) for name, works in rounds.items()}
                for name, works in rounds.items():
                    p50 = statistics.median(each.median_us for crowd in works for each in crowd) / 1e3
                    ratio = pair_cells(zip(rates[name], rates[OURS], strict=True))[2:] if name != OURS else ("", "")
                    cells = f"{p50:.2f}", f"{statistics.median(rates[name]):.0f}"
                    report.add(model, str(count), name, *cells, *ratio)
        for name in PEERS.keys() - addresses.keys():
            report.add("", "", name, "", "", "", "not installed; make peers installs it")
    return report


def _overhead(models: Path, address: str, device: str) -> Report:
    import grpc

    from nnrt_client.serving.wire import open_inference_pb2 as pb

    report = Report(
        "What a server costs a request",
        f"x + 1 of 600 KB, p50 of {RUNS} runs in alternating rounds: a session of nnrt_client in this process, and a"
        " request over gRPC to `nnrt serve`, both on the same daemon.",
        ("session ms", "request ms", "ratio", "quartiles"),
    )
    x = np.ones(ELEMENTS, np.float32)
    request = pb.ModelInferRequest(model_name="plus")
    request.inputs.add(name="x", datatype="FP32", shape=x.shape)

    def ask() -> None:
        request.ClearField("raw_input_contents")
        request.raw_input_contents.append(x.tobytes())
        response = pb.ModelInferResponse.FromString(call(request.SerializeToString()))
        np.frombuffer(response.raw_output_contents[0], np.float32)

    with (
        load(models / "plus/1/model.onnx", device=device) as session,
        grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        report.add(*pair_cells(alternate(partial(session.run, {"x": x}), ask, RUNS, ROUNDS), scale=1e-3))
    return report
