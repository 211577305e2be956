"""Fixture: a daemon whose only slot is occupied until a test has queued all its runs."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from numpy.typing import NDArray
from waiting import until

from batching.signs import WAITS
from nnrt_client import Batching, Compilation, DeviceLoad, Executor, Model, OperationType, Priority, Runtime, Settings

IN, OUT = 8, 4
LONG_MS = 600_000
UP_TO_16 = Batching(max_size=16)
DEADLINE_S = 30.0

Rows = NDArray[np.float32]


def dense_model(seed: int = 0) -> Model:
    """Build two dense layers, which compute each row independently."""
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
    """Return random inputs of a run of `dense_model`."""
    return np.random.default_rng(seed).standard_normal((count, IN), np.float32)


class BlockableDaemon:
    """Daemon with one slot, which a blocked run occupies from `hold` until `open`."""

    def __init__(self, daemon: DaemonProcess, gate: Path, settings: Settings, stack: ExitStack) -> None:
        self.daemon = daemon
        self.settings = settings
        self._observer = stack.enter_context(Runtime([daemon.address], settings)).device()
        self._gate = gate
        self._stack = stack
        self._holder: Future[Any] | None = None
        self._computed_before = 0

    def client(
        self,
        batching: Batching | None = UP_TO_16,
        model: Callable[[], Model] = dense_model,
        priority: Priority = Priority.NONE,
        settings: Settings | None = None,
    ) -> Executor:
        """Open a session, build a model in it, and return its executor."""
        runtime = self._stack.enter_context(Runtime([self.daemon.address], settings or self.settings))
        compilation = self._stack.enter_context(Compilation(model(), runtime.device()))
        compilation.set_batching(batching)
        compilation.set_priority(priority)
        compilation.build()
        executor = self._stack.enter_context(Executor(compilation))
        if model is not identity_model:
            executor.run_sync([rows(0)])  # Later runs of one row need no new description.
        return executor

    @property
    def load(self) -> DeviceLoad:
        """The device's running and queued runs."""
        load = self._observer.counters().load
        assert load is not None
        return load

    def await_load(self, running: int, queued: int) -> None:
        """Wait until the device has this many running and queued runs."""
        until(lambda: (self.load.running, self.load.queued) == (running, queued), lambda: self.load)

    def hold(self) -> None:
        """Submit a run that occupies the device until `open`."""
        executor = self.client(None, identity_model)
        self._holder = executor.submit([np.full(1, WAITS, np.float32)])
        self.await_load(running=1, queued=0)
        self._computed_before = len(self._computed())

    def submitted(self, runs: Sequence[tuple[Executor, Rows]], timeout_ms: int | None = LONG_MS) -> list[Future[Any]]:
        """Submit runs one by one, waiting until each is queued before the next; return their futures."""
        futures: list[Future[Any]] = []
        queued = self.load.queued
        for executor, inputs in runs:
            futures.append(executor.submit([inputs], timeout_ms=timeout_ms))
            self.await_load(running=1, queued=queued + len(futures))
        return futures

    def open(self) -> None:
        """Let the run that occupies the device end."""
        self._gate.write_bytes(b"")
        if self._holder is not None:
            self._holder.result(DEADLINE_S)

    def computed(self) -> list[int]:
        """Return the number of rows of each batch that the device has computed since `hold`, in order."""
        return self._computed()[self._computed_before :]

    def _computed(self) -> list[int]:
        return [int(rows) for rows in re.findall(r"computes (\d+) rows", self.daemon.log())]


StartBlockable = Callable[..., BlockableDaemon]


@pytest.fixture(params=[True, False], ids=["local", "grpc"])
def start_blockable(
    request: pytest.FixtureRequest, start_daemon: StartDaemon, tmp_path: Path
) -> Iterator[StartBlockable]:
    """Yield a function that starts a daemon whose device is held, once for each transport."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with ExitStack() as stack:

        def start(*flags: str, inner: str = "reference", settings: Settings | None = None) -> BlockableDaemon:
            options = "--option", f"gate={gate}", "--option", f"inner={inner}"
            daemon = start_daemon("--backend", "joined", *options, "--concurrent-runs", "1", *flags)
            return BlockableDaemon(daemon, gate, replace(settings or Settings(), share_memory=request.param), stack)

        yield start


@contextmanager
def alone(daemon: DaemonProcess) -> Iterator[Executor]:
    """Yield an executor whose runs aren't batched."""
    with Runtime([daemon.address]) as runtime, Compilation(dense_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor
