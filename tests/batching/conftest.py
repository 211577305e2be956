"""A daemon whose device is held until all runs of a test wait for it."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from numpy.typing import NDArray
from observer import Observer

from batching.signs import WAITS
from nnrt_client import Batching, Compilation, Executor, Model, OperationType, Priority, Runtime, Settings

IN, OUT = 8, 4
LONG_MS = 600_000
UP_TO_16 = Batching(max_size=16)
DEADLINE_S = 30.0

Rows = NDArray[np.float32]


def dense_model(seed: int = 0) -> Model:
    """Two dense layers, whose rows are computed apart."""
    rng = np.random.default_rng(seed)
    model = Model()
    x = model.input((-1, IN), name="x")
    hidden = model.apply(
        OperationType.FULL_CONNECTION, x, rng.standard_normal((IN, IN), np.float32), np.ones(IN, np.float32)
    )
    y = model.apply(
        OperationType.FULL_CONNECTION, hidden, rng.standard_normal((OUT, IN), np.float32), np.zeros(OUT, np.float32)
    )
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def rows(seed: int, count: int = 1) -> Rows:
    """Inputs of a run of that model."""
    return np.random.default_rng(seed).standard_normal((count, IN), np.float32)


class Held:
    """A daemon with one slot, which a run has until `open` is called."""

    def __init__(self, daemon: DaemonProcess, gate: Path, settings: Settings, stack: ExitStack) -> None:
        self.daemon = daemon
        self.observer = stack.enter_context(Observer(daemon.address))
        self._gate = gate
        self._settings = settings
        self._stack = stack
        self._holder: Future[Any] | None = None

    def client(
        self,
        batching: Batching | None = UP_TO_16,
        model: Callable[[], Model] = dense_model,
        priority: Priority = Priority.NONE,
        settings: Settings | None = None,
    ) -> Executor:
        """A session of its own with a model."""
        runtime = self._stack.enter_context(Runtime([self.daemon.address], settings or self._settings))
        compilation = self._stack.enter_context(Compilation(model(), runtime.device()))
        compilation.set_batching(batching)
        compilation.set_priority(priority)
        compilation.build()
        return self._stack.enter_context(Executor(compilation))

    def hold(self) -> None:
        """Have a run on the device until `open`."""
        executor = self.client(None, identity_model)
        self._holder = executor.submit([np.full(1, WAITS, np.float32)])
        self.observer.wait_for(lambda state: (state.running, state.queued) == (1, 0))

    def submitted(self, runs: Sequence[tuple[Executor, Rows]], timeout_ms: int | None = LONG_MS) -> list[Future[Any]]:
        """Begin runs, each of which waits for the device when the next begins."""
        futures: list[Future[Any]] = []
        queued = self.observer.state().queued
        for executor, inputs in runs:
            futures.append(executor.submit([inputs], timeout_ms=timeout_ms))
            self.observer.wait_for(lambda state: state.queued == queued + len(futures))
        return futures

    def open(self) -> None:
        """Let go of the device."""
        self._gate.write_bytes(b"")
        assert self._holder is not None
        self._holder.result(DEADLINE_S)

    def computed(self) -> list[int]:
        """The rows of the runs that the device has computed for the dense model, in order."""
        return [int(rows) for rows in re.findall(r"computes (\d+) rows", self.daemon.log())[1:]]


Hold = Callable[..., Held]


@pytest.fixture(params=[True, False], ids=["local", "grpc"])
def held(request: pytest.FixtureRequest, start_daemon: StartDaemon, tmp_path: Path) -> Iterator[Hold]:
    """Starts daemons that are held, with flags of a test, for clients on each carrier."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with ExitStack() as stack:

        def start(*flags: str, inner: str = "reference") -> Held:
            options = "--option", f"gate={gate}", "--option", f"inner={inner}"
            daemon = start_daemon("--backend", "joined", *options, "--concurrent-runs", "1", *flags)
            return Held(daemon, gate, Settings(share_memory=request.param), stack)

        yield start


@contextmanager
def alone(daemon: DaemonProcess) -> Iterator[Executor]:
    """A session whose runs are computed alone."""
    with Runtime([daemon.address]) as runtime, Compilation(dense_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor
