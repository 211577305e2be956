"""A backend that breaks its contract: the error says which device it is, what it gave, and what would be right."""

import re
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from nonsense import NONSENSE

from nnrt_client import (
    Compilation,
    DataType,
    Device,
    Executor,
    ResidentTensor,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
    UnavailableDevice,
)

SOUND, BAD = np.ones(4, np.float32), np.full(4, -1, np.float32)
DESC = TensorDesc(DataType.FLOAT32, (4,))


@pytest.fixture(scope="module", params=["run", "start"])
def faulty_daemon(request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """One that computes in the thread that asks, and one whose results come later."""
    backend = ["faulty"] if request.param == "run" else ["starting", "--option", "inner=faulty"]
    daemon = DaemonProcess("--backend", *backend)
    yield daemon
    daemon.kill()


@pytest.fixture(params=[True, False], ids=["local socket", "gRPC"])
def device(request: pytest.FixtureRequest, faulty_daemon: DaemonProcess, closing: ExitStack) -> Device:
    settings = Settings(share_memory=request.param)
    return closing.enter_context(Runtime([faulty_daemon.address], settings)).device()


@pytest.mark.parametrize("kind", NONSENSE)
def test_outputs_that_can_not_be(device: Device, closing: ExitStack, faulty_daemon: DaemonProcess, kind: str) -> None:
    """In the first run and in planned ones, in arrays and in tensors."""
    compilation = closing.enter_context(Compilation(identity_model(), device))
    compilation.add_extension_config("fault", f"gives {kind}".encode())
    compilation.build()
    executor = closing.enter_context(Executor(compilation))
    x, y = (closing.enter_context(Tensor(device, DESC)) for _ in range(2))
    logged = len(faulty_daemon.log())
    right = r"for output 0 '[^']+' of a run; it must be FLOAT32\[4\]"
    if not NONSENSE[kind].is_of_one_output:
        right = "for the outputs of a run; they must be a list of 1"
    told = f"the device 'faulty' gave {re.escape(NONSENSE[kind].named)} {right}"
    for _ in range(3):
        with pytest.raises(UnavailableDevice, match=told):
            executor.submit([BAD]).result()
        np.testing.assert_array_equal(executor.run_sync([SOUND]), [SOUND])
    for _ in range(3):
        x.numpy()[:] = BAD
        with pytest.raises(UnavailableDevice, match=told):
            executor.run_sync([x], [y])
        x.numpy()[:] = SOUND
        executor.run_sync([x], [y])
        np.testing.assert_array_equal(y.numpy(), SOUND)
    assert "Traceback" not in faulty_daemon.log()[logged:]


def test_memory_that_is_none(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "faulty", "--option", "memory=none")
    with Runtime([daemon.address]) as runtime:
        with pytest.raises(
            UnavailableDevice,
            match="gave an object of type int for 16 bytes of memory; it must be a DeviceBuffer, or None",
        ):
            ResidentTensor(runtime.device(), DESC)
        assert runtime.device().is_connected
