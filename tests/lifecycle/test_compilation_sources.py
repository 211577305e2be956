"""Sources of a compilation's model and device, and the order in which a build looks at what is wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from caching import other_device, write_cache
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model

from nnrt_client import (
    Compilation,
    Device,
    InvalidFile,
    InvalidParameter,
    Model,
    OperationFailed,
    OperationForbidden,
    OperationType,
    PerformanceMode,
    Priority,
    Runtime,
    SaveCacheFailed,
    UnavailableDevice,
)


@pytest.fixture
def device(restoring_daemon: DaemonProcess) -> Iterator[Device]:
    """Has every capability, exports and restores."""
    with Runtime([restoring_daemon.address]) as runtime:
        yield runtime.device()


@pytest.fixture
def incapable(start_daemon: StartDaemon) -> Iterator[Device]:
    """Has no capability but dynamic inputs."""
    with other_device(start_daemon, "--backend", "silent") as device:
        yield device


def test_constructors_open_nothing(device: Device) -> None:
    """An error of a source is for build to raise."""
    Compilation.from_offline_file("/nowhere/model", device)
    Compilation.from_offline_buffer(b"nonsense", device)
    Compilation.for_cache(device)


SOURCES: dict[str, Callable[[], Compilation]] = {
    "model": lambda: Compilation(identity_model(), nowhere),
    "offline file": lambda: Compilation.from_offline_file("/nowhere/model", nowhere),
    "offline buffer": lambda: Compilation.from_offline_buffer(b"nonsense", nowhere),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_two_sources(make: Callable[[], Compilation]) -> None:
    """Importing is accepted, building isn't, whatever else is wrong; and it may be tried again."""
    compilation = make()
    compilation.import_cache(b"nonsense")
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="a model and an imported cache; give it exactly one source"):
            compilation.build()


def test_two_caches(device: Device, tmp_path: Path) -> None:
    with Compilation.for_cache(device) as compilation:
        compilation.set_cache(tmp_path, 1)
        compilation.import_cache(b"nonsense")
        with pytest.raises(InvalidParameter, match="an imported cache and a cache directory"):
            compilation.build()


def test_no_source(device: Device, tmp_path: Path) -> None:
    """It may be given one after that."""
    write_cache(tmp_path, device)
    with Compilation.for_cache(device) as compilation:
        with pytest.raises(InvalidParameter, match="it has nothing to build"):
            compilation.build()
        compilation.set_cache(tmp_path, 1)
        compilation.build()


def test_empty_import(device: Device) -> None:
    with Compilation.for_cache(device) as compilation, pytest.raises(InvalidParameter, match="the cache is empty"):
        compilation.import_cache(b"")


@pytest.mark.parametrize("blob", [b"nonsense", b"NNRTPART" + bytes(100)])
def test_import_of_nonsense(device: Device, blob: bytes) -> None:
    with Compilation.for_cache(device) as compilation:
        compilation.import_cache(blob)
        with pytest.raises(InvalidFile, match="imported cache: "):
            compilation.build()


def test_export_needs_a_build_that_succeeded(device: Device) -> None:
    """InvalidParameter before and after a failure; OperationForbidden when it is closed."""
    with Compilation(identity_model(), device) as compilation:
        with pytest.raises(InvalidParameter, match="nothing to export"):
            compilation.export_cache()
        compilation.build()
        assert compilation.export_cache()
    with pytest.raises(OperationForbidden, match="closed"):
        compilation.export_cache()
    failed = Compilation.from_offline_buffer(b"nonsense", device)
    with pytest.raises(OperationFailed):
        failed.build()
    with pytest.raises(InvalidParameter, match="nothing to export"):
        failed.export_cache()


def test_export_after_the_daemon_died(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "restoring")
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        daemon.kill()
        with pytest.raises(SaveCacheFailed):
            compilation.export_cache()


# ---- devices that are found late


def nowhere() -> Device:
    raise InvalidParameter("there is no device 17")


def test_device_that_is_found_late(device: Device, incapable: Device, tmp_path: Path) -> None:
    """Asked for when it is needed: an unknown one is no matter until the build, which fails and may be repeated."""
    found: list[Device] = []

    def look() -> Device:
        return found[0] if found else nowhere()

    with Compilation(identity_model(), look) as compilation:
        compilation.set_performance_mode(PerformanceMode.HIGH)
        compilation.set_priority(Priority.HIGH)
        compilation.enable_float16()
        compilation.set_cache(tmp_path, 1)
        for _ in range(2):
            with pytest.raises(OperationFailed, match="there is no device 17"):
                compilation.build()
        found[:] = [incapable]
        with pytest.raises(UnavailableDevice):
            compilation.set_performance_mode(PerformanceMode.LOW)
        with pytest.raises(OperationForbidden, match="no model caches"):
            compilation.build()
        found[:] = [device]
        compilation.build()
        assert compilation.device is device


def test_order_of_refusals(device: Device, incapable: Device, tmp_path: Path) -> None:
    """The first error is told, of: sources, device, caches, float16, performance mode, priority, then the model."""
    model = Model()
    x = model.input((1,))
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.RELU, x)])

    def all_wrong() -> Compilation:
        compilation = Compilation(model, nowhere)
        compilation.enable_float16()
        compilation.set_performance_mode(cast(PerformanceMode, 17))
        compilation.set_priority(cast(Priority, 17))
        return compilation

    with all_wrong() as compilation:
        compilation.set_cache(tmp_path, 2**32 - 1)
        compilation.import_cache(b"nonsense")
        with pytest.raises(InvalidParameter, match="exactly one source"):
            compilation.build()
    with all_wrong() as compilation:
        compilation.set_cache(tmp_path, 2**32 - 1)
        with pytest.raises(OperationFailed, match="no device 17"):
            compilation.build()
        compilation.set_device(incapable)
        with pytest.raises(OperationForbidden, match="caches"):
            compilation.build()
        compilation.set_device(device)
        with pytest.raises(InvalidParameter, match="the version of the cache"):
            compilation.build()
    with all_wrong() as compilation:
        compilation.set_device(incapable)
        with pytest.raises(OperationForbidden, match="float16"):
            compilation.build()
        compilation.enable_float16(False)
        with pytest.raises(OperationForbidden, match="performance_mode"):
            compilation.build()
        compilation.set_device(device)
        with pytest.raises(InvalidParameter, match="performance mode is 17"):
            compilation.build()
        compilation.set_performance_mode(PerformanceMode.NONE)
        with pytest.raises(InvalidParameter, match="priority is 17"):
            compilation.build()
        compilation.set_priority(Priority.NONE)
        with pytest.raises(InvalidParameter, match="not finished"):
            compilation.build()
