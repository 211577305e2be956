"""Stores of real daemons: restarted, killed while they write, several on one directory, on a disk that is full."""

import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import warm
from daemon_process import DaemonProcess
from networks import weighted_model
from part import examples
from storing_device import X, device_on, files
from waiting import until

from nnrt_client import Compilation, Device, Executor, Model, Origin, Runtime
from nnrt_client.model.model import parts_of
from nnrt_hdi.files.store_directory import MARKER, StoreDirectory, part_path

StartDaemon = Callable[..., DaemonProcess]

ELEMENTS = 100_000
# Of a model of so many elements, with its manifest.
FILE_BYTES = 4 * ELEMENTS + 2000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def start(start_daemon: StartDaemon, directory: Path) -> StartDaemon:
    return lambda *flags: start_daemon("--backend", "storing", "--store-dir", str(directory), *flags)


@contextmanager
def client_of(daemon: DaemonProcess) -> Iterator[Device]:
    with Runtime([daemon.address]) as runtime:
        yield runtime.device()


def stages(device: Device, model: Model) -> list[str]:
    """List the stages of a model's build, each once, after its answer has been checked."""
    reached: dict[str, None] = {}
    with Compilation(model, device) as compilation:
        compilation.build(lambda stage, _: reached.setdefault(stage))
        with Executor(compilation) as executor:
            (result,) = executor.run_sync([X])
    (weights,) = parts_of(model).graph.constants.values()
    assert weights.data is not None
    np.testing.assert_array_equal(result, np.add(X, weights.data))
    return list(reached)


NEW = ["checking", "uploading", "compiling"]
KNOWN = ["checking", "restoring"]
# While the daemon still writes the model to the store.
SHARED = ["checking"]


def test_a_clients_own_cache(start: StartDaemon, tmp_path: Path) -> None:
    """The store's model was built by somebody else, in a time that this client doesn't know."""
    model = weighted_model(ELEMENTS)
    daemon = start()
    with client_of(daemon) as device:
        assert stages(device, model) == NEW
    with client_of(daemon) as device:
        reports = []
        for _ in range(2):
            with Compilation(model, device) as compilation:
                compilation.set_cache(tmp_path, 1)
                compilation.build()
                reports.append(compilation.report)
    assert [report.origin for report in reports if report] == [Origin.STORED, Origin.RESTORED]
    assert [(report.compiled_in_s, report.saved_s) for report in reports if report] == [(None, None)] * 2


def test_other_clients_and_a_restarted_daemon(start: StartDaemon) -> None:
    model = weighted_model(ELEMENTS)
    daemon = start()
    with client_of(daemon) as device:
        assert stages(device, model) == NEW
    with client_of(daemon) as device:
        assert stages(device, model) == KNOWN
        assert stages(device, model) == KNOWN
    daemon.kill()
    assert daemon.log().count("compiled a model") == 1
    again = start("--name", "by another name")
    with client_of(again) as device:
        assert stages(device, model) == KNOWN
    assert "compiled a model" not in again.log()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limits of other processes are Linux'")
def test_a_full_disk(start: StartDaemon, directory: Path) -> None:
    """The model works; when there is room again it is stored."""
    daemon, model = start(), weighted_model(ELEMENTS)
    _, most = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (FILE_BYTES // 2, most))
    with client_of(daemon) as device:
        assert stages(device, model) == NEW
    until(lambda: "File too large" in daemon.log())
    assert [path.name for path in directory.iterdir()] == [MARKER]
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (most, most))
    with client_of(daemon) as device:
        assert stages(device, model) == NEW
        until(lambda: files(directory))
        assert stages(device, model) in (KNOWN, SHARED)


# For each line it gets it starts a process that stores models, each another one, until it has computed for that many
# seconds. Then the kernel kills it, by a signal that nobody handles: no line runs after it, as with SIGKILL.
_STORING = """
import os
import signal
import sys
from pathlib import Path

from nnrt_hdi.files.model_store import ModelStore
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.files.compiled import CompiledModel, Target
from nnrt_hdi.part import Part
from nnrt_hdi.enums import DeviceType

target = Target("device", "vendor", DeviceType.OTHER, "backend", "1")
parts = [[Part.of(os.urandom(1 << 22)) for _ in range(2)] for _ in range(6)]
store = ModelStore(Path(sys.argv[1]), 5 << 23, place="here", quota="its quota")
for life_s in sys.stdin:
    pid = os.fork()
    if pid == 0:
        signal.setitimer(signal.ITIMER_PROF, float(life_s))
        while True:
            store.keep(CompiledModel(target, os.urandom(32), ModelConfig(), (), (), 0, parts[os.urandom(1)[0] % 6]))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_kills_while_models_are_stored(directory: Path) -> None:
    """Each at another moment. What is there then is whole, and what was left in the middle of it goes."""
    rng, interrupted = np.random.default_rng(0), 0
    with warm.Popen(
        [sys.executable, "-c", _STORING, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(examples(75)):
            process.stdin.write(f"{rng.uniform(0.001, 0.05)}\n")
            process.stdin.flush()
            assert int(process.stdout.readline()) == -signal.SIGPROF
            interrupted += any(path.suffix == ".tmp" for path in directory.iterdir())
        process.stdin.close()
    assert interrupted > 1, "hardly a kill came in the middle of a file"
    device_on(directory)
    entries = StoreDirectory(directory).entries()
    assert entries
    assert [entry.damage() for entry in entries] == [""] * len(entries)
    assert {path.name for path in directory.iterdir()} == {
        MARKER,
        *(entry.path.name for entry in entries),
        *(part_path(directory, part).name for entry in entries for part in entry.parts),
    }


def test_a_daemon_killed_while_it_stores(start: StartDaemon, directory: Path) -> None:
    """As soon as so many bytes of the file are there, which still has another name, or is just getting its own."""
    daemon = start()
    for attempt, part in enumerate((1, 2_000_000, 4_000_000)):
        model, wanted = weighted_model(1_000_000, seed=attempt), bytes_in(directory) + part
        with ThreadPoolExecutor(1) as pool, client_of(daemon) as device:
            death = pool.submit(_stages_until_death, device, model)
            until(lambda wanted=wanted: bytes_in(directory) >= wanted)  # type: ignore[misc]
            daemon.kill()
            death.result(30)
        daemon = start()
        with client_of(daemon) as device:
            assert stages(device, model) in (NEW, KNOWN)
            assert stages(device, model) in (KNOWN, SHARED)
            until(lambda stored=attempt + 1: len(files(directory)) == stored)  # type: ignore[misc]


def bytes_in(directory: Path) -> int:
    size = 0
    for path in directory.iterdir():
        with suppress(FileNotFoundError):  # It has got its own name in between.
            size += path.stat().st_size
    return size


def _stages_until_death(device: Device, model: Model) -> None:
    try:
        stages(device, model)
    except Exception:
        assert not device.is_connected


def test_daemons_that_share_a_directory(start: StartDaemon, directory: Path) -> None:
    """All answers are right while they evict each other's models, and the directory never holds too much."""
    quota = 3 * FILE_BYTES
    daemons = [start("--store-bytes", str(quota)) for _ in range(2)]
    models = [weighted_model(ELEMENTS, seed) for seed in range(5)]
    most = []

    def work(number: int) -> int:
        restored = 0
        with client_of(daemons[number % 2]) as device:
            for index in np.random.default_rng(number).integers(len(models), size=12):
                restored += stages(device, models[index]) == KNOWN
                most.append(sum(entry.size_bytes for entry in StoreDirectory(directory).entries()))
        return restored

    with ThreadPoolExecutor(4) as pool:
        restored = sum(pool.map(work, range(4)))
    assert restored
    assert max(most) <= quota
    assert all("evicted model" in daemon.log() for daemon in daemons)
    assert not any("WARNING" in daemon.log() for daemon in daemons)
    assert all(entry.damage() == "" for entry in StoreDirectory(directory).entries())
