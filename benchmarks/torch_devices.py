"""Networks on a device of the torch backend, compared with torch and ONNX Runtime in the client's process.

    python benchmarks/torch_devices.py [--device cpu|cuda:0|mps|xpu:0] [--write]

`make bench-torch` and `make bench-gpu` install what it needs. On an accelerator the networks run with 1 and with 32
rows, and a last table shows how fast tensors travel.
"""

import argparse
import datetime
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
import onnxruntime
import torch
from export_networks import every_network, export, make
from families.network import TORCHSCRIPT, Input, Network
from harness import Report, alternate, at_most, device_daemon, in_rounds, pair_cells, seconds
from numpy.typing import NDArray
from torch import nn

from nnrt_client import DataType, ModelSession, ResidentTensor, Runtime, TensorDesc, load

# Networks of benchmarks/families, from one below a millisecond to those of many.
CHOSEN = ("perceptron", "ResNet", "U-Net", "BERT", "convolution and LSTM")
CLIENTS, WINDOW_S = 16, 3.0
ROUNDS, RUNS = 11, 5
PAGE = harness.ROOT / "docs/reference/performance/torch_devices.md"
TITLE = "Networks on the torch backend"

Feeds = Mapping[str, NDArray[Any]]


class ResNet50(nn.Module):
    """Network with the layers of ResNet-50 (K. He et al., "Deep Residual Learning", 2015) and random weights."""

    class Block(nn.Module):
        """Bottleneck: 1 x 1, 3 x 3 and 1 x 1, beside a shortcut."""

        def __init__(self, inner: int, width: int, stride: int) -> None:
            super().__init__()
            sizes = ((inner, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
            layers: list[nn.Module] = []
            for given, made, size, step in sizes:
                layers += [nn.Conv2d(given, made, size, step, size // 2, bias=False), nn.BatchNorm2d(made), nn.ReLU()]
            self.body = nn.Sequential(*layers[:-1])
            self.shortcut = nn.Sequential()
            if stride != 1 or inner != 4 * width:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inner, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
                )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.shortcut(x))

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]
        inner = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for block in range(count):
                layers.append(self.Block(inner, width, stride if block == 0 else 1))
                inner = 4 * width
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.body(x)
        return logits


def networks() -> Iterator[Network]:
    yield from (network for network in every_network() if network.name in CHOSEN)
    yield Network("classification", "ResNet-50", ResNet50, {"x": Input(("batch", 3, 224, 224))}, ({"batch": 1},))


class Prepared:
    """Network in this process and on the device, with inputs of one size."""

    def __init__(self, network: Network, sizes: Mapping[str, int], device: torch.device, stack: ExitStack) -> None:
        torch.manual_seed(3)
        self.examples = {name: one.example(sizes) for name, one in network.inputs.items()}
        self.feeds: Feeds = {name: tensor.numpy() for name, tensor in self.examples.items()}
        self._device = device
        self._module = make(network).to(device)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.path = folder / "network.onnx"
        export(network, TORCHSCRIPT, self.path)

    def in_torch(self) -> list[NDArray[Any]]:
        """Run the network in torch, from arrays of the host to arrays of the host, as a run on a device does."""
        with torch.inference_mode():
            outputs = self._module(*(tensor.to(self._device) for tensor in self.examples.values()))
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            return [output.cpu().numpy() for output in outputs]

    def open_onnxruntime(self) -> Callable[[], list[NDArray[Any]]]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        return partial(session.run, None, dict(self.feeds))

    def open_remote(self, address: str) -> ModelSession:
        return load(self.path, address, cache=False)


def measure_networks(device: torch.device, batches: tuple[int, ...]) -> Report:
    report = Report(
        "One run at a time",
        f"On {name_of(device)}. Inputs and outputs are arrays of the host in all ways. ratio: the device's daemon,"
        " which runs the network's ONNX file as NNRt's operators, divided by the same network in torch in the client's"
        f" process (median over {ROUNDS} alternating rounds, with quartiles). ONNX Runtime computes on the CPU.",
        ("network", "rows", "ONNX Runtime ms", "torch ms", "nnrt ms", "ratio", "quartiles"),
    )
    for network in networks():
        for batch in batches if "batch" in {dim for one in network.inputs.values() for dim in one.dims} else (1,):
            with ExitStack() as stack:
                sizes = {**network.sizes[0], "batch": batch}
                prepared = Prepared(network, sizes, device, stack)
                daemon = stack.enter_context(torch_daemon(device))
                session = stack.enter_context(prepared.open_remote(daemon))
                beside = prepared.open_onnxruntime()
                require_close(prepared.in_torch(), list(session.run(prepared.feeds).values()), network.name)
                pairs = alternate(prepared.in_torch, partial(session.run, prepared.feeds), RUNS, ROUNDS)
                bare_us = statistics.median(harness.median_us(beside, RUNS) for _ in range(at_most(ROUNDS, 2)))
                report.add(network.name, str(batch), f"{bare_us / 1e3:.3g}", *pair_cells(pairs, scale=1e-3))
    return report


def measure_crowd(device: torch.device) -> Report:
    report = Report(
        f"{CLIENTS} clients",
        f"Runs per second of {CLIENTS} threads with a session each, and of {CLIENTS} threads that call the network in"
        f" this process, for {WINDOW_S} s in alternating rounds. ratio: the daemon divided by torch in process.",
        ("network", "in process runs/s", "nnrt runs/s", "ratio", "quartiles"),
    )
    for network in networks():
        with ExitStack() as stack:
            prepared = Prepared(network, {**network.sizes[0], "batch": 1}, device, stack)
            daemon = stack.enter_context(torch_daemon(device))
            sessions = [stack.enter_context(prepared.open_remote(daemon)) for _ in range(CLIENTS)]
            ways = {
                "in process": partial(throughput, [prepared.in_torch] * CLIENTS),
                "remote": partial(throughput, [partial(session.run, prepared.feeds) for session in sessions]),
            }
            rounds = in_rounds(ways, at_most(5, 2))
            report.add(network.name, *pair_cells(zip(rounds["in process"], rounds["remote"], strict=True)))
    return report


def measure_transfers(device: torch.device) -> Report:
    """Compare copies between the client's tensors and the device with copies from pinned memory in this process."""
    report = Report(
        "Transfers",
        "GB/s between the host and the device: `ResidentTensor`s that a client writes and reads, and torch's copies of"
        " pinned tensors in this process.",
        ("MB", "direction", "pinned GB/s", "nnrt GB/s", "ratio", "quartiles"),
    )
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime([stack.enter_context(torch_daemon(device))]))
        for size_bytes in (1 << 20, 1 << 26):
            array = np.ones(size_bytes, np.uint8)
            form = TensorDesc(DataType.UINT8, array.shape)
            resident = stack.enter_context(ResidentTensor(runtime.device(), form))
            pinned = torch.from_numpy(array).pin_memory()
            there = torch.empty_like(pinned, device=device)

            def send(there: torch.Tensor = there, pinned: torch.Tensor = pinned) -> None:
                there.copy_(pinned)
                torch.accelerator.synchronize()

            def fetch(there: torch.Tensor = there, pinned: torch.Tensor = pinned) -> None:
                pinned.copy_(there)
                torch.accelerator.synchronize()

            ways = (("to", send, partial(resident.write, array)), ("from", fetch, resident.numpy))
            for direction, bare, remote in ways:
                times = alternate(bare, remote, RUNS, ROUNDS)
                rates = [(size_bytes / one / 1e3, size_bytes / other / 1e3) for one, other in times]
                report.add(f"{size_bytes / 1e6:.0f}", direction, *pair_cells(rates))
    return report


def throughput(calls: list[Callable[[], Any]]) -> float:
    """Return how often threads together call these functions in a second."""
    ends_at = time.perf_counter() + at_most(WINDOW_S, 0.2)

    def work(call: Callable[[], Any]) -> int:
        count = 0
        while time.perf_counter() < ends_at:
            call()
            count += 1
        return count

    with ThreadPoolExecutor(len(calls)) as threads:
        counts: list[int] = []
        taken = seconds(lambda: counts.extend(threads.map(work, calls)))
    return sum(counts) / taken


@contextmanager
def torch_daemon(device: torch.device) -> Iterator[str]:
    """Start a daemon of the device, and yield its address."""
    with device_daemon("127.0.0.1:0", "--backend", "torch", "--option", f"device={device}") as daemon:
        yield daemon.address


def require_close(wanted: list[NDArray[Any]], given: list[NDArray[Any]], name: str) -> None:
    for one, other in zip(wanted, given, strict=True):
        error = np.abs(one - other).max() / max(np.abs(one).max(), 1e-6)
        assert error < 1e-3, f"{name}: the answers differ by {error:.1e} of the largest"


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", type=torch.device, help="a device of torch")
    parser.add_argument("--brief", action="store_true", help="measure few rounds")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(harness.ROOT)}")
    given = parser.parse_args()
    harness.is_brief = given.brief
    is_cpu = given.device.type == "cpu"
    reports = [measure_networks(given.device, (1,) if is_cpu else (1, 32)), measure_crowd(given.device)]
    if not is_cpu:
        reports.append(measure_transfers(given.device))
    for report in reports:
        report.show()
    if given.write:
        day = datetime.datetime.now(datetime.timezone.utc).date()
        written = f"Written by `make bench-torch` on {day} ({harness.machine()}, torch {torch.__version__})."
        tables = (report.markdown() for report in reports)
        PAGE.write_text(
            "\n".join([f"# {TITLE}", "", f"{written} [Performance](../performance.md) explains it.", "", *tables])
        )


if __name__ == "__main__":
    main()
