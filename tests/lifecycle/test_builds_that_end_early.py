"""Builds that are cancelled, whose watcher fails, or whose daemon dies, in every stage."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from caching import other_device
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import weighted_model

from nnrt_client import (
    Compilation,
    Device,
    Executor,
    InvalidParameter,
    OperationFailed,
    OperationForbidden,
    Runtime,
    UnavailableDevice,
)
from nnrt_client.build.compilation import prepared_of

# What a build may take to end; a build that didn't would be waiting for the daemon's heartbeat or for ever.
PROMPT_S = 20.0
ONE = np.ones(1, np.float32)
MODEL = weighted_model(1 << 21)  # 8 MiB, so that an upload takes several chunks.


@pytest.fixture
def sound(restoring_daemon: DaemonProcess) -> Iterator[Device]:
    """Another device of the same kind."""
    with Runtime([restoring_daemon.address]) as runtime:
        yield runtime.device()


class Stage:
    """A daemon in which a build comes to a stage and stays there until the gate is let go."""

    def __init__(self, name: str, start_daemon: StartDaemon, folder: Path) -> None:
        self.name = name
        self.gate = folder / "gate"
        os.mkfifo(self.gate)
        waits = {"compiling": "compiling", "restoring": "restoring", "storing": "exporting"}.get(name, "")
        self.daemon = start_daemon(
            "--backend", "restoring", "--option", f"wait={waits}", "--option", f"gate={self.gate}"
        )
        self.is_behind_gate = name in ("restoring", "storing")

    def build_until(self, compilation: Compilation, act: Callable[[], object]) -> None:
        """Build, and do something when the stage is reached: in the callback, or while the daemon is at the gate."""
        ended = threading.Event()

        def at_the_gate() -> None:
            gate = os.open(self.gate, os.O_WRONLY)  # Returns when the daemon is there.
            try:
                act()
                assert ended.wait(PROMPT_S)
            finally:
                os.close(gate)

        def progress(stage: str, fraction: float) -> None:
            if stage == self.name and not self.is_behind_gate:
                act()

        with ThreadPoolExecutor(1) as pool:
            acting = pool.submit(at_the_gate) if self.is_behind_gate else None
            try:
                compilation.build(progress)
            finally:
                ended.set()
                if acting:
                    acting.result()


STAGES = ["checking", "uploading", "compiling", "restoring", "storing"]


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest, start_daemon: StartDaemon, tmp_path: Path) -> Stage:
    return Stage(request.param, start_daemon, tmp_path)


@pytest.fixture
def cache(stage: Stage, sound: Device, tmp_path: Path) -> Path:
    """A directory with a cache where there is something to restore."""
    directory = tmp_path / "cache"
    directory.mkdir()
    if stage.name == "restoring":
        with Compilation(MODEL, sound) as compilation:
            compilation.set_cache(directory, 1)
            compilation.build()
    return directory


def run_on(compilation: Compilation, device: Device) -> None:
    """Nothing was decided: it builds elsewhere, and the model runs."""
    compilation.set_device(device)
    compilation.build()
    with Executor(compilation) as executor:
        executor.run_sync([ONE])


def test_cancelled(stage: Stage, sound: Device, cache: Path) -> None:
    """At once, from another thread; the daemon gives up too; and it can be built again."""
    with Runtime([stage.daemon.address]) as runtime, Compilation(MODEL, runtime.device()) as compilation:
        compilation.set_cache(cache, 1)

        def cancel() -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(compilation.cancel).result(PROMPT_S)

        with pytest.raises(OperationFailed, match="the build was cancelled"):
            stage.build_until(compilation, cancel)
        assert not compilation.is_built
        assert compilation.report is None
        run_on(compilation, sound)
        compilation.cancel()  # Nothing is under way.
        assert compilation.is_built
        stage.daemon.process.terminate()
        assert stage.daemon.wait() == 0  # It waits for work under way: there is none.


def test_daemon_killed(stage: Stage, sound: Device, cache: Path) -> None:
    """UnavailableDevice, and it can be built on another device."""
    with Runtime([stage.daemon.address]) as runtime, Compilation(MODEL, runtime.device()) as compilation:
        compilation.set_cache(cache, 1)
        with pytest.raises(UnavailableDevice):
            stage.build_until(compilation, stage.daemon.kill)
        assert not compilation.is_built
        run_on(compilation, sound)


@pytest.mark.parametrize("stage", ["checking", "uploading", "compiling"], indirect=True)
def test_watcher_fails(stage: Stage, sound: Device, cache: Path) -> None:
    """An error of the callback comes out of build, whichever thread it was called from."""

    def fail() -> None:
        raise UnavailableDevice("the application's own")

    with Runtime([stage.daemon.address]) as runtime, Compilation(MODEL, runtime.device()) as compilation:
        with pytest.raises(UnavailableDevice, match="the application's own"):
            stage.build_until(compilation, fail)
        run_on(compilation, sound)


def test_watcher_fails_while_the_cache_is_read_and_written(sound: Device, tmp_path: Path) -> None:
    """Its error comes out of build, where no daemon is waited for, too."""
    for stage in ("storing", "restoring"):
        with Compilation(MODEL, sound) as compilation:
            compilation.set_cache(tmp_path, 1)

            def fail(now: str, fraction: float, stage: str = stage) -> None:
                if now == stage and fraction == 1.0:
                    raise KeyError(stage)

            with pytest.raises(KeyError, match=stage):
                compilation.build(fail)
            assert not compilation.is_built
            compilation.build()


def test_closed_while_it_is_built(start_daemon: StartDaemon) -> None:
    """Closing cancels."""
    with other_device(start_daemon, "--backend", "compiling") as device, Compilation(MODEL, device) as compilation:
        with pytest.raises(OperationFailed, match="cancelled"):
            compilation.build(lambda stage, fraction: compilation.close() if stage == "compiling" else None)
        with pytest.raises(OperationForbidden):
            prepared_of(compilation)
        with pytest.raises(InvalidParameter, match="the compilation is closed"):
            compilation.build()


def test_late_success_after_a_cancel(start_daemon: StartDaemon) -> None:
    """A model that is ready only when nobody wants it any more is let go of by the daemon."""
    daemon = start_daemon("--backend", "late")
    with Runtime([daemon.address]) as runtime, Compilation(MODEL, runtime.device()) as compilation:
        with pytest.raises(OperationFailed, match="cancelled"):
            compilation.build(lambda stage, fraction: compilation.cancel() if stage == "compiling" else None)
        daemon.process.terminate()
        assert daemon.wait() == 0
    assert "model closed" in daemon.log()


def test_cancelled_while_another_uploads(start_daemon: StartDaemon) -> None:
    """One session uploads for one build at a time; who waits for its turn can give up."""
    waiting, may_go_on = threading.Event(), threading.Event()

    def hold(stage: str, fraction: float) -> None:
        if stage == "uploading" and not may_go_on.is_set():
            waiting.set()
            assert may_go_on.wait(PROMPT_S)

    with (
        other_device(start_daemon) as device,
        Compilation(MODEL, device) as first,
        Compilation(weighted_model(1 << 16, seed=1), device) as second,
        ThreadPoolExecutor(2) as pool,
    ):
        building = pool.submit(first.build, hold)
        assert waiting.wait(PROMPT_S)
        asked = threading.Event()
        also = pool.submit(second.build, lambda stage, fraction: asked.set())
        assert asked.wait(PROMPT_S)
        second.cancel()
        assert isinstance(also.exception(PROMPT_S), OperationFailed)
        may_go_on.set()
        building.result(PROMPT_S)
        assert first.is_built
