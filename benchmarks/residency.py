"""More models than fit on the device: hits and waits of many clients, beside an ideal LRU and a daemon with room."""

import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from harness import Report, at_most, device_daemon
from memory import WIDTH, matrices
from numpy.typing import NDArray

from nnrt_client import ModelSession, Residency, Runtime, load

MODELS, FIT, CLIENTS, LAYERS = 20, 5, 16, 5


def zipf(count: int) -> NDArray[np.float64]:
    """Return the share of each of so many models by Zipf's law: the second is used half as often as the first."""
    share: NDArray[np.float64] = 1 / np.arange(1, count + 1)
    share /= share.sum()
    return share


def _misses_of_ideal(order: Sequence[int]) -> int:
    """Return how often an LRU of FIT models misses in this order of uses."""
    kept, misses = OrderedDict[int, None](), 0
    for model in order:
        misses += model not in kept
        kept[model] = None
        kept.move_to_end(model)
        if len(kept) > FIT:
            kept.popitem(last=False)
    return misses


def residency_of(address: str) -> Residency:
    """Return a daemon's figures about the models on its device."""
    with Runtime([address]) as runtime:
        counted = runtime.device().counters()
    assert counted.load is not None
    return counted.load.residency


class _Used(NamedTuple):
    """Observations of the clients: the order in which they used models, and the latencies in seconds."""

    order: list[int]
    latencies: list[float]
    # Of a client with a model that is pinned.
    pinned: list[float]
    seconds: float
    # Models that came back from the store.
    restored: int


def _use(paths: Sequence[Path], runs: int, room: int) -> _Used:
    """Let the clients use the models, the last of which is pinned, on a daemon with room for so many others."""
    size = paths[0].stat().st_size
    order, latencies, pinned, lock = list[int](), list[float](), list[float](), threading.Lock()
    share = zipf(MODELS)
    x = np.zeros((1, WIDTH), np.float32)

    def client(seed: int, sessions: Sequence[ModelSession]) -> None:
        for model in np.random.default_rng(seed).choice(MODELS, runs, p=share):
            with lock:
                order.append(int(model))
            began = time.perf_counter()
            sessions[model].run([x])
            latencies.append(time.perf_counter() - began)

    def client_of_pinned(session: ModelSession, done: threading.Event) -> None:
        while not done.wait(0.01):
            began = time.perf_counter()
            session.run([x])
            pinned.append(time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as store, ExitStack() as stack, ThreadPoolExecutor(CLIENTS + 1) as threads:
        options = ("--backend", "onnxruntime", "--store-dir", store, "--resident-bytes", str(int((room + 1.5) * size)))
        daemon = stack.enter_context(device_daemon("127.0.0.1:0", *options, "--identity-share", "1"))
        *others, last = paths
        sessions = [[stack.enter_context(load(path, device=daemon.address)) for path in others] for _ in range(2)]
        one = stack.enter_context(load(last, device=daemon.address, pin=True))
        before, is_over = residency_of(daemon.address), threading.Event()
        stack.callback(is_over.set)
        threads.submit(client_of_pinned, one, is_over)
        began = time.perf_counter()
        for done in [threads.submit(client, seed, sessions[seed % 2]) for seed in range(CLIENTS)]:
            done.result()
        seconds = time.perf_counter() - began
        restored = residency_of(daemon.address).restored - before.restored
        is_over.set()
    return _Used(order, latencies, pinned, seconds, restored)


def measure() -> Iterator[Report]:
    report = Report(
        "More models than fit",
        f"{CLIENTS} clients use {MODELS} models of {LAYERS * WIDTH * WIDTH * 4 // 10**6} MB by Zipf's law. The daemon"
        f" has room for {FIT} of them, then for all. The ideal is an LRU that sees the runs in the order in which"
        " clients began them. One more client runs a pinned model of its own every 10 ms.",
        ("room for", "runs", "hit rate", "ideal", "p50 ms", "p99 ms", "runs/s", "pinned p50 ms", "pinned p99 ms"),
    )
    runs = at_most(200, 10)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.onnx" for number in range(MODELS + 1)]
        for number, path in enumerate(paths):
            onnx.save(matrices(LAYERS, seed=number), path)
        for room in (FIT, MODELS):
            used = _use(paths, runs, room)
            count = len(used.order)
            ideal = 1 - _misses_of_ideal(used.order) / count if room == FIT else 1.0
            latencies, pinned = (np.quantile(each, (0.5, 0.99)) * 1e3 for each in (used.latencies, used.pinned))
            report.add(
                str(room),
                str(count),
                f"{1 - used.restored / count:.3f}",
                f"{ideal:.3f}",
                *(f"{each:.1f}" for each in latencies),
                f"{count / used.seconds:.0f}",
                *(f"{each:.1f}" for each in pinned),
            )
    yield report
