"""Models in the memory of a simulated accelerator: what they take there counts, and a full device makes room."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import weighted_model
from waiting import until

from nnrt_client import Compilation, Device, Executor, OperationFailed, Residency, Runtime
from nnrt_hdi.files.store_directory import SUFFIX
from started.conftest import assert_answer, run_of

MODEL_BYTES = 1 << 20
# Besides two models, the device has room for a run.
MEMORY_BYTES = 2 * MODEL_BYTES + 1024


class Client:
    """Session with a daemon that keeps models in `store`."""

    def __init__(self, daemon: DaemonProcess, store: Path, closing: ExitStack) -> None:
        self._store = store
        self._closing = closing
        self.device: Device = closing.enter_context(Runtime([daemon.address])).device()
        self._models = 0

    def load(self) -> Executor:
        """Load one more model, and wait until it could leave the device."""
        compilation = self._closing.enter_context(Compilation(weighted_model(1, self._models), self.device))
        compilation.build()
        self._models += 1
        until(lambda: len(list(self._store.glob(f"*{SUFFIX}"))) == self._models)
        return self._closing.enter_context(Executor(compilation))

    @property
    def residency(self) -> Residency:
        counted = self.device.counters()
        assert counted.load is not None
        return counted.load.residency


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def client_of(start_daemon: StartDaemon, store: Path, closing: ExitStack, *flags: str, memory: int) -> Client:
    options = {"memory": memory, "runs": 1, "model": MODEL_BYTES}
    given = [text for name, value in options.items() for text in ("--option", f"{name}={value}")]
    daemon = start_daemon("--backend", "simulated", "--store-dir", str(store), *given, *flags)
    return Client(daemon, store, closing)


def test_bytes_on_the_device_count(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> None:
    """Not those of the host, which are far fewer: the device has room for many models, the limit for two."""
    limit = ("--resident-bytes", str(5 * MODEL_BYTES // 2))
    client = client_of(start_daemon, tmp_path, closing, *limit, memory=1 << 30)
    models = [client.load() for _ in range(3)]
    until(lambda: client.residency.models == 2)
    assert (client.residency.bytes, client.residency.evicted) == (2 * MODEL_BYTES, 1)
    for number in (1, 2, 3):
        assert_answer(models[number - 1].run_sync(run_of(number, 1)), number, 1)
    assert client.residency.bytes == 2 * MODEL_BYTES


def test_a_model_larger_than_the_limit(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> None:
    limit = ("--resident-bytes", str(MODEL_BYTES // 2))
    client = client_of(start_daemon, tmp_path, closing, *limit, memory=1 << 30)
    with pytest.raises(OperationFailed, match=f"takes {MODEL_BYTES} bytes of the device, .* raise --resident-bytes"):
        client.load()
    assert client.residency.bytes == 0


def test_a_full_device_makes_room(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> None:
    """For a model that is loaded, and for one that comes back; without any limit of the daemon."""
    client = client_of(start_daemon, tmp_path, closing, memory=MEMORY_BYTES)
    models = [client.load() for _ in range(3)]
    assert (client.residency.models, client.residency.evicted) == (2, 1)
    for number in (1, 2, 3):
        assert_answer(models[number - 1].run_sync(run_of(number, 1)), number, 1)
    assert (client.residency.models, client.residency.restored) == (2, 3)


def test_a_device_without_room_for_one_model(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> None:
    client = client_of(start_daemon, tmp_path, closing, memory=MODEL_BYTES - 1)
    with pytest.raises(OperationFailed, match="the simulated device is full"):
        client.load()
    assert client.residency.bytes == 0
