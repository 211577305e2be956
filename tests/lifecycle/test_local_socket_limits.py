"""Runs that the local socket can't carry, or a daemon that stands still there: they end all the same."""

import sys

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model

from nnrt_client import (
    Compilation,
    DataType,
    Executor,
    Model,
    NnrtError,
    OperationType,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
    TimedOut,
    UnavailableDevice,
)

ELEMENTS = 100_000


@pytest.mark.parametrize("length", [3_000, 40_000, 300_000], ids=["fits", "too long a packet", "too long a message"])
def test_long_names(runtime: Runtime, length: int) -> None:
    model = Model()
    x, y = (model.input((2,), name=name * length) for name in "xy")
    model.specify_inputs_and_outputs([x, y], [model.apply(OperationType.ADD, x, y)])
    model.finish()
    with Compilation(model, runtime.devices()[0]) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            given = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
            assert executor.run_sync(given)[0].tolist() == [4, 6]
            assert executor.submit(given).result(30)[0].tolist() == [4, 6]


def test_a_tensor_is_new_to_a_daemon_that_stands_still(start_daemon: StartDaemon) -> None:
    """Nobody waits for the daemon to take its memory: the run ends in time, or with the verdict on the daemon."""
    daemon = start_daemon()
    settings = Settings(heartbeat_timeout_s=1, reconnect_timeout_s=0.2, verdict_timeout_s=0.3)
    with Runtime([daemon.address], settings) as runtime:
        device = runtime.devices()[0]
        with Compilation(identity_model(), device) as compilation:
            compilation.build()
            desc = TensorDesc(DataType.FLOAT32, [ELEMENTS])
            with Executor(compilation) as executor, Tensor(device, desc) as tensor:
                executor.run_sync([np.zeros(ELEMENTS, np.float32)])
                daemon.stop()
                with pytest.raises((TimedOut, UnavailableDevice)):
                    executor.run_sync([tensor], timeout_ms=200)
                with pytest.raises(NnrtError):  # The verdict, which nothing keeps from being given.
                    executor.run_sync([tensor])
                assert not device.is_connected


def test_more_runs_wait_than_calls_may_be_nested(start_daemon: StartDaemon) -> None:
    """None of them can go over the local socket, since the session may share no more memory: all go over gRPC."""
    daemon = start_daemon("--backend", "cached", "--session-buffers", "1", "--session-streams", "4")
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            arrays = [np.full(1 << 16, number, np.float32) for number in range(7)]
            runs = [(executor.submit([array]), array) for array in arrays * (sys.getrecursionlimit() // 10)]
            for run, array in runs:
                np.testing.assert_array_equal(run.result(20)[0], array)
