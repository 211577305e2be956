"""Fixtures: a daemon whose device runs several asynchronous runs, and ends them on a test's command."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from numpy.typing import NDArray
from observer import Observer

from nnrt_client import Compilation, Executor, Model, Runtime, Settings

DEADLINE_S = 30.0
LONG_MS = 600_000
ELEMENTS = 4


def run_of(number: float, elements: int = ELEMENTS) -> list[NDArray[np.float32]]:
    """Return the inputs of a run with this number."""
    x = np.arange(elements, dtype=np.float32)
    x[0] = number
    return [x]


def assert_answer(answer: Any, number: float, elements: int = ELEMENTS) -> None:
    np.testing.assert_array_equal(answer[0], run_of(number, elements)[0])


class Chip:
    """Daemon with the backend `starting`, its observer, and the FIFO that ends runs."""

    def __init__(self, daemon: DaemonProcess, ends: Path, stack: ExitStack) -> None:
        self.daemon = daemon
        self.observer = stack.enter_context(Observer(daemon.address))
        self._ends = ends
        self._stack = stack
        self._logged = len(daemon.log())
        self._ended_before: Counter[str] = Counter()
        self._ended_before = self.ended_runs()

    def client(
        self,
        settings: Settings | None = None,
        model: Callable[[], Model] = identity_model,
        address: str = "",
        closing: ExitStack | None = None,
    ) -> Executor:
        """Open a session with a model, and return its executor; `device` becomes the session's device."""
        stack = closing or self._stack
        runtime = stack.enter_context(Runtime([address or self.daemon.address], settings or Settings()))
        self.device = runtime.device()
        compilation = stack.enter_context(Compilation(model(), self.device))
        compilation.build()
        executor = stack.enter_context(Executor(compilation))
        if model is identity_model:
            executor.run_sync(run_of(0))  # Later runs need no new description.
        return executor

    def end(self, *numbers: float) -> None:
        """End the held runs with these numbers."""
        with self._ends.open("w") as ends:
            ends.writelines(f"{number}\n" for number in numbers)

    def await_load(self, running: int, queued: int = 0) -> None:
        """Wait until the device has this many running and queued runs."""
        self.observer.wait_for(lambda state: (state.running, state.queued) == (running, queued))

    def log(self) -> str:
        """Return what the daemon has logged since the test began."""
        return self.daemon.log()[self._logged :]

    def ended_runs(self) -> Counter[str]:
        """Return the numbers of runs since the test began, by outcome."""
        with Runtime([self.daemon.address]) as runtime:
            return Counter(runtime.device().counters().identities[0].runs) - self._ended_before

    @property
    def threads(self) -> int:
        """Number of the daemon's threads."""
        return len(list(Path(f"/proc/{self.daemon.pid}/task").iterdir()))


StartChip = Callable[..., Chip]


def starting(folder: Path, runs: int) -> tuple[list[str], Path]:
    """Return the arguments of a daemon with `runs` slots, and the FIFO that ends its runs."""
    ends = folder / "ends"
    os.mkfifo(ends)
    return ["--backend", "starting", "--option", f"ends={ends}", "--option", f"runs={runs}"], ends


@pytest.fixture
def start_chip(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> StartChip:
    """Return a function that starts a daemon with the test's flags."""

    def start(*flags: str, runs: int = 8) -> Chip:
        arguments, ends = starting(tmp_path, runs)
        return Chip(start_daemon(*arguments, *flags), ends, closing)

    return start


@pytest.fixture(scope="module")
def shared_chip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, Path]]:
    """Daemon shared by all tests that leave it unchanged, and the FIFO that ends its runs."""
    arguments, ends = starting(tmp_path_factory.mktemp("chip"), 8)
    daemon = DaemonProcess(*arguments)
    yield daemon, ends
    daemon.kill()


@pytest.fixture
def chip(shared_chip: tuple[DaemonProcess, Path], closing: ExitStack) -> Chip:
    daemon, ends = shared_chip
    return Chip(daemon, ends, closing)
