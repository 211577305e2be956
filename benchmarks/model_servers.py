"""`nnrt serve`, compared with other servers of the Open Inference Protocol and with a session in process."""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import onnx
from harness import (
    ROOT,
    Report,
    alternate,
    at_most,
    clients,
    device_daemon,
    environment,
    in_rounds,
    pair_cells,
    per_second,
    work,
)
from numpy.typing import NDArray
from onnx_models import Graph
from onnx_networks import encoder, onnx_network
from residency import residency_of

from nnrt_client import load
from nnrt_client.serving.wire import open_inference_pb2 as pb

ROUNDS, WINDOW_S = 5, 1.0
COUNTS = (1, 8, 64)
# Runs for the median of a latency, and elements of 600 KB.
RUNS, ELEMENTS = 100, 3 * 224 * 224
# Requests during changes, the threads that send them, and the elements of each.
REQUESTS, ASKING, WIDTH = 10_000, 8, 256
MODELS, WEIGHT_BYTES = 100, 4 << 20
METHOD = "/inference.GRPCInferenceService/ModelInfer"
# Each beside the environment that this is run in.
PEERS = {name: ROOT / f".nox/{session}/bin/python" for name, session in (("kserve", "peers"), ("mlserver", "mlserver"))}
OURS = "nnrt serve"
CLIENT = (sys.executable, str(ROOT / "benchmarks" / "protocol_client.py"))


def measure() -> Iterator[Report]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, model in (("plus", plus()), ("resnet", onnx_network("resnet50")), ("encoder", encoder())):
            add_version(folder, name, "1", model)
        device, _ = stack.enter_context(device_daemon(f"unix:{folder}/device", "--backend", "onnxruntime"))
        address = stack.enter_context(server(folder / "models", device))
        yield _compare_servers(folder / "models", address)
        yield _overhead(folder / "models", address, device)
    yield _disturbed()
    yield _more_than_fit()


def plus() -> onnx.ModelProto:
    """Return y = x + 1, the model with the least work."""
    g = Graph()
    return g.model(g.op("Add", g.input("x", ["n"]), g.constant(np.ones(1, "f4"))))


def heavy_plus(columns: int, seed: int) -> onnx.ModelProto:
    """Return y = x + 1 + 0 W for a row x of WIDTH elements, where W has so many columns."""
    g = Graph()
    x = g.input("x", [WIDTH])
    weights = g.constant(np.random.default_rng(seed).random((WIDTH, columns), "f4"))
    zero = g.op("ReduceSum", g.op("MatMul", g.op("Mul", x, g.constant(np.zeros(1, "f4"))), weights))
    return g.model(g.op("Add", g.op("Add", x, g.constant(np.ones(1, "f4"))), zero))


def add_version(folder: Path, model: str, version: str, proto: onnx.ModelProto) -> None:
    """Put a version into the repository. The rename makes it appear whole."""
    made, there = folder / "made" / model / version, folder / "models" / model
    made.mkdir(parents=True)
    there.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, made / "model.onnx")
    made.rename(there / version)


def request(model: str, x: NDArray[np.float32]) -> bytes:
    """Return the bytes of a request."""
    made = pb.ModelInferRequest(model_name=model, raw_input_contents=[x.tobytes()])
    made.inputs.add(name="x", datatype="FP32", shape=x.shape)
    return made.SerializeToString()


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


class Asked(NamedTuple):
    """Latencies of the requests that were answered, in seconds, errors of the others, and versions that answered."""

    latencies: list[float]
    errors: list[str]
    versions: set[str]

    def cells(self) -> tuple[str, ...]:
        """Return cells: requests, failed ones, p50, p99 and the longest in ms."""
        for error in self.errors[:3]:
            print(error, file=sys.stderr)
        figures = [f"{1e3 * float(np.quantile(self.latencies, q)):.1f}" for q in (0.5, 0.99, 1)]
        return str(len(self.latencies) + len(self.errors)), str(len(self.errors)), *figures


def _ask(address: str, models: Sequence[str], requests: int, on_answer: Callable[[int], object]) -> Asked:
    """Send requests from some threads, each for the next of the models; `on_answer` gets the number of answers."""
    asked, turns, lock = Asked([], [], set()), iter(range(requests)), threading.Lock()
    channel = grpc.insecure_channel(address)
    call = channel.unary_unary(METHOD)

    def work() -> None:
        while (turn := next(turns, None)) is not None:
            data = request(models[turn % len(models)], np.full(WIDTH, turn, np.float32))
            began = time.perf_counter()
            try:
                answer = pb.ModelInferResponse.FromString(call(data, timeout=60))
                (y,) = np.unique(np.frombuffer(answer.raw_output_contents[0], np.float32))
                assert y == np.float32(turn) + 1, f"{y} for {turn}"
            except (grpc.RpcError, ValueError, AssertionError) as error:
                asked.errors.append(str(error))
            else:
                asked.latencies.append(time.perf_counter() - began)
                asked.versions.add(answer.model_version)
            with lock:
                on_answer(len(asked.latencies))

    threads = [threading.Thread(target=work) for _ in range(ASKING)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    channel.close()
    return asked


def _disturbed() -> Report:
    requests = at_most(REQUESTS, 1000)
    report = Report(
        "Requests while versions and daemons change",
        f"{ASKING} threads send x + 1 of 1 KB over gRPC to a server on two daemons. Meanwhile three new versions are"
        " put into the folder, and each daemon is killed once and started again.",
        ("requests", "failed", "p50 ms", "p99 ms", "longest ms", "versions"),
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        listen = [f"unix:{folder}/{name}" for name in ("ada", "bell")]
        daemons = [stack.enter_context(ExitStack()) for _ in listen]
        pids = [own.enter_context(device_daemon(at)).pid for own, at in zip(daemons, listen, strict=True)]
        add_version(folder, "plus", "1", plus())
        address = stack.enter_context(server(folder / "models", *listen))
        steps = iter(range(1, 8))

        def restart(which: int) -> None:
            os.kill(pids[which], signal.SIGKILL)
            daemons[which].close()
            daemons[which].enter_context(device_daemon(listen[which]))

        acts = {
            1: partial(add_version, folder, "plus", "2", plus()),
            3: partial(restart, 0),
            4: partial(add_version, folder, "plus", "3", plus()),
            5: partial(restart, 1),
            6: partial(add_version, folder, "plus", "4", plus()),
        }
        due = deque((step * requests // 8, acts[step]) for step in steps if step in acts)

        def disturb(answers: int) -> None:
            if due and answers >= due[0][0]:
                due.popleft()[1]()

        asked = _ask(address, ["plus"], requests, disturb)
        report.add(*asked.cells(), ", ".join(sorted(asked.versions)))
    return report


def _more_than_fit() -> Report:
    count = at_most(MODELS, 20)
    report = Report(
        "More models than fit",
        f"{count} models of {WEIGHT_BYTES >> 20} MB on a daemon with --resident-bytes for a tenth of them; requests for"
        f" one after the other, from {ASKING} threads, so that nearly each waits for its model.",
        ("requests", "failed", "p50 ms", "p99 ms", "longest ms", "restored"),
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = [f"plus{at}" for at in range(count)]
        for at, name in enumerate(names):
            add_version(folder, name, "1", heavy_plus(WEIGHT_BYTES // 4 // WIDTH, at))
        options = ["--store-dir", f"{folder}/store", "--session-models", str(count)]
        options += ["--resident-bytes", str(count // 10 * WEIGHT_BYTES * 5 // 4)]
        device, _ = stack.enter_context(device_daemon(f"unix:{folder}/device", *options))
        address = stack.enter_context(server(folder / "models", device))
        asked = _ask(address, names, 3 * count, lambda _: None)
        report.add(*asked.cells(), str(residency_of(device).restored))
    return report


def _overhead(models: Path, address: str, device: str) -> Report:
    report = Report(
        "What a server costs a request",
        f"x + 1 of 600 KB, p50 of {RUNS} runs in alternating rounds: a session of nnrt_client in this process, and a"
        " request over gRPC to `nnrt serve`, both on the same daemon.",
        ("session ms", "request ms", "ratio", "quartiles"),
    )
    x = np.ones(ELEMENTS, np.float32)

    def ask() -> None:
        response = pb.ModelInferResponse.FromString(call(request("plus", x)))
        np.frombuffer(response.raw_output_contents[0], np.float32)

    with (
        load(models / "plus/1/model.onnx", device=device) as session,
        grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel,
    ):
        call = channel.unary_unary(METHOD)
        report.add(*pair_cells(alternate(partial(session.run, {"x": x}), ask, RUNS, ROUNDS), scale=1e-3))
    return report
