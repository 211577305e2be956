"""What a device measures of itself, from its backend to those who look."""

import json
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from cli.command import json_output, nnrt
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from storing_backend import StoringBackend
from waiting import until

from metrics.scraping import LISTEN, scraped, value
from nnrt_client import Compilation, Device, Executor, Runtime
from nnrt_device_service.health.telemetry import TelemetryWatch
from nnrt_hdi.backend import Telemetry

ALL = Telemetry(61.5, 9.25, 2 << 30, 8 << 30, 1.2e9, 0.875)
FIGURES = {name: getattr(ALL, name) for name in Telemetry.__slots__}
GAUGES = (
    "temperature_celsius power_watts memory_used_bytes memory_total_bytes clock_hertz utilization_ratio".split()  # noqa: SIM905
)
NOTHING = dict.fromkeys(FIGURES)


def measuring(start_daemon: StartDaemon, folder: Path, figures: object, *flags: str) -> DaemonProcess:
    file = folder / "figures.json"
    file.write_text(json.dumps(figures))
    return start_daemon("--backend", "measuring", "--option", f"figures={file}", *flags)


def telemetry_of(device: Device) -> Telemetry:
    """What it tells, as soon as a sign of life has brought it."""
    found = until(lambda: device.state.telemetry)
    assert found is not None
    return found


def test_everybody_who_looks_is_told(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = measuring(start_daemon, tmp_path, FIGURES, *LISTEN)
    with Runtime([daemon.address]) as runtime:
        assert telemetry_of(runtime.device()) == ALL
    metrics = scraped(daemon)
    assert [value(metrics, f"nnrt_device_{name}") for name in GAUGES] == list(FIGURES.values())
    (device,) = json_output("devices", daemon.address)
    assert device["telemetry"] == FIGURES
    listed = nnrt("devices", daemon.address).stdout
    assert "device util 88 %, temp 62 °C, power 9.2 W, device memory 2.0 GiB of 8.0 GiB, clock 1,200 MHz" in listed
    (device,) = json_output("top", daemon.address, "--once")["devices"]
    assert device["telemetry"] == FIGURES
    shown = nnrt("top", daemon.address, "--once").stdout
    for text in ("device util", "temp", "power", "device memory", "clock", "88 %", "62 °C", "9.2 W", "1,200 MHz"):
        assert text in shown


def test_only_what_is_told_is_shown(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = measuring(start_daemon, tmp_path, {"temperature_celsius": -40}, *LISTEN)
    silent = start_daemon(*LISTEN)
    with Runtime([daemon.address]) as runtime:
        assert telemetry_of(runtime.device()) == Telemetry(temperature_celsius=-40.0)
    metrics = scraped(daemon)
    assert [name for name in GAUGES if f"nnrt_device_{name}" in metrics] == ["temperature_celsius"]
    assert not any(f"nnrt_device_{name}" in scraped(silent) for name in GAUGES)
    shown = nnrt("top", daemon.address, silent.address, "--once").stdout
    assert "temp" in shown and "power" not in shown
    assert "temp" not in nnrt("top", silent.address, "--once").stdout
    assert "measured" not in nnrt("devices", silent.address).stdout
    assert json_output("devices", silent.address)[0]["telemetry"] == NOTHING


def test_nonsense_counts_as_nothing(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Each figure by itself, and in the log."""
    nonsense = {
        "temperature_celsius": -300,
        "power_watts": -1.5,
        "memory_used_bytes": "much",
        "clock_hertz": math.nan,
        "utilization": 1.5,
    }
    daemon = measuring(start_daemon, tmp_path, {**nonsense, "memory_total_bytes": 4.0})
    with Runtime([daemon.address]) as runtime:
        found = telemetry_of(runtime.device())
    assert found == Telemetry(memory_total_bytes=4)
    assert isinstance(found.memory_total_bytes, int)
    for name, figure in nonsense.items():
        assert daemon.log().count(f"the backend's {name} is impossible and is ignored: {figure!r}") == 1


@pytest.mark.parametrize("infinite", [math.inf, -math.inf, 2.0**64])
def test_numbers_without_end_are_no_figures(infinite: float) -> None:
    assert Telemetry(*[infinite] * len(FIGURES)).plausible() == Telemetry()  # type: ignore[arg-type]


def test_a_number_of_any_library_is_a_figure() -> None:
    found = Telemetry(np.float32(40.5), np.int64(9), np.uint64(7)).plausible()
    assert found == Telemetry(40.5, 9.0, 7)
    assert [type(figure) for figure in (found.temperature_celsius, found.power_watts, found.memory_used_bytes)] == [
        float,
        float,
        int,
    ]


def test_a_hook_that_hangs_harms_nobody(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Runs are made meanwhile, and the daemon drains and ends."""
    hanging = tmp_path / "fifo"
    os.mkfifo(hanging)
    daemon = start_daemon("--backend", "measuring", "--option", f"figures={hanging}", *LISTEN)
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        with Compilation(identity_model(), device) as compilation:
            compilation.build()
            with Executor(compilation) as executor:
                (result,) = executor.run_sync([np.ones(1, np.float32)])
        assert result.tolist() == [1.0]
        until(lambda: device.state.sessions)
        assert device.state.telemetry is None
        assert "nnrt_device_power_watts" not in scraped(daemon)
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0


def test_a_hook_that_raises_harms_nobody(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = measuring(start_daemon, tmp_path, {"no such figure": 1})
    until(lambda: "the backend failed to read its telemetry" in daemon.log())
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        until(lambda: device.state.sessions)
        assert device.state.telemetry is None
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0


# ---- the watch itself, at a faster pace


class MeasuringBackend(StoringBackend):
    """Tells what a function gives."""

    def __init__(self, ask: Callable[[], Telemetry | None]) -> None:
        super().__init__()
        self._ask = ask

    def telemetry(self) -> Telemetry | None:
        return self._ask()


@contextmanager
def watched(ask: Callable[[], Telemetry | None]) -> Iterator[TelemetryWatch]:
    watch = TelemetryWatch(MeasuringBackend(ask), every_s=0.1)
    watch.start()
    try:
        yield watch
    finally:
        assert watch.stop()


def test_what_is_old_counts_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A hook that comes back is believed again."""
    goes_on = threading.Semaphore(1)

    def ask() -> Telemetry:
        goes_on.acquire()
        return ALL

    with watched(ask) as watch:
        until(lambda: watch.latest == ALL)
        until(lambda: watch.latest is None)
        for _ in range(3):
            assert watch.latest is None
        goes_on.release()
        until(lambda: watch.latest == ALL)
        until(lambda: watch.latest is None)
        goes_on.release(1 << 20)
    assert [record.getMessage().partition(" for ")[0] for record in caplog.records] == [
        "the backend has sent no telemetry"
    ]


def test_what_goes_wrong_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[object] = [ALL, ZeroDivisionError("first"), SystemExit(3), None, ZeroDivisionError("next"), ALL]
    given = iter(answers)
    is_through = threading.Event()

    def ask() -> Telemetry | None:
        answer = next(given, is_through)
        if isinstance(answer, BaseException):
            raise answer
        if answer is is_through:
            is_through.set()
            return ALL
        assert answer is None or isinstance(answer, Telemetry)
        return answer

    with watched(ask) as watch:
        assert is_through.wait(30)
        until(lambda: watch.latest == ALL)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "the backend failed to read its telemetry")
    assert record.exc_info and isinstance(record.exc_info[1], ZeroDivisionError)


def test_a_backend_that_measures_nothing_is_not_asked() -> None:
    with closing(StoringBackend()) as backend:
        watch = TelemetryWatch(backend)
        watch.start()
        assert watch.latest is None and watch.stop()
    assert "telemetry" not in [thread.name for thread in threading.enumerate()]
