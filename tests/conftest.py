"""Real daemons as processes, and the watch over what a test leaves behind."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import warm
from daemon_process import DaemonProcess
from hypothesis import HealthCheck, settings
from shared_memory import held, held_descriptors, wait_until_held

from nnrt_client import DataType, Device, Format, Runtime, Settings, Tensor, TensorDesc

pytest_plugins = ["figures", "part", "quick"]

# gRPC's and our own background threads end shortly after what they served; a test may not outlive them by more.
_THREAD_GRACE_S = 20.0


# The same examples each time, however long each takes on a busy machine.
settings.register_profile(
    "nnrt", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("nnrt")


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: for a third of their time and more tests wait for daemons, asleep."""
    return (os.cpu_count() or 1) + 2


def pytest_configure() -> None:
    """Let Ctrl-C work in the tests and in what they start, also where a shell has started them in its background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Have collections of garbage in tests look at what tests make, not at the tests themselves."""
    gc.freeze()


def _threads() -> set[threading.Thread]:
    """The threads that there are, but for the client's loop, which lasts as long as the process."""
    return {thread for thread in threading.enumerate() if thread.name != "nnrt-io"}


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fails a test that leaves a thread, a child process or the memory of a tensor behind."""
    threads_before = _threads()
    held_before = held_descriptors()
    children_before = _children()
    yield
    deadline = time.monotonic() + _THREAD_GRACE_S
    while (threads := _threads() - threads_before) and time.monotonic() < deadline:
        for thread in threads:
            if thread.is_alive():  # Else it is just being started.
                thread.join(max(deadline - time.monotonic(), 0.0))
    left = [thread.name for thread in threads]
    assert not left, f"the test left threads behind: {left}"
    orphans = _children() - children_before
    assert not orphans, f"the test left processes behind: {orphans}"
    if held_descriptors() > held_before:
        gc.collect()  # What nobody refers to any more is freed.
        assert held_descriptors() <= held_before, "the test left memory of tensors behind"


@pytest.fixture
def gives_all_memory_back() -> Iterator[None]:
    """Tests that use this close their tensors; nothing of them may be left then."""
    before = held()
    yield
    wait_until_held(before)


def _children() -> set[int]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in task.read_text().split()} - warm.pids() if task.exists() else set()


StartDaemon = Callable[..., DaemonProcess]


@pytest.fixture
def start_daemon() -> Iterator[StartDaemon]:
    """Starts daemons, and kills those that still live when the test ends."""
    daemons: list[DaemonProcess] = []

    def start(*arguments: str, listen: str = "127.0.0.1:0") -> DaemonProcess:
        daemons.append(DaemonProcess(*arguments, listen=listen))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.kill()


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[DaemonProcess]:
    """One reference daemon for all tests that only talk to it."""
    daemon = DaemonProcess()
    yield daemon
    daemon.kill()


@pytest.fixture(scope="session")
def onnxruntime_daemon() -> Iterator[DaemonProcess]:
    """A daemon like that, on ONNX Runtime."""
    daemon = DaemonProcess("--backend", "onnxruntime")
    yield daemon
    daemon.kill()


@pytest.fixture(scope="session")
def restoring_daemon() -> Iterator[DaemonProcess]:
    """One for all tests of caches and offline models: it exports and restores for real, and has every capability."""
    daemon = DaemonProcess("--backend", "restoring")
    yield daemon
    daemon.kill()


@pytest.fixture
def runtime(shared_daemon: DaemonProcess) -> Iterator[Runtime]:
    with Runtime([shared_daemon.address], Settings()) as runtime:
        yield runtime


@pytest.fixture(scope="session", params=["shared_daemon", "onnxruntime_daemon"], ids=["reference", "onnxruntime"])
def each_daemon(request: pytest.FixtureRequest) -> DaemonProcess:
    """That of one backend, and then that of the other."""
    daemon = request.getfixturevalue(request.param)
    assert isinstance(daemon, DaemonProcess)
    return daemon


@pytest.fixture
def each_runtime(each_daemon: DaemonProcess) -> Iterator[Runtime]:
    with Runtime([each_daemon.address]) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def cached_daemon() -> Iterator[DaemonProcess]:
    """The identity; unknown dimensions may be 1 to 64."""
    daemon = DaemonProcess("--backend", "cached")
    yield daemon
    daemon.kill()


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Things that are closed when the test ends."""
    with ExitStack() as stack:
        yield stack


MakeTensor = Callable[..., Tensor]


@pytest.fixture
def tensor(closing: ExitStack) -> MakeTensor:
    """Makes float tensors of a shape, or of a size as well, which hold a number; they are closed with the test."""

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
