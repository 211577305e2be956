"""Fixtures for all tests: daemons as processes, and a check for what a test leaves behind."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import warm
from daemon_process import DaemonProcess
from hypothesis import HealthCheck, settings
from shared_memory import held, held_descriptors, wait_until_held

from nnrt_client import DataType, Device, Format, Runtime, Settings, Tensor, TensorDesc

pytest_plugins = ["figures", "part", "quick"]

# How long background threads of gRPC and nnrt may run on after a test.
_THREAD_GRACE_S = 20.0


# Hypothesis generates the same examples each time, and accepts slow ones: machines may be busy.
settings.register_profile(
    "nnrt", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("nnrt")


def pytest_xdist_auto_num_workers() -> int:
    """Return three more workers than processors: tests spend half of their time waiting for daemons."""
    return (os.cpu_count() or 1) + 3


def pytest_configure() -> None:
    """Restore Ctrl-C in the tests and their child processes, also if a shell started pytest in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collections, which then take less time."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set a user's cache that knows nothing of an earlier state of the code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def _threads() -> set[threading.Thread]:
    """Return the running threads, except the client's loop, which lasts as long as the process."""
    return {thread for thread in threading.enumerate() if thread.name != "nnrt-io"}


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, a child process or a tensor's memory behind."""
    threads_before = _threads()
    held_before = held_descriptors()
    children_before = _children()
    yield
    deadline = time.monotonic() + _THREAD_GRACE_S
    while (threads := _threads() - threads_before) and time.monotonic() < deadline:
        for thread in threads:
            if thread.is_alive():  # Otherwise the thread is still starting.
                thread.join(max(deadline - time.monotonic(), 0.0))
    left = [thread.name for thread in threads]
    assert not left, f"the test left threads behind: {left}"
    orphans = _children() - children_before
    assert not orphans, f"the test left processes behind: {orphans}"
    if held_descriptors() > held_before:
        gc.collect()  # Frees tensors without references.
        assert held_descriptors() <= held_before, "the test left memory of tensors behind"


@pytest.fixture
def gives_all_memory_back() -> Iterator[None]:
    """Fail a test after which the client still has shared memory. Such a test must close its tensors."""
    before = held()
    yield
    wait_until_held(before)


def _children() -> set[int]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in task.read_text().split()} - warm.pids() if task.exists() else set()


StartDaemon = Callable[..., DaemonProcess]


@pytest.fixture
def start_daemon() -> Iterator[StartDaemon]:
    """Yield a function that starts daemons; kill those that still run after the test."""
    daemons: list[DaemonProcess] = []

    def start(*arguments: str, listen: str = "127.0.0.1:0") -> DaemonProcess:
        daemons.append(DaemonProcess(*arguments, listen=listen))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.kill()


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[DaemonProcess]:
    """Daemon with the reference backend, shared by all tests that don't change it."""
    daemon = DaemonProcess()
    yield daemon
    daemon.kill()


@pytest.fixture(scope="session")
def onnxruntime_daemon() -> Iterator[DaemonProcess]:
    """Daemon with the ONNX Runtime backend, shared likewise."""
    daemon = DaemonProcess("--backend", "onnxruntime")
    yield daemon
    daemon.kill()


@pytest.fixture(scope="session")
def torch_daemon() -> Iterator[DaemonProcess]:
    """Daemon with the torch backend, shared likewise."""
    daemon = DaemonProcess("--backend", "torch")
    yield daemon
    daemon.kill()


@pytest.fixture(scope="session")
def restoring_daemon() -> Iterator[DaemonProcess]:
    """Daemon with the backend `restoring`, shared by tests of caches and offline models.

    The backend exports and restores models, and has every capability.
    """
    daemon = DaemonProcess("--backend", "restoring")
    yield daemon
    daemon.kill()


@pytest.fixture
def runtime(shared_daemon: DaemonProcess) -> Iterator[Runtime]:
    with Runtime([shared_daemon.address], Settings()) as runtime:
        yield runtime


# With torch's where it is installed: for `make test-torch`.
DAEMONS = {"reference": "shared_daemon", "onnxruntime": "onnxruntime_daemon"}
DAEMONS |= {"torch": "torch_daemon"} if find_spec("torch") is not None else {}


@pytest.fixture(scope="session", params=list(DAEMONS.values()), ids=list(DAEMONS))
def each_daemon(request: pytest.FixtureRequest) -> DaemonProcess:
    """The shared daemon of each backend in turn."""
    daemon = request.getfixturevalue(request.param)
    assert isinstance(daemon, DaemonProcess)
    return daemon


@pytest.fixture
def each_runtime(each_daemon: DaemonProcess) -> Iterator[Runtime]:
    with Runtime([each_daemon.address]) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def cached_daemon() -> Iterator[DaemonProcess]:
    """Daemon with the backend `cached`: it computes the identity, and its dynamic dimensions range from 1 to 64."""
    daemon = DaemonProcess("--backend", "cached")
    yield daemon
    daemon.kill()


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """ExitStack that is closed after the test."""
    with ExitStack() as stack:
        yield stack


MakeTensor = Callable[..., Tensor]


@pytest.fixture
def tensor(closing: ExitStack) -> MakeTensor:
    """Return a function that creates a tensor filled with a number, of a shape or of a larger size.

    The tensors are closed after the test.
    """

    def make(
        device: Device,
        shape: list[int],
        size_bytes: int | None = None,
        fill: float = 0,
        data_type: DataType = DataType.FLOAT32,
        format: Format = Format.NONE,
    ) -> Tensor:
        desc = TensorDesc(data_type, shape, format)
        made = Tensor(device, desc) if size_bytes is None else Tensor.with_size(device, desc, size_bytes)
        np.frombuffer(made.data_buffer, np.uint8)[: len(made.data_buffer) // 4 * 4].view(np.float32)[:] = fill
        return closing.enter_context(made)

    return make
