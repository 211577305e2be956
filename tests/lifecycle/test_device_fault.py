"""An accelerator that fails while it runs a model."""

import queue
from contextlib import suppress

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model

from nnrt_client import (
    Compilation,
    Executor,
    NnrtError,
    OperationFailed,
    Runtime,
    Settings,
    TimedOut,
    UnavailableDevice,
)
from nnrt_device_service.host.exit import ExitCode

ONE = np.ones(1, np.float32)
DEADLINE_S = 20.0


def test_the_session_lives_on(start_daemon: StartDaemon) -> None:
    """The run is told, the log has the traceback once, and other models of the session are as before."""
    daemon = start_daemon("--backend", "faulty")
    done: queue.Queue[NnrtError | None] = queue.Queue()
    with (
        Runtime([daemon.address]) as runtime,
        Compilation(identity_model(), runtime.device()) as sound,
        Compilation(identity_model(), runtime.device()) as faulty,
    ):
        faulty.add_extension_config("fault", b"run")
        for compilation in (sound, faulty):
            compilation.build()
        with Executor(sound) as sound_executor, Executor(faulty) as executor:
            with pytest.raises(UnavailableDevice, match=r"the device failed to run the model \(RuntimeError\)") as told:
                executor.run_sync([ONE])
            assert "DMA fault" not in str(told.value), "what a backend says is not for clients"
            assert daemon.log().count("RuntimeError: DMA fault") == daemon.log().count("Traceback") == 1
            executor.set_on_run_done(lambda user_data, outputs, error: done.put(error))
            executor.set_on_service_died(lambda user_data: done.put(None))
            executor.run_async([ONE], timeout_ms=60_000, user_data="mine")
            assert isinstance(done.get(timeout=DEADLINE_S), UnavailableDevice)
            np.testing.assert_array_equal(sound_executor.run_sync([ONE]), [ONE])


@pytest.mark.parametrize("share_memory", [True, False], ids=["local socket", "gRPC"])
def test_a_backend_that_exits_is_a_device_that_fails(start_daemon: StartDaemon, share_memory: bool) -> None:
    """No run is left without an end, neither on its carrier nor for those who await it."""
    daemon = start_daemon("--backend", "faulty")
    with (
        Runtime([daemon.address], Settings(share_memory=share_memory)) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.add_extension_config("fault", b"exits")
        compilation.build()
        with Executor(compilation) as executor:
            for _ in range(3):
                with pytest.raises(UnavailableDevice, match=r"the device failed to run the model \(SystemExit\)"):
                    executor.submit([ONE]).result(DEADLINE_S)


def test_a_compiler_that_exits(start_daemon: StartDaemon) -> None:
    """The build is told, and another one finds the daemon as it was."""
    daemon = start_daemon("--backend", "faulty")
    with Runtime([daemon.address], Settings(request_timeout_s=DEADLINE_S)) as runtime:
        with Compilation(identity_model(), runtime.device()) as refused:
            refused.add_extension_config("fault", b"prepare exits")
            with pytest.raises(OperationFailed, match="failed with SystemExit"):
                refused.build()
        with Compilation(identity_model(), runtime.device()) as compilation:
            compilation.build()


def test_a_daemon_that_serves_no_more_ends(start_daemon: StartDaemon) -> None:
    """With an exit code of its own, instead of staying as a port that answers nothing."""
    daemon = start_daemon("--backend", "faulty", "--heartbeat-timeout-s", "0.4")
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.add_extension_config("fault", b"ends gRPC")
        compilation.build()
        with Executor(compilation) as executor, suppress(UnavailableDevice):
            executor.run_sync([ONE])
        assert daemon.wait() == ExitCode.NOT_SERVING
        assert "gRPC serves no more calls" in daemon.log()


@pytest.mark.parametrize("share_memory", [True, False], ids=["local socket", "gRPC"])
def test_a_device_that_never_replies(start_daemon: StartDaemon, share_memory: bool) -> None:
    """A run without a timeout of its own ends all the same, though the daemon is alive; one with a timeout by that."""
    daemon = start_daemon("--backend", "faulty", "--max-run-s", "0")
    with (
        Runtime([daemon.address], Settings(share_memory=share_memory, run_timeout_s=1.0)) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.add_extension_config("fault", b"never ends")
        compilation.build()
        with Executor(compilation) as executor:
            for _ in range(2):
                with pytest.raises(TimedOut, match="the run took longer than 1 s"):
                    executor.run_sync([ONE])
            futures = [executor.submit([ONE]) for _ in range(10)]
            for future in futures:
                assert isinstance(future.exception(DEADLINE_S), TimedOut)
            with pytest.raises(TimedOut):
                executor.run_sync([ONE], timeout_ms=1)
