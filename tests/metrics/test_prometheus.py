"""A real Prometheus scrapes daemons: the project's alerts fire, and all queries of the dashboard return data."""

import html
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from canary.faults import FaultyDaemon
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from source_files import ROOT
from waiting import until

from metrics.prometheus_process import MONITORING, PrometheusProcess, as_asked, panels, program
from metrics.scraping import LISTEN, metrics_address
from nnrt_client import (
    Compilation,
    Device,
    Executor,
    NnrtError,
    OutOfMemory,
    ResidentTensor,
    Runtime,
    TensorDesc,
)
from nnrt_client.enums import DataType
from nnrt_hdi.backend import Telemetry

pytestmark = pytest.mark.slow

ONE = np.ones(1, np.float32)
NAMED = (*LISTEN, "--metrics-identities", "--name")
# A single identity may use three quarters of the queue and of the clients' memory.
QUEUED, MAY_BE_QUEUED = 3, 4
HELD_BYTES = 8 << 20
FULL = {("NnrtQueueFull", "full"), ("NnrtMemoryNearLimit", "full")}
ILL_AND_FULL = {("NnrtDeviceOut", "ill"), *FULL}


class Fleet:
    """Three daemons, all but `full` with a canary.

    `steady` runs for given times and measures itself, `full` waits for a gate, and `ill` has faults.
    """

    def __init__(self, start_daemon: StartDaemon, folder: Path) -> None:
        self.gate = folder / "gate"
        os.mkfifo(self.gate)
        figures = folder / "figures.json"
        figures.write_text(json.dumps(dict.fromkeys(Telemetry.__slots__, 1)))
        measuring = ("--backend", "measuring", "--option", f"figures={figures}")
        store = ("--store-dir", str(folder / "store"), "--canary", "0.2")
        self.steady = start_daemon(*measuring, *store, *NAMED, "steady")
        gated = ("--backend", "gated", "--option", f"gate={self.gate}", "--queued-runs", str(MAY_BE_QUEUED))
        self.full = start_daemon(*gated, "--held-bytes", str(HELD_BYTES), *NAMED, "full")
        self.faulty = FaultyDaemon(start_daemon, folder, *NAMED, "ill")
        self.daemons = (self.steady, self.full, self.faulty.process)

    def have_begun(self, runs: int) -> bool:
        """Return whether this many runs wait at the gate."""
        return self.full.log().count("run started") >= runs


@pytest.fixture
def fleet(start_daemon: StartDaemon, tmp_path: Path) -> Fleet:
    program("prometheus")  # Before anything is started.
    return Fleet(start_daemon, tmp_path)


@contextmanager
def scraping(fleet: Fleet, folder: Path) -> Iterator[PrometheusProcess]:
    """Prometheus that has scraped each daemon."""
    prometheus = PrometheusProcess(folder, [metrics_address(daemon) for daemon in fleet.daemons])
    try:
        until(lambda: len(prometheus.query("nnrt_device_uptime_seconds")) == len(fleet.daemons), prometheus.log)
        yield prometheus
    finally:
        prometheus.close()


def executor_on(daemon: DaemonProcess, closing: ExitStack) -> tuple[Device, Executor]:
    device = closing.enter_context(Runtime([daemon.address])).device()
    compilation = closing.enter_context(Compilation(identity_model(), device))
    compilation.build()
    return device, closing.enter_context(Executor(compilation))


@contextmanager
def full_queue(fleet: Fleet) -> Iterator[Executor]:
    """Fill the queue of the device that waits for its gate."""
    with ExitStack() as closing:
        device, executor = executor_on(fleet.full, closing)
        runs = [executor.submit([ONE]) for _ in range(1 + QUEUED)]
        until(lambda: device.state.queued == QUEUED)
        try:
            yield executor
        finally:
            for begun in range(1, len(runs) + 1):
                # Else who has just gone through the gate finds it open again, and nobody else does.
                until(partial(fleet.have_begun, begun))
                fleet.gate.write_bytes(b"")
        for run in runs:
            run.result()


@contextmanager
def full_memory(fleet: Fleet) -> Iterator[None]:
    """Let one client use all its memory of that device."""
    size_bytes = HELD_BYTES // 16
    with ExitStack() as closing:
        device = closing.enter_context(Runtime([fleet.full.address])).device()
        with pytest.raises(OutOfMemory):
            for _ in range(16):
                held = closing.enter_context(ResidentTensor(device, TensorDesc(DataType.UINT8, [size_bytes])))
                held.write(np.zeros(size_bytes, np.uint8))
        yield


def test_rules_fire(fleet: Fleet, tmp_path: Path) -> None:
    """Each alert fires when its cause exists, and none before."""
    with scraping(fleet, tmp_path) as prometheus:
        until(lambda: len(prometheus.query('up{job="nnrt-device"} == 1')) == len(fleet.daemons))
        assert ILL_AND_FULL.isdisjoint(prometheus.firing())
        fleet.faulty.switch("wrong")
        until(lambda: ("NnrtDeviceOut", "ill") in prometheus.firing(), prometheus.firing)
        with full_queue(fleet), full_memory(fleet):
            until(lambda: prometheus.firing() >= FULL, prometheus.firing)
        fleet.faulty.switch("")
        until(lambda: ILL_AND_FULL.isdisjoint(prometheus.firing()))
        address = metrics_address(fleet.steady)
        fleet.steady.kill()
        until(lambda: prometheus.firing() == {("NnrtDaemonDown", address)}, prometheus.firing)


def dashboard_queries() -> dict[str, str]:
    """Return the queries of the dashboard by title."""
    return {
        f"{panel['title']}: {target['legendFormat']}": as_asked(target["expr"], "1m")
        for panel in panels()
        for target in panel["targets"]
    }


def test_every_query_of_the_dashboard_gives_data(fleet: Fleet, tmp_path: Path, closing: ExitStack) -> None:
    """After runs that succeed, fail, and are refused."""
    with scraping(fleet, tmp_path) as prometheus:

        def work() -> None:
            executors[0].run_sync([ONE])
            with pytest.raises(NnrtError):
                executors[0].run_sync([ONE, ONE])

        executors = [executor_on(daemon, closing)[1] for daemon in (fleet.steady, fleet.faulty.process)]
        executors[1].run_sync([ONE])
        with full_queue(fleet) as full, pytest.raises(OutOfMemory):
            full.run_sync([ONE])

        def silent() -> set[str]:
            work()
            return {what for what, query in dashboard_queries().items() if not numbers(prometheus, query)}

        until(lambda: not silent(), silent)


def numbers(prometheus: PrometheusProcess, query: str) -> list[float]:
    """Return a query's samples that can be drawn."""
    return [value for sample in prometheus.query(query) if np.isfinite(value := float(sample["value"][1]))]


def test_the_picture_shows_the_dashboard() -> None:
    """The picture of docs/site/dashboard_picture.py shows every panel."""
    picture = html.unescape((ROOT / "docs/assets/dashboard.svg").read_text())
    assert [panel["title"] for panel in panels() if panel["title"] not in picture] == []


def test_the_files_are_right() -> None:
    promtool = program("promtool")
    for arguments in (("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml")):
        result = subprocess.run([promtool, *arguments], cwd=MONITORING, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stdout + result.stderr


def test_metrics_are_what_promtool_takes(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(*LISTEN)
    text = urlopen(f"http://{metrics_address(daemon)}/metrics", timeout=20).read()
    result = subprocess.run([program("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
