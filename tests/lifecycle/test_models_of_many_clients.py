"""Models that several clients of a daemon use: they share them, and one may be killed meanwhile."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from client_process import ClientProcess, built_model
from daemon_process import DaemonProcess
from networks import weighted_model
from waiting import until

from nnrt_client import Compilation, Executor, Origin, Runtime, load
from nnrt_client.model.model import parts_of


@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
def test_clients_of_a_daemon(start_daemon: Callable[..., DaemonProcess], backend: str) -> None:
    daemon = start_daemon("--backend", backend)
    model = weighted_model(100_000)
    with ExitStack() as stack:
        one, other = (stack.enter_context(Runtime([daemon.address])) for _ in range(2))
        first, second = (stack.enter_context(Compilation(model, runtime.device())) for runtime in (one, other))
        first.build()
        second.build()
        assert (first.origin, second.origin) == (Origin.COMPILED, Origin.SHARED)
        executor = stack.enter_context(Executor(second))
        one.close()
        x = np.array([0.5], np.float32)
        (weights,) = parts_of(model).graph.constants.values()
        assert weights.data is not None
        np.testing.assert_array_equal(executor.run_sync([x])[0], np.add(x, weights.data))


def test_more_models_than_fit(start_daemon: Callable[..., DaemonProcess], tmp_path: Path) -> None:
    """Each answers, however often it has left the device; one that is pinned stays."""
    options = ("--store-dir", str(tmp_path / "store"), "--resident-bytes", "1000000")
    daemon = start_daemon("--backend", "onnxruntime", *options)
    x = np.array([0.5], np.float32)
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime([daemon.address]))
        executors = list[Executor]()
        for seed in range(4):  # Two of 400 KB fit.
            compilation = stack.enter_context(Compilation(weighted_model(100_000, seed), runtime.device()))
            compilation.set_pin(seed == 0)
            compilation.build()
            until(lambda seed=seed: daemon.log().count("stored model") == seed + 1)  # type: ignore[misc]
            executors.append(stack.enter_context(Executor(compilation)))
        for seed in (0, 1, 2, 3, 1, 0):
            (weights,) = parts_of(weighted_model(100_000, seed)).graph.constants.values()
            assert weights.data is not None
            np.testing.assert_array_equal(executors[seed].run_sync([x])[0], np.add(x, weights.data))
        load = runtime.device().counters().load
        assert load is not None
        figures = load.residency
        assert (figures.models, figures.evicted, figures.restored, figures.waits) == (2, 6, 4, 4)
        times = executors[2].submit([x]).result(30).times
        assert times is not None and times.slowest == "queued", times


def test_a_restarted_daemon_has_one_model_again(start_daemon: Callable[..., DaemonProcess], tmp_path: Path) -> None:
    """The clients of a restarted daemon load the model again at the same time, and share it."""
    listen = f"unix:{tmp_path}/device"
    first = start_daemon("--backend", "storing", listen=listen)
    x = np.ones(1, np.float32)
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(load(built_model(), first.address, on_death="reload", cache=False)) for _ in range(4)
        ]
        before = sessions[0].run([x])
        first.kill()
        second = start_daemon("--backend", "storing", listen=listen)
        with ThreadPoolExecutor(4) as threads:
            for after in threads.map(lambda session: session.run([x]), sessions):
                np.testing.assert_equal(dict(after), dict(before))
    assert second.log().count("compiled a model") == 1


def test_a_client_is_killed_while_another_waits(start_daemon: Callable[..., DaemonProcess], tmp_path: Path) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    daemon = start_daemon("--backend", "storing", "--option", f"gate={gate}", "--lease-s", "0")
    waits = threading.Event()
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(1))
        runtime = stack.enter_context(Runtime([daemon.address]))
        compilation = stack.enter_context(Compilation(built_model(), runtime.device()))
        with ClientProcess(daemon.address, "build"):
            until(lambda: "compiled a model" in daemon.log())
            built = threads.submit(compilation.build, lambda stage, _: waits.set() if stage == "compiling" else None)
            assert waits.wait(30)
        gate.write_bytes(b"")
        built.result(30)
        assert compilation.origin is Origin.SHARED
    assert daemon.log().count("compiled a model") == 1
