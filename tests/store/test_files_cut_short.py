"""Files of the store that are cut short while a daemon has mapped them: it ends, and says why."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import weighted_model

from nnrt_client import Compilation, Executor, Origin, Runtime, UnavailableDevice
from nnrt_client.model.model import parts_of
from nnrt_device_service.host.exit import ExitCode
from nnrt_hdi.files.store_directory import PART_SUFFIX

# Elements of a model whose part has a file of its own.
LARGE = 1 << 19
X = [np.zeros(1, np.float32)]


@pytest.fixture
def stored(start_daemon: StartDaemon, tmp_path: Path) -> DaemonProcess:
    """A daemon that has a model in its store, which it has not made itself."""
    first = start(start_daemon, tmp_path)
    with Runtime([first.address]) as runtime:
        assert origin(built(runtime)) is Origin.COMPILED
    first.send(signal.SIGTERM)  # It finishes what is being written.
    assert first.wait() == 0
    return start(start_daemon, tmp_path)


def start(start_daemon: StartDaemon, store: Path) -> DaemonProcess:
    return start_daemon("--store-dir", str(store))


def built(runtime: Runtime) -> Compilation:
    compilation = Compilation(weighted_model(LARGE), runtime.device())
    compilation.build()
    return compilation


def origin(compilation: Compilation) -> Origin:
    assert compilation.report is not None
    return compilation.report.origin


def cut_short(store: Path, size_bytes: int) -> Path:
    (path,) = store.glob(f"*{PART_SUFFIX}")
    os.truncate(path, size_bytes)
    return path


def test_a_run_that_reads_what_is_lost_ends_the_daemon(stored: DaemonProcess, tmp_path: Path) -> None:
    with Runtime([stored.address]) as runtime:
        compilation = built(runtime)
        assert origin(compilation) is Origin.STORED
        executor = Executor(compilation)
        cut_short(tmp_path, 0)
        with pytest.raises(UnavailableDevice):
            executor.run_sync(X)
    # The daemon's own watch may have been faster.
    code = stored.wait()
    assert code in (-signal.SIGBUS, ExitCode.DAMAGED)
    assert ("Fatal Python error: Bus error" in stored.log()) == (code == -signal.SIGBUS)


def test_a_daemon_whose_model_is_damaged_ends_before_a_run_is_wrong(
    stored: DaemonProcess, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """Of a page that is cut the host shows zeros."""
    with Runtime([stored.address]) as runtime:
        assert origin(built(runtime)) is Origin.STORED
        path = cut_short(tmp_path, LARGE * 4 - 8)
        assert stored.wait() == ExitCode.DAMAGED
    assert f"a file of the model store was cut short: {str(path)!r} has {LARGE * 4 - 8} bytes" in stored.log()
    again = start(start_daemon, tmp_path)
    with Runtime([again.address]) as runtime:
        compilation = built(runtime)
        assert origin(compilation) is Origin.COMPILED
        (y,) = Executor(compilation).run_sync(X)
        np.testing.assert_array_equal(y, parts_of(weighted_model(LARGE)).graph.constants[1].data)
    assert "is removed and will be compiled again" in again.log()
